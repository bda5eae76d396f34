"""What open browsers are sent, and which changes were sent already: pure values."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

#: Seconds after which a missing id is taken for rolled back. A transaction here lasts milliseconds.
GAP_SECONDS = 30.0

#: The most missing ids remembered below a new one.
GAP_LIMIT = 1_000


@dataclass(frozen=True)
class ChangeRow:
    """One change: what kind of change happened to which task of which project."""

    id: int
    task_id: int
    project_id: int
    kind: str


@dataclass(frozen=True)
class TaskUpdate:
    """All changes of one task up to the change `upto`."""

    task_id: int
    project_id: int
    kinds: frozenset[str]
    upto: int

    def merged(self, other: TaskUpdate) -> TaskUpdate:
        return TaskUpdate(self.task_id, self.project_id, self.kinds | other.kinds, max(self.upto, other.upto))

    def as_message(self) -> dict[str, object]:
        """Return the message that a browser gets."""
        return {"task": self.task_id, "kinds": sorted(self.kinds), "upto": self.upto}


def coalesce(changes: Iterable[ChangeRow]) -> list[TaskUpdate]:
    """Return one update per task."""
    updates: dict[int, TaskUpdate] = {}
    for row in changes:
        update = TaskUpdate(row.task_id, row.project_id, frozenset({row.kind}), row.id)
        updates[row.task_id] = updates[row.task_id].merged(update) if row.task_id in updates else update
    return list(updates.values())


class SeenChanges:
    """The changes that were read: every id up to `last` except the gaps.

    In PostgreSQL a transaction that commits late adds rows with ids below `last`. Each id that was skipped
    is therefore looked for again until it appears or `GAP_SECONDS` are over.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.last = 0
        self._clock = clock
        self._gaps: dict[int, float] = {}

    def gaps(self) -> list[int]:
        """Return the skipped ids that may still appear."""
        oldest = self._clock() - GAP_SECONDS
        self._gaps = {id: since for id, since in self._gaps.items() if since >= oldest}
        return sorted(self._gaps)

    def add(self, changes: Iterable[ChangeRow]) -> None:
        """Remember these changes as read; they are ordered by id."""
        now = self._clock()
        for row in changes:
            if row.id > self.last:
                first = max(self.last + 1, row.id - GAP_LIMIT)
                self._gaps.update(dict.fromkeys(range(first, row.id), now))
                self.last = row.id
            else:
                self._gaps.pop(row.id, None)
