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
from pathlib import Path
from typing import Any
from uuid import UUID

from claude_agent_sdk import project_key_for_directory
from django.apps import apps as installed_apps
from django.db import connections, models, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations.executor import MigrationExecutor
from django.db.models.functions import Now

from tasks_app.core.errors import BackupError
from tasks_app.models import (
    Delivery,
    DeliveryState,
    Publication,
    PublicationState,
    Review,
    Run,
    Sequence,
    SessionEntry,
    Step,
    Task,
    ThreadComment,
    Transition,
    paths,
)
from tasks_app.operations.health import SNAPSHOT

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
            prepared = []
            for row in some:
                pairs = zip(fields, row, strict=True)
                prepared.append([_prepare_value(connection, field, value) for field, value in pairs])
            cursor.executemany(statement, prepared)
            loaded += len(some)
    return loaded


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


# Load rows of a backup into a new database with the schema of the version that wrote it, then adapt them.
#
# If the data directory has another path now, paths below the old one in projects, sessions and questions are
# replaced, so that sessions can be resumed.


#: Tables whose paths are used: sources of projects, sessions, approved calls. History is not changed.
_WITH_PATHS = frozenset({"tasks_app.project", "tasks_app.sessionentry", "tasks_app.question"})
#: The newest migration of the last snapshot before 0.1.0, and the migration of 0.1.0 with the same schema.
LAST_SNAPSHOT = ("tasks_app", "0087_accounts")
RELEASE_0_1_0 = ("tasks_app", "0002_search")
_NOT_SENT = "The portal was restored from a backup that was made before this was sent."
_NOT_PUBLISHED = (
    "The portal was restored from a backup that was made before this was published. Publish again."
)


def schema_of(manifest: dict[str, Any]) -> set[tuple[str, str]]:
    """Return migrations that make the schema of the rows. Raises BackupError.

    The last snapshot has the schema with which the migrations of 0.1.0 begin.
    """
    applied = {(app, name) for app, name in manifest["migrations"]}
    if SNAPSHOT not in applied:
        return applied
    if LAST_SNAPSHOT not in applied:
        raise BackupError(
            "The backup was made by a snapshot older than the last one before version 0.1.0. Update that "
            "installation to the last one, and write the backup again."
        )
    return {one for one in applied if one[0] != SNAPSHOT[0]} | {RELEASE_0_1_0}


