"""All rows of the portal as lines of JSON: out of one database and into another, of either kind.

A dump of our own and not `pg_dump` or a copy of SQLite's file: so a backup of one kind of database can be
restored on the other, needs no program of the right version, and is read from one consistent snapshot
while the portal goes on writing.
"""

from __future__ import annotations

import json
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

#: Rows that are of no use elsewhere: who is logged in here, and which workers live here.
LEFT_OUT = frozenset({"tasks_app.browsersession", "tasks_app.workerbeat"})
_ROWS_AT_ONCE = 500
_SNAPSHOT = "snapshot"

Model = type[models.Model]
Fields = list["models.Field[Any, Any]"]


@contextmanager
def database(alias: str, **changes: Any) -> Iterator[BaseDatabaseWrapper]:
    """A connection of its own to the portal's database, with other settings, known as `alias` meanwhile."""
    known = {**connections["default"].settings_dict, **changes}
    # Reading or filling a large table takes its time; somebody watches, and can press Ctrl+C.
    known["OPTIONS"] = {name: one for name, one in known["OPTIONS"].items() if name != "answer_seconds"}
    connections.settings[alias] = known
    try:
        yield connections[alias]
    finally:
        connections[alias].close()
        del connections[alias]
        del connections.settings[alias]


@contextmanager
def snapshot() -> Iterator[str]:
    """The alias of a connection that sees the rows as they are now, for as long as it is read."""
    default = connections["default"]
    options = dict(default.settings_dict["OPTIONS"])
    if default.vendor == "sqlite":
        options["transaction_mode"] = "DEFERRED"  # an IMMEDIATE one would keep every writer out
    with database(_SNAPSHOT, OPTIONS=options) as connection, transaction.atomic(using=_SNAPSHOT):
        with connection.cursor() as cursor:
            if connection.vendor == "postgresql":
                cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            cursor.execute("SELECT count(*) FROM django_migrations")  # the first look fixes what is seen
        yield _SNAPSHOT


def dumped_models() -> list[Model]:
    """Every model whose rows belong into a backup, tables between two models included."""
    found = installed_apps.get_models(include_auto_created=True)
    return [model for model in found if _has_table(model) and model._meta.label_lower not in LEFT_OUT]


def _has_table(model: Model) -> bool:
    return model._meta.managed and not model._meta.proxy


def fields_of(model: Model) -> Fields:
    return list(model._meta.concrete_fields)


def lines(model: Model, *, alias: str) -> Iterator[bytes]:
    """Each row as one line of JSON: the values of `fields_of`, in that order."""
    names = [field.attname for field in fields_of(model)]
    rows = model._base_manager.using(alias).order_by("pk").values_list(*names)
    for row in rows.iterator(chunk_size=_ROWS_AT_ONCE):
        yield json.dumps(row, default=_plain, separators=(",", ":")).encode() + b"\n"


def _plain(value: Any) -> str:
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, UUID | Decimal):
        return str(value)
    raise TypeError(f"{type(value).__name__} cannot be written into a backup")


def empty(connection: BaseDatabaseWrapper, models_of_it: Iterable[Model]) -> None:
    """Delete the rows that migrations made."""
    with connection.cursor() as cursor:
        for model in models_of_it:
            if _has_table(model):
                table = connection.ops.quote_name(model._meta.db_table)
                cursor.execute(f"DELETE FROM {table}")  # noqa: S608 - a name of our own models


def last_numbers(connection: BaseDatabaseWrapper, dumped: Iterable[Model]) -> dict[str, int]:
    """The highest number that each table ever gave: a number that went with its row never comes again."""
    tables = [model._meta.db_table for model in dumped if isinstance(model._meta.pk, models.AutoField)]
    found: dict[str, int] = {}
    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            cursor.execute("SELECT name, seq FROM sqlite_sequence")
            # A table that SQLite made anew and that never had a row stands at 0.
            return {name: number for name, number in cursor.fetchall() if name in tables and number}
        for table in tables:
            cursor.execute("SELECT pg_get_serial_sequence(%s, 'id')", [f'"{table}"'])
            if (row := cursor.fetchone()) and row[0]:
                cursor.execute(f"SELECT last_value FROM {row[0]} WHERE is_called")  # noqa: S608 - by PostgreSQL
                if last := cursor.fetchone():
                    found[table] = last[0]
    return found


def set_last_numbers(connection: BaseDatabaseWrapper, numbers: Mapping[str, int]) -> None:
    """Go on counting where the other database was."""
    with connection.cursor() as cursor:
        for table, number in numbers.items():
            if connection.vendor == "sqlite":
                cursor.execute("DELETE FROM sqlite_sequence WHERE name = %s", [table])
                cursor.execute("INSERT INTO sqlite_sequence (name, seq) VALUES (%s, %s)", [table, number])
            else:
                cursor.execute("SELECT setval(pg_get_serial_sequence(%s, 'id'), %s)", [f'"{table}"', number])


def load(connection: BaseDatabaseWrapper, model: Model, names: list[str], rows: Iterable[list[Any]]) -> int:
    """Insert rows as `lines` gave them, past every hook of the models; how many."""
    known = {field.attname: field for field in fields_of(model)}
    fields = [known[name] for name in names]
    quote = connection.ops.quote_name
    columns = ", ".join(quote(str(field.column)) for field in fields)
    places = ", ".join(["%s"] * len(fields))
    table = quote(model._meta.db_table)
    order = f"INSERT INTO {table} ({columns}) VALUES ({places})"  # noqa: S608 - names of our own models
    loaded, waiting = 0, iter(rows)
    with connection.cursor() as cursor:
        while some := list(islice(waiting, _ROWS_AT_ONCE)):
            cursor.executemany(order, [_stored(connection, fields, row) for row in some])
            loaded += len(some)
    return loaded


def _stored(connection: BaseDatabaseWrapper, fields: Fields, row: list[Any]) -> list[Any]:
    return [_prepared(connection, field, value) for field, value in zip(fields, row, strict=True)]


def _prepared(connection: BaseDatabaseWrapper, field: models.Field[Any, Any], value: Any) -> Any:
    if value is None and isinstance(field, models.JSONField) and not field.null:
        return connection.ops.adapt_json_value(None, field.encoder)  # JSON's null, not the database's
    return field.get_db_prep_save(field.to_python(value), connection)


def commits_by_project(alias: str) -> dict[int, set[str]]:
    """The commits that rows name, by project: each must be in that project's repository."""
    named: dict[int, set[str]] = {}
    for model, way, names in (
        (Task, "project_id", ("base_commit", "head_commit", "reset_to")),
        (Sequence, "project_id", ("base_commit", "head_commit")),
        (Step, "task__project_id", ("base_commit", "head_commit")),
        (Run, "step__task__project_id", ("head_commit", "checked_commit")),
    ):
        rows = model._base_manager.using(alias).order_by().values_list(way, *names)
        for project, *commits in rows.iterator(chunk_size=_ROWS_AT_ONCE):
            named.setdefault(project, set()).update(filter(None, commits))
    return named
