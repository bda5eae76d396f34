"""Load rows of a backup into a new database with the schema of the version that wrote it, then adapt them.

If the data directory has another path now, paths below the old one in projects, sessions and questions are
replaced, so that sessions can be resumed.
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
from tasks_app.models import (
    Delivery,
    DeliveryState,
    Publication,
    PublicationState,
    Review,
    SessionEntry,
    Task,
    ThreadComment,
    Transition,
    paths,
)
from tasks_app.operations import rows
from tasks_app.operations.health import SNAPSHOT

#: Tables whose paths are used: sources of projects, sessions, approved calls. History is not changed.
_WITH_PATHS = frozenset({"tasks_app.project", "tasks_app.sessionentry", "tasks_app.question"})
#: The newest migration of the last snapshot before 0.1.0, and the one of 0.1.0 that makes the same schema.
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
            rows.delete_rows(self._connection, self._models.values())
            yield
            self._connection.check_constraints()

    def load(self, label: str, parts: Iterable[bytes]) -> int:
        """Insert the rows of one table from its parts; return their number."""
        if label not in self._models or label not in self._fields:
            raise BackupError(f"The backup has rows of a table that this version does not know: {label}.")
        names = self._fields[label]
        found = self._parse_rows(label, names, _join_lines(parts))
        return rows.load(self._connection, self._models[label], names, found)

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
