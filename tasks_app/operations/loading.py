"""Rows of a backup in their new database: loaded as the version that wrote them had them, then settled.

A backup may be restored at another place. Then paths below the old data directory, which sessions of agents
and projects have, become those below the new one, so that a session goes on where it was.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from claude_agent_sdk import project_key_for_directory
from django.db import transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.migrations.executor import MigrationExecutor
from django.db.models.functions import Now

from tasks_app.core.errors import BackupError
from tasks_app.models import Delivery, DeliveryState, SessionEntry, Task, Transition, paths
from tasks_app.operations import rows

#: Rows in which a path is more than a text to read: where a project's source is, what a session goes on with,
#: what a human approved. History stays as it was written.
_WITH_PATHS = frozenset({"tasks_app.project", "tasks_app.sessionentry", "tasks_app.question"})
_NOT_SENT = "It was waiting when the backup was made from which this portal was restored."


class Loader:
    """Fills an empty database with the rows of a backup, with the tables as they were in its version."""

    def __init__(
        self, connection: BaseDatabaseWrapper, manifest: dict[str, Any], *, new_data_dir: Path
    ) -> None:
        self._connection = connection
        self._fields: dict[str, list[str]] = manifest["fields"]
        self._paths = _PathsChanged(manifest["data_dir"], str(new_data_dir))
        self._unfinished: set[int] = set()
        executor = MigrationExecutor(connection)
        wanted: set[tuple[str, str]] = {(app, name) for app, name in manifest["migrations"]}
        graph = executor.loader.graph
        # The last of each app alone: one that others need would be taken as an order to go back to it.
        nodes = [node for node in sorted(wanted) if not _later(graph.node_map[node].children, node, wanted)]
        executor.migrate(nodes)
        state = MigrationExecutor(connection).loader.project_state(nodes)
        self._models = {
            model._meta.label_lower: model for model in state.apps.get_models(include_auto_created=True)
        }

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All rows or none; that they refer to each other is checked at its end."""
        with transaction.atomic(using=self._connection.alias):
            rows.empty(self._connection, self._models.values())
            yield
            self._connection.check_constraints()

    def load(self, label: str, parts: Iterable[bytes]) -> int:
        """Insert the rows of one table, given as its parts; how many."""
        if label not in self._models or label not in self._fields:
            raise BackupError(f"The backup has rows of a table that this version does not know: {label}.")
        names = self._fields[label]
        found = self._rows(label, names, _lines(parts))
        return rows.load(self._connection, self._models[label], names, found)

    def _rows(self, label: str, names: list[str], found: Iterator[str]) -> Iterator[list[Any]]:
        for line in found:
            row = json.loads(self._paths.changed(line) if label in _WITH_PATHS else line)
            if label == "tasks_app.run" and not row[names.index("outcome")]:
                self._unfinished.add(row[names.index("id")])
            if label == "tasks_app.event" and row[names.index("run_id")] in self._unfinished:
                row = json.loads(self._paths.changed(line))  # it is read again to find out what was asked
            yield row


def _later(children: Iterable[Any], node: tuple[str, str], wanted: set[tuple[str, str]]) -> bool:
    """Whether one of the wanted migrations of the same app comes after `node`."""
    return any(child.key in wanted and child.key[0] == node[0] for child in children)


def _lines(parts: Iterable[bytes]) -> Iterator[str]:
    """Lines of a stream that was cut anywhere."""
    rest = b""
    for part in parts:
        *whole, rest = (rest + part).split(b"\n")
        yield from (line.decode() for line in whole)
    if rest:
        raise BackupError("The backup has half a row.")


class _PathsChanged:
    """Replaces paths below the old data directory in the JSON of a row."""

    def __init__(self, old: str, new: str) -> None:
        self._same = old == new
        below = ("sample", "tasks/", "sequences/")
        self._pairs = [(_inside(f"{old}/{name}"), _inside(f"{new}/{name}")) for name in below]

    def changed(self, line: str) -> str:
        if not self._same:
            for old, new in self._pairs:
                line = line.replace(old, new)
        return line


def _inside(text: str) -> str:
    """As it stands inside a string of JSON."""
    return json.dumps(text)[1:-1]


def settle(
    connection: BaseDatabaseWrapper, manifest: dict[str, Any], summary: dict[str, Any], *, new_data_dir: Path
) -> None:
    """End leases, send nothing twice, and let sessions be found at their new place."""
    using = connection.alias
    with transaction.atomic(using=using):
        held = Task._base_manager.using(using).exclude(lease_owner="", lease_expires=None)
        held.update(lease_owner="", lease_expires=None)
        waiting = Delivery._base_manager.using(using).filter(state=DeliveryState.WAITING)
        waiting.update(state=DeliveryState.DROPPED, said=_NOT_SENT, taken_until=None)
        # Whoever wanted to know was told by the portal that went on after the backup.
        Transition._base_manager.using(using).filter(announced_at=None).update(announced_at=Now())
        _move_sessions(using, Path(manifest["data_dir"]), new_data_dir)
        rows.set_last_numbers(connection, summary["last_numbers"])


def _move_sessions(using: str, old: Path, new: Path) -> None:
    """The agent's program keeps a session by the path of its workspace."""
    if old == new:
        return
    tasks = Task._base_manager.using(using).select_related("project", "sequence").defer("text", "body")
    workspaces = {paths.workspace(task).path.relative_to(paths.data_dir()) for task in tasks.iterator()}
    entries = SessionEntry._base_manager.using(using)
    known = set(entries.order_by().values_list("project_key", flat=True).distinct())
    for place in workspaces:
        key = project_key_for_directory(old / place)
        if key in known:
            moved_to = project_key_for_directory(new / place)
            entries.filter(project_key=key).update(project_key=moved_to)
