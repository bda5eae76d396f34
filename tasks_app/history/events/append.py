"""Append events to a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.utils import timezone

from tasks_app.core.storable import bounded, storable
from tasks_app.models import Change, ChangeKind, Event, EventKind, Run

#: Limit of one text in a payload; the raw message is stored completely.
PAYLOAD_CHARACTERS = 1_000_000


@dataclass(frozen=True)
class NewEvent:
    """An event that is not stored yet: `payload` is for people, `raw` is the agent's message."""

    kind: EventKind
    payload: dict[str, Any] = field(default_factory=dict)
    raw: Any = None
    at: datetime = field(default_factory=timezone.now)


def append(run: Run, events: Sequence[NewEvent], *, seq: int) -> int:
    """Store `events` from number `seq` on, with one change row; return the next free number.

    Only one writer may call this: the holder of the lease during the run, and afterwards whoever locked the
    task's row. A second writer fails on the unique (run, seq). Taking back the answer of a decision may come
    during the run; then its holder goes on behind that.
    """
    Event.objects.bulk_create(
        Event(
            run=run,
            seq=seq + offset,
            kind=event.kind,
            at=event.at,
            payload=bounded(storable(event.payload), PAYLOAD_CHARACTERS),
            raw=storable(event.raw),
        )
        for offset, event in enumerate(events)
    )
    Change.objects.create(task_id=run.step.task_id, kind=ChangeKind.EVENTS)
    return seq + len(events)


def append_one(run: Run, kind: EventKind, payload: dict[str, Any]) -> None:
    """Store an event behind the others of the run, of which some may be in blocks already."""
    Run.objects.filter(pk=run.pk).exclude(compacted_at=None).update(compacted_at=None)
    append(run, [NewEvent(kind, payload)], seq=run.next_seq())
