"""Triggers by which the database notes days whose sums no longer hold (see `history/day_sums.py`).

The database does it, as with the index of words (`reporting/search/schema.py`), so that bulk updates,
cascades and the admin pages are included. Only changes of days before today are noted, and only of columns
that count. New rows belong to the day on which they are made, so they need no note.

On SQLite, Django makes a table anew to change it. That loses its triggers, and fails as long as a trigger of
another table names it. So they are dropped before all migrations; afterwards `mend` makes them, and has all
days added up anew.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.transaction import atomic

_CHANGED = "tasks_app_changedday"
_TIMES = {"run": "started_at", "task": "created_at", "question": "asked_at"}
_EVENTS = ("update", "delete")
_COLUMNS = {
    "run": (
        *("step_id", "started_at", "outcome", "model", "input_tokens", "output_tokens"),
        *("cache_write_tokens", "cache_read_tokens", "cost_usd"),
    ),
    "task": (
        *("project_id", "created_by_id", "created_at", "started_at", "ended_at", "paused_seconds"),
        *("phase", "early_end"),
    ),
    "question": (
        *("task_id", "step_id", "kind", "state", "is_late", "worked_seconds", "recommended"),
        *("recommended_taken", "item_keys", "asked_before", "asked_at", "answered_at", "answered_via"),
    ),
}
#: The days of its questions, which are counted by when it ends, and of its runs, by who created it.
_DAYS_OF_TASK = (
    "SELECT {day_of_question} FROM tasks_app_question AS q WHERE q.task_id = new.id "
    "UNION SELECT {day_of_run} FROM tasks_app_run AS r JOIN tasks_app_step AS s ON s.id = r.step_id "
    "WHERE s.task_id = new.id"
)


def make(apps: object, editor: BaseDatabaseSchemaEditor) -> None:
    """Create the triggers. For `RunPython`; may be called twice."""
    if editor.connection.vendor != "sqlite":  # there `mend` makes them, after all migrations
        _make(editor.connection)


def drop(apps: object, editor: BaseDatabaseSchemaEditor) -> None:
    """Remove the triggers. For `RunPython`."""
    _drop(editor.connection)


def mend(connection: BaseDatabaseWrapper) -> bool:
    """Restore lost triggers, and have all days added up anew; return whether this was necessary."""
    if is_whole(connection):
        return False
    if connection.vendor == "sqlite":
        with atomic(using=connection.alias):
            _make(connection)
            _execute(connection, "DELETE FROM tasks_app_summedday")
        return True
    for table in _TIMES:  # a transaction that waited for one table and held another could wait for ever
        with atomic(using=connection.alias):
            # Who adds up days now may not have seen all changes: wait for their sums, and remove them, too.
            _execute(connection, "LOCK TABLE tasks_app_summedday IN EXCLUSIVE MODE")
            _make_of(table, connection)
            _execute(connection, "DELETE FROM tasks_app_summedday")
    return True


def is_whole(connection: BaseDatabaseWrapper) -> bool:
    """Return whether all triggers exist, are enabled, and are those of this version."""
    if _CHANGED not in connection.introspection.table_names():
        return True
    is_sqlite = connection.vendor == "sqlite"
    found = _on_sqlite(connection) if is_sqlite else _on_postgres(connection)
    return all(
        found.get((f"tasks_app_{table}", _name(table, event)))
        == (tuple(_sqlite_trigger(table, event)) if is_sqlite else _postgres_definition(table, event))
        for table, event in _triggers()
    )


#: Table and name of a trigger.
_Key = tuple[str, str]


def _on_sqlite(connection: BaseDatabaseWrapper) -> dict[_Key, tuple[str, ...]]:
    """Return the statement of each trigger."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT tbl_name, name, sql FROM sqlite_master WHERE type = 'trigger'")
        return {(table, name): (sql,) for table, name, sql in cursor.fetchall()}


def _on_postgres(connection: BaseDatabaseWrapper) -> dict[_Key, tuple[str, ...]]:
    """Return the body of the function of each enabled trigger, and its comment."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT t.relname, g.tgname, f.prosrc, coalesce(obj_description(g.oid, 'pg_trigger'), '') "
            "FROM pg_trigger g JOIN pg_class t ON t.oid = g.tgrelid JOIN pg_proc f ON f.oid = g.tgfoid "
            "WHERE NOT g.tgisinternal AND g.tgenabled IN ('O', 'A') AND pg_table_is_visible(t.oid)"
        )
        return {(table, name): (body, comment) for table, name, body, comment in cursor.fetchall()}


def drop_before_migration(using: str, plan: Sequence[object] = (), **kwargs: Any) -> None:
    """Receiver of Django's signal `pre_migrate`. PostgreSQL keeps the triggers of tables that it changes."""
    from django.db import connections

    if plan and connections[using].vendor == "sqlite":
        _drop(connections[using])


