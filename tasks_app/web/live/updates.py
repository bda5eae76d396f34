"""Updates of open pages, made from changes of rows, for each browser."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol
from weakref import WeakSet

from django.db import connection
from django.db.models import Max, Q

from tasks_app.models import Change

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
        if row.task_id in updates:
            update = updates[row.task_id].merged(update)
        updates[row.task_id] = update
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


class Subscriber(Protocol):
    """An open socket. `receive_updates` must not wait: it is called for all sockets in turn."""

    def receive_updates(self, updates: Sequence[TaskUpdate]) -> None: ...


class Broadcaster:
    """Passes updates to all sockets. Belongs to the event loop; not for other threads.

    Not a channel layer: the in-memory one silently drops what exceeds its capacity, and one in Redis would
    cut off the sockets while Redis is down, although the rows contain all that is needed.
    """

    def __init__(self) -> None:
        self._subscribers: WeakSet[Subscriber] = WeakSet()

    def subscribe(self, subscriber: Subscriber) -> None:
        self._subscribers.add(subscriber)

    def unsubscribe(self, subscriber: Subscriber) -> None:
        self._subscribers.discard(subscriber)

    @property
    def has_subscribers(self) -> bool:
        return bool(self._subscribers)

    def publish(self, updates: Sequence[TaskUpdate]) -> None:
        if updates:
            for subscriber in list(self._subscribers):
                subscriber.receive_updates(updates)


broadcaster = Broadcaster()


#: Rows read at a time.
PAGE = 5_000

#: A browser that missed more changes than this is told to fetch everything again.
REPLAY_LIMIT = 2_000

#: How far below a known id a row may still have been uncommitted when that id was announced.
LATE = 100


def newest_change_id() -> int:
    """Return the id of the newest change; 0 if there is none."""
    return Change.objects.aggregate(newest=Max("pk"))["newest"] or 0


def read_changes(last: int, gaps: Sequence[int] = (), *, limit: int = PAGE) -> list[ChangeRow]:
    """Return the changes after `last`, and the `gaps` that were committed since, ordered by id."""
    wanted = Q(pk__gt=last)
    if gaps:
        wanted |= Q(pk__in=gaps)
    rows = Change.objects.filter(wanted).order_by("pk")
    return [ChangeRow(*row) for row in rows.values_list("pk", "task_id", "task__project_id", "kind")[:limit]]


def missed_changes(after: int) -> list[ChangeRow] | None:
    """Return what a browser missed that knows the changes up to `after`; None if that is no longer known.

    It may contain changes that the browser knows, but never too few.
    """
    oldest = Change.objects.order_by("pk").values_list("pk", flat=True).first() or 0
    if after > newest_change_id() or after + 1 < oldest:
        return None
    # SQLite has one writer at a time, so that ids become visible in their order.
    late = 0 if connection.vendor == "sqlite" else LATE
    changes = read_changes(after - late, limit=REPLAY_LIMIT + 1)
    return None if len(changes) > REPLAY_LIMIT else changes
