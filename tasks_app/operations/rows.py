"""Dump all rows as lines of JSON and load them, on SQLite and PostgreSQL.

Unlike `pg_dump` or a copy of SQLite's file, this can be restored on the other database, needs no program of
the right version, and reads one consistent snapshot while the portal keeps writing.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import date, datetime, time
from decimal import Decimal
from itertools import islice
from typing import Any
from uuid import UUID

from django.apps import apps as installed_apps
from django.db import connections, models, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from tasks_app.models import Run, Sequence, Step, Task

#: Tables that are useless elsewhere: logins and workers of this installation, and sums, which are made anew.
EXCLUDED = frozenset(
    {
        *("tasks_app.browsersession", "tasks_app.workerbeat"),
        *("tasks_app.summedday", "tasks_app.changedday"),
        *("tasks_app.modelusage", "tasks_app.personusage", "tasks_app.dayfigures"),
    }
)
_BATCH_SIZE = 500
_SNAPSHOT = "snapshot"

Model = type[models.Model]
Fields = list["models.Field[Any, Any]"]


@contextmanager
def open_connection(alias: str, **changes: Any) -> Iterator[BaseDatabaseWrapper]:
    """Open a separate connection to the portal's database as `alias`, with changed settings."""
    values = {**connections["default"].settings_dict, **changes}
    # No query timeout: reading or filling a large table takes long, and somebody can press Ctrl+C.
    values["OPTIONS"] = {name: one for name, one in values["OPTIONS"].items() if name != "answer_seconds"}
    connections.settings[alias] = values
    try:
        yield connections[alias]
    finally:
        connections[alias].close()
        del connections[alias]
        del connections.settings[alias]


@contextmanager
def snapshot() -> Iterator[str]:
    """Yield the alias of a connection with a consistent snapshot of all rows."""
    default = connections["default"]
    options = dict(default.settings_dict["OPTIONS"])
    if default.vendor == "sqlite":
        options["transaction_mode"] = "DEFERRED"  # IMMEDIATE would block all writers
    options.pop("idle_seconds", None)  # it has one transaction for the whole backup, and locks nothing
    with open_connection(_SNAPSHOT, OPTIONS=options) as connection, transaction.atomic(using=_SNAPSHOT):
        with connection.cursor() as cursor:
            if connection.vendor == "postgresql":
                cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            cursor.execute("SELECT count(*) FROM django_migrations")  # the first query fixes the snapshot
        yield _SNAPSHOT


def dumped_models() -> list[Model]:
    """Return all models whose rows are backed up, including many-to-many tables."""
    found = installed_apps.get_models(include_auto_created=True)
    return [model for model in found if _has_table(model) and model._meta.label_lower not in EXCLUDED]


def _has_table(model: Model) -> bool:
    return model._meta.managed and not model._meta.proxy


def fields_of(model: Model) -> Fields:
    return list(model._meta.concrete_fields)


def dump_rows(model: Model, *, alias: str) -> Iterator[bytes]:
    """Yield each row as one line of JSON: the values of `fields_of`, in that order."""
    names = [field.attname for field in fields_of(model)]
    rows = model._base_manager.using(alias).order_by("pk").values_list(*names)
    for row in rows.iterator(chunk_size=_BATCH_SIZE):
        yield json.dumps(row, default=_json_default, separators=(",", ":")).encode() + b"\n"


def _json_default(value: Any) -> str:
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, UUID | Decimal):
        return str(value)
    if isinstance(value, bytes | memoryview):
        return b64encode(value).decode()
    raise TypeError(f"{type(value).__name__} cannot be written into a backup")


def delete_rows(connection: BaseDatabaseWrapper, tables: Iterable[Model]) -> None:
    """Delete the rows that migrations created."""
    with connection.cursor() as cursor:
        for model in tables:
            if _has_table(model):
                table = connection.ops.quote_name(model._meta.db_table)
                cursor.execute(f"DELETE FROM {table}")  # noqa: S608 - a name of our own models


def last_ids(connection: BaseDatabaseWrapper, dumped: Iterable[Model]) -> dict[str, int]:
    """Return the highest id that each table ever assigned, so that ids of deleted rows are not reused."""
    tables = [model._meta.db_table for model in dumped if isinstance(model._meta.pk, models.AutoField)]
    found: dict[str, int] = {}
    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            cursor.execute("SELECT name, seq FROM sqlite_sequence")
            # A table that SQLite recreated and that never had a row is at 0.
            return {name: last for name, last in cursor.fetchall() if name in tables and last}
        for table in tables:
            cursor.execute("SELECT pg_get_serial_sequence(%s, 'id')", [f'"{table}"'])
            if (row := cursor.fetchone()) and row[0]:
                cursor.execute(f"SELECT last_value FROM {row[0]} WHERE is_called")  # noqa: S608 - by PostgreSQL
                if last := cursor.fetchone():
                    found[table] = last[0]
    return found


def set_last_ids(connection: BaseDatabaseWrapper, ids: Mapping[str, int]) -> None:
    """Continue the ids of the other database."""
    with connection.cursor() as cursor:
        for table, last in ids.items():
            if connection.vendor == "sqlite":
                cursor.execute("DELETE FROM sqlite_sequence WHERE name = %s", [table])
                cursor.execute("INSERT INTO sqlite_sequence (name, seq) VALUES (%s, %s)", [table, last])
            else:
                cursor.execute("SELECT setval(pg_get_serial_sequence(%s, 'id'), %s)", [f'"{table}"', last])


def load(connection: BaseDatabaseWrapper, model: Model, names: list[str], rows: Iterable[list[Any]]) -> int:
    """Insert rows from `dump_rows` without save() and signals; return their number."""
    known = {field.attname: field for field in fields_of(model)}
    fields = [known[name] for name in names]
    quote = connection.ops.quote_name
    columns = ", ".join(quote(str(field.column)) for field in fields)
    placeholders = ", ".join(["%s"] * len(fields))
    table = quote(model._meta.db_table)
    statement = f"INSERT INTO {table} ({columns}) VALUES ({placeholders})"  # noqa: S608 - names of our own models
    loaded, waiting = 0, iter(rows)
    with connection.cursor() as cursor:
        while some := list(islice(waiting, _BATCH_SIZE)):
            cursor.executemany(statement, [_prepare_row(connection, fields, row) for row in some])
            loaded += len(some)
    return loaded


def _prepare_row(connection: BaseDatabaseWrapper, fields: Fields, row: list[Any]) -> list[Any]:
    return [_prepare_value(connection, field, value) for field, value in zip(fields, row, strict=True)]


def _prepare_value(connection: BaseDatabaseWrapper, field: models.Field[Any, Any], value: Any) -> Any:
    if value is None and isinstance(field, models.JSONField) and not field.null:
        return connection.ops.adapt_json_value(None, field.encoder)  # JSON's null, not the database's
    return field.get_db_prep_save(field.to_python(value), connection)


def commits_by_project(alias: str) -> dict[int, set[str]]:
    """Return the commits that rows refer to, by project id."""
    named: dict[int, set[str]] = {}
    for model, lookup, names in (
        (Task, "project_id", ("base_commit", "head_commit", "reset_to", "merged_commit")),
        (Sequence, "project_id", ("base_commit", "head_commit")),
        (Step, "task__project_id", ("base_commit", "head_commit")),
        (Run, "step__task__project_id", ("head_commit", "checked_commit")),
    ):
        rows = model._base_manager.using(alias).order_by().values_list(lookup, *names)
        for project, *commits in rows.iterator(chunk_size=_BATCH_SIZE):
            named.setdefault(project, set()).update(filter(None, commits))
    return named