def mend_after_migration(using: str, **kwargs: Any) -> None:
    """Receiver of Django's signal `post_migrate`."""
    from django.db import connections

    mend(connections[using])


def _triggers() -> list[tuple[str, str]]:
    return [(table, event) for table in _TIMES for event in _EVENTS]


def _name(table: str, event: str) -> str:
    return f"day_of_{table}_{event}d"


def _make(connection: BaseDatabaseWrapper) -> None:
    _drop(connection)
    for table in _TIMES:
        _make_of(table, connection)


def _make_of(table: str, connection: BaseDatabaseWrapper) -> None:
    make_one = _sqlite_trigger if connection.vendor == "sqlite" else _postgres_trigger
    for event in _EVENTS:
        for statement in make_one(table, event):
            _execute(connection, statement)


def _drop(connection: BaseDatabaseWrapper) -> None:
    for table, event in _triggers():
        if connection.vendor == "sqlite":
            _execute(connection, f"DROP TRIGGER IF EXISTS {_name(table, event)}")
        else:
            _execute(connection, f"DROP FUNCTION IF EXISTS {_name(table, event)}() CASCADE")


def _sqlite_trigger(table: str, event: str) -> list[str]:
    note = _note(_days(table, event, day="substr({}, 1, 10)"), today="date('now')")
    condition = _condition(table, event, "{} IS NOT {}")
    return [f"CREATE TRIGGER {_name(table, event)} {_occasion(table, event)} {condition} BEGIN {note}; END"]


def _postgres_trigger(table: str, event: str) -> list[str]:
    name, (body, digest) = _name(table, event), _postgres_definition(table, event)
    return [
        f"CREATE OR REPLACE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $${body}$$",
        f"CREATE OR REPLACE TRIGGER {name} {_postgres_occasion(table, event)} EXECUTE FUNCTION {name}()",
        f"COMMENT ON TRIGGER {name} ON tasks_app_{table} IS '{digest}'",
    ]


def _postgres_definition(table: str, event: str) -> tuple[str, ...]:
    """Return the body of the function, and the comment: a digest, because PostgreSQL rewrites conditions."""
    days = _days(table, event, day="({} AT TIME ZONE 'UTC')::date")
    note = _note(days, today="(now() AT TIME ZONE 'UTC')::date")
    body = f" BEGIN {note}; RETURN NULL; END "
    text = f"{_postgres_occasion(table, event)} {body}"
    return body, hashlib.sha256(text.encode()).hexdigest()


def _postgres_occasion(table: str, event: str) -> str:
    condition = _condition(table, event, "{} IS DISTINCT FROM {}")
    return f"{_occasion(table, event)} FOR EACH ROW {condition}"


def _occasion(table: str, event: str) -> str:
    columns = f" OF {', '.join(_COLUMNS[table])}" if event == "update" else ""
    return f"AFTER {event.upper()}{columns} ON tasks_app_{table}"


def _condition(table: str, event: str, differ: str) -> str:
    """Return the WHEN of a trigger: something that counts is another than before."""
    if event == "delete":
        return ""
    changed = " OR ".join(differ.format(f"old.{one}", f"new.{one}") for one in _COLUMNS[table])
    if table != "task":
        return f"WHEN ({changed})"
    counts = " OR ".join(
        ["old.ended_at IS NOT NULL", "new.ended_at IS NOT NULL"]
        + [differ.format(f"old.{one}", f"new.{one}") for one in ("created_by_id", "project_id")]
    )
    return f"WHEN (({changed}) AND ({counts}))"


def _days(table: str, event: str, *, day: str) -> str:
    """Return a query for the days that are concerned."""
    own = f"SELECT {day.format(f'old.{_TIMES[table]}')} AS day"
    if event == "delete":
        return own
    own += f" UNION SELECT {day.format(f'new.{_TIMES[table]}')}"
    if table != "task":
        return own
    return f"{own} UNION " + _DAYS_OF_TASK.format(
        day_of_question=day.format("q.asked_at"), day_of_run=day.format("r.started_at")
    )


def _note(days: str, *, today: str) -> str:
    chosen = f"SELECT one.day FROM ({days}) AS one WHERE one.day < {today}"  # noqa: S608 - our own names
    return f"INSERT INTO {_CHANGED} (day) {chosen}"


def _execute(connection: BaseDatabaseWrapper, statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement)
