"""Create a database beside the existing one for a restore, and exchange both.

SQLite: another file. PostgreSQL: another schema of the same database, whose tables are moved in one
transaction; the old ones are kept in a separate schema.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from django.apps import apps
from django.db import DatabaseError, connection, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.utils import CursorWrapper

from tasks_app.models import paths
from tasks_app.operations.rows import open_connection

_ALIAS = "restoring"
_SQLITE_FILES = ("", "-wal", "-shm")
_TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = %s"
_FUNCTIONS = (
    "SELECT p.oid::regprocedure::text, p.proname, pg_get_function_identity_arguments(p.oid) FROM pg_proc p "
    "JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = %s"
)


def _new_schema(stamp: str) -> str:
    return f"restoring_{stamp.replace('-', '_')}"


@contextmanager
def new_database(folder: Path, stamp: str) -> Iterator[BaseDatabaseWrapper]:
    """Open a connection to an empty database of the configured kind; SQLite's file is in `folder`."""
    if connection.vendor == "sqlite":
        file = folder / "database.sqlite3"
        file.touch(mode=0o600)
        with open_connection(_ALIAS, NAME=str(file)) as fresh:
            yield fresh
        return
    schema = _new_schema(stamp)
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE SCHEMA {connection.ops.quote_name(schema)}")
    options = dict(connection.settings_dict["OPTIONS"])
    options.pop("idle_seconds", None)  # the rows of a whole backup are written in one transaction
    options["options"] = f"{options.get('options', '')} -c search_path={schema}".strip()
    with open_connection(_ALIAS, OPTIONS=options) as fresh:
        yield fresh


def exchange_database(folder: Path, aside: Path, stamp: str) -> list[str]:
    """Exchange the old database for the new one; return where the old one is, if there was one."""
    if connection.vendor == "sqlite":
        return _exchange_files(folder / "database.sqlite3", aside, stamp)
    with transaction.atomic(), connection.cursor() as cursor:
        return _exchange_schemas(cursor, _new_schema(stamp), f"before_restore_{stamp.replace('-', '_')}")


def drop_new_database(stamp: str) -> None:
    """Drop the schema of a restore that has failed or ended; SQLite's file is removed with its folder."""
    if connection.vendor == "sqlite":
        return
    try:
        with connection.cursor() as cursor:
            cursor.execute(f"DROP SCHEMA IF EXISTS {connection.ops.quote_name(_new_schema(stamp))} CASCADE")
    except DatabaseError:
        connection.close()  # the original error matters more


def _exchange_files(fresh: Path, aside: Path, stamp: str) -> list[str]:
    """Exchange SQLite's files, which may be outside the data directory."""
    connection.close()
    path = Path(connection.settings_dict["NAME"])
    folder = path.with_name(f"before-restore-{stamp}")
    if path.parent == paths.data_dir():
        folder = aside
    for ending in _SQLITE_FILES:
        old = path.with_name(path.name + ending)
        if old.exists():
            folder.mkdir(mode=0o700, exist_ok=True)
            shutil.move(old, folder / old.name)
    for ending in _SQLITE_FILES:
        made = fresh.with_name(fresh.name + ending)
        if made.exists():
            shutil.move(made, path.with_name(path.name + ending))
    if folder.exists() and folder != aside:
        return [str(folder)]
    return []


def _exchange_schemas(cursor: CursorWrapper, fresh: str, aside: str) -> list[str]:
    cursor.execute("SELECT current_schema()")
    (here,) = cursor.fetchone()
    # Other tables of a shared database are not moved.
    prefixes = ("django_", *(f"{app.label}_" for app in apps.get_app_configs()))
    tables = [name for name in _query_names(cursor, _TABLES, here) if name.startswith(prefixes)]
    moved = bool(tables)
    if moved:
        cursor.execute(f"CREATE SCHEMA {_quote(aside)}")
        _move_tables(cursor, here, aside, tables, functions=_query_names(cursor, _FUNCTIONS, fresh, column=1))
    _move_tables(cursor, fresh, here, _query_names(cursor, _TABLES, fresh))
    cursor.execute(f"DROP SCHEMA {_quote(fresh)}")
    return [f"schema {aside} of the database"] if moved else []


def _move_tables(
    cursor: CursorWrapper, source: str, target: str, tables: list[str], functions: list[str] | None = None
) -> None:
    """Move tables with their indexes and sequences, and functions (those with these names, or all)."""
    for name in tables:
        cursor.execute(f"ALTER TABLE {_quote(source)}.{_quote(name)} SET SCHEMA {_quote(target)}")
    cursor.execute(_FUNCTIONS, [source])
    for _, name, arguments in cursor.fetchall():
        if functions is None or name in functions:
            which = f"{_quote(source)}.{_quote(name)}({arguments})"
            cursor.execute(f"ALTER FUNCTION {which} SET SCHEMA {_quote(target)}")


def _query_names(cursor: CursorWrapper, query: str, schema: str, *, column: int = 0) -> list[str]:
    cursor.execute(query, [schema])
    return [row[column] for row in cursor.fetchall()]


def _quote(name: str) -> str:
    return connection.ops.quote_name(name)