class Loader:
    """Fills an empty database with the rows of a backup, using the schema of its version."""

    def __init__(
        self, connection: BaseDatabaseWrapper, manifest: dict[str, Any], *, new_data_dir: Path
    ) -> None:
        self._connection = connection
        self._fields: dict[str, list[str]] = manifest["fields"]
        self._paths = _PathReplacer(manifest["data_dir"], str(new_data_dir))
        self._unfinished: set[int] = set()
        applied = schema_of(manifest)
        executor = MigrationExecutor(connection)
        graph = executor.loader.graph
        wanted = {node for node in applied if node in graph.node_map}
        # Only the last of each app: migrate() would take an earlier one as a request to go back to it.
        nodes = [
            node for node in sorted(wanted) if not _has_later(graph.node_map[node].children, node, wanted)
        ]
        executor.migrate(nodes)
        state = MigrationExecutor(connection).loader.project_state(nodes)
        self._models = {
            model._meta.label_lower: model for model in state.apps.get_models(include_auto_created=True)
        }

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Load all rows or none, and check the constraints at the end."""
        with transaction.atomic(using=self._connection.alias):
            delete_rows(self._connection, self._models.values())
            yield
            self._connection.check_constraints()

    def load(self, label: str, parts: Iterable[bytes]) -> int:
        """Insert the rows of one table from its parts; return their number."""
        if label not in self._models or label not in self._fields:
            raise BackupError(f"The backup has rows of a table that this version does not know: {label}.")
        names = self._fields[label]
        found = self._parse_rows(label, names, _join_lines(parts))
        return load(self._connection, self._models[label], names, found)

    def _parse_rows(self, label: str, names: list[str], found: Iterator[str]) -> Iterator[list[Any]]:
        for line in found:
            row = json.loads(self._paths.replace(line) if label in _WITH_PATHS else line)
            if label == "tasks_app.run" and not row[names.index("outcome")]:
                self._unfinished.add(row[names.index("id")])
            if label == "tasks_app.event" and row[names.index("run_id")] in self._unfinished:
                row = json.loads(self._paths.replace(line))  # recovery reads the questions from it
            yield row


def _has_later(children: Iterable[Any], node: tuple[str, str], wanted: set[tuple[str, str]]) -> bool:
    """Return whether one of the wanted migrations of the same app comes after `node`."""
    return any(child.key in wanted and child.key[0] == node[0] for child in children)


def _join_lines(parts: Iterable[bytes]) -> Iterator[str]:
    """Yield the lines of a stream that was split anywhere."""
    rest = b""
    for part in parts:
        *whole, rest = (rest + part).split(b"\n")
        yield from (line.decode() for line in whole)
    if rest:
        raise BackupError("The backup ends within a row.")


class _PathReplacer:
    """Replaces paths below the old data directory in the JSON of a row."""

    def __init__(self, old: str, new: str) -> None:
        self._same = old == new
        below = ("sample", "tasks/", "sequences/")
        self._pairs = [(_json_content(f"{old}/{name}"), _json_content(f"{new}/{name}")) for name in below]

    def replace(self, line: str) -> str:
        if not self._same:
            for old, new in self._pairs:
                line = line.replace(old, new)
        return line


def _json_content(text: str) -> str:
    """Return the text as it is inside a JSON string."""
    return json.dumps(text)[1:-1]


def adapt_rows(connection: BaseDatabaseWrapper, manifest: dict[str, Any], *, new_data_dir: Path) -> None:
    """End leases, drop waiting deliveries and publications, and move sessions to the new paths."""
    using = connection.alias
    with transaction.atomic(using=using):
        held = Task._base_manager.using(using).exclude(lease_owner="", lease_expires=None)
        held.update(lease_owner="", lease_expires=None)
        waiting = Delivery._base_manager.using(using).filter(state=DeliveryState.WAITING)
        waiting.update(state=DeliveryState.DROPPED, error=_NOT_SENT, taken_until=None)
        failed = Publication._base_manager.using(using).filter(announced_at=None, ended_at__isnull=False)
        failed.update(announced_at=Now())  # as below; those that are refused here have told nobody yet
        pending = Publication._base_manager.using(using).filter(state=PublicationState.PENDING)
        pending.update(state=PublicationState.REFUSED, answer=_NOT_PUBLISHED, ended_at=Now())
        # The portal that kept running after the backup has sent these notifications.
        Transition._base_manager.using(using).filter(announced_at=None).update(announced_at=Now())
        sent = Review._base_manager.using(using).filter(announced_at=None, sent_at__isnull=False)
        sent.update(announced_at=Now())
        ThreadComment._base_manager.using(using).update(announce_at=None)
        _move_sessions(using, Path(manifest["data_dir"]), new_data_dir)


def _move_sessions(using: str, old: Path, new: Path) -> None:
    """Change the keys of sessions, which Claude Code derives from the path of the workspace."""
    if old == new:
        return
    tasks = Task._base_manager.using(using).select_related("project", "sequence").defer("text", "body")
    workspaces = {paths.workspace(task).path.relative_to(paths.data_dir()) for task in tasks.iterator()}
    entries = SessionEntry._base_manager.using(using)
    known = set(entries.order_by().values_list("project_key", flat=True).distinct())
    for workspace in workspaces:
        key = project_key_for_directory(old / workspace)
        if key in known:
            moved_to = project_key_for_directory(new / workspace)
            entries.filter(project_key=key).update(project_key=moved_to)
