"""Test databases, migrated once for all workers of a test run and copied.

Migrating from nothing takes seconds of CPU time. The first worker that needs a database makes a template
in the folder that the whole run shares; each worker, and each installation in a data directory of its own,
starts from a copy of it.
"""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
from django.db import connection, connections, transaction
from django.test.utils import setup_databases, teardown_databases
from psycopg import sql

from tests import machine, shared

REPOSITORY = Path(__file__).parents[1]
_SQLITE_TEMPLATE = shared.FOLDER / "template.sqlite3"
_POSTGRES_TEMPLATE = f"{shared.FOLDER.name.replace('-', '_')}_template".lower()
#: Tables whose rows come from migrating and stay the same.
_CONSTANT = {"auth_permission", "django_content_type"}


def sqlite_template() -> Path:
    """A migrated database file without rows of its own, to copy."""
    with shared.alone():
        if not _SQLITE_TEMPLATE.exists():
            data_dir = shared.FOLDER / "data"
            data_dir.mkdir()
            _migrate(data_dir)
            (data_dir / "catherder.sqlite3").rename(_SQLITE_TEMPLATE)
    return _SQLITE_TEMPLATE


def _migrate(data_dir: Path, **variables: str) -> None:
    subprocess.run(
        [sys.executable, "manage.py", "migrate", "--verbosity=0"],
        cwd=REPOSITORY,
        env={"PATH": os.environ["PATH"], "CATHERDER_DATA_DIR": str(data_dir), **variables},
        check=True,
    )


def copy_migrated(data_dir: Path) -> None:
    """Put a migrated SQLite database into an installation's data directory that has none."""
    data_dir.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(sqlite_template(), data_dir / "catherder.sqlite3")


def copy_migrated_to_postgres(url: str) -> None:
    """Replace a test's empty PostgreSQL database by a migrated one."""
    _make_postgres_template()
    name = sql.Identifier(urlsplit(url).path.removeprefix("/"))
    template = sql.Identifier(_POSTGRES_TEMPLATE)
    with psycopg.connect(machine.POSTGRES, autocommit=True) as server:
        server.execute(sql.SQL("DROP DATABASE {}").format(name))
        server.execute(sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(name, template))


def set_up() -> Any:
    """Make this worker's test database from the template; what `tear_down` takes."""
    if machine.ON_POSTGRES:
        _make_postgres_template()
        connection.settings_dict["TEST"]["TEMPLATE"] = _POSTGRES_TEMPLATE
    else:
        shutil.copyfile(sqlite_template(), connection.settings_dict["TEST"]["NAME"])
    # With `keepdb` Django goes on with what is there; it would migrate what the template lacks.
    return setup_databases(verbosity=0, interactive=False, keepdb=True)


def tear_down(configured: Any) -> None:
    teardown_databases(configured, verbosity=0)


def drop_templates() -> None:
    """At the end of the run. The folder itself goes with the process that made it."""
    if _postgres_template_made().exists():
        with psycopg.connect(machine.POSTGRES, autocommit=True) as server:
            server.execute(
                sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(_POSTGRES_TEMPLATE))
            )
        _postgres_template_made().unlink()


def empty_tables(self: Any) -> None:
    """Undo what a test with transactions of its own has committed, as TransactionTestCase's teardown.

    Django empties all tables and then makes permissions and content types again, which takes 15 times as
    long. On PostgreSQL its TRUNCATE makes a new file for each table.
    """
    for name in self._databases_names(include_mirrors=False):
        database = connections[name]
        tables = database.introspection.django_table_names(only_existing=True, include_views=False)
        quote = database.ops.quote_name
        emptying = [f"DELETE FROM {quote(table)};" for table in sorted(set(tables) - _CONSTANT)]  # noqa: S608
        database.ops.execute_sql_flush(emptying)


@contextmanager
def empty_postgres() -> Iterator[str]:
    """Yield the URL of an empty database, which is gone afterwards."""
    name = sql.Identifier(found := f"test_catherder_{uuid4().hex[:12]}")
    with psycopg.connect(machine.POSTGRES, autocommit=True) as server:
        server.execute(sql.SQL("CREATE DATABASE {}").format(name))
        try:
            yield _url_of(found)
        finally:
            server.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(name))


@contextmanager
def undone() -> Iterator[None]:
    """Roll back what happens in the block: one test tries many cases on rows that it makes once."""
    with transaction.atomic():
        yield
        transaction.set_rollback(True)


def _make_postgres_template() -> None:
    with shared.alone(), tempfile.TemporaryDirectory() as data_dir:
        if _postgres_template_made().exists():
            return
        name = sql.Identifier(_POSTGRES_TEMPLATE)
        with psycopg.connect(machine.POSTGRES, autocommit=True) as server:
            server.execute(
                sql.SQL("DROP DATABASE IF EXISTS {}").format(name)
            )  # of a worker that failed half-way
            server.execute(sql.SQL("CREATE DATABASE {}").format(name))
        _migrate(Path(data_dir), DATABASE_URL=_url_of(_POSTGRES_TEMPLATE))
        _postgres_template_made().touch()
        if "PYTEST_XDIST_WORKER" not in os.environ:
            atexit.register(drop_templates)  # `make bench` runs outside pytest


def _url_of(name: str) -> str:
    return urlsplit(machine.POSTGRES)._replace(path=f"/{name}").geturl()


def _postgres_template_made() -> Path:
    return shared.FOLDER / "postgres-template-made"
