"""Storing what happened in a run, in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.utils import timezone

from tasks_app.core.storable import bounded, storable
from tasks_app.models import Change, ChangeKind, Event, EventKind, Run

#: Of one text in what people read; a whole file in a tool's result is cut, its raw message is not.
PAYLOAD_CHARACTERS = 1_000_000


@dataclass(frozen=True)
class NewEvent:
    """An event before it is stored: `payload` is what people read, `raw` what the agent sent."""

    kind: EventKind
    payload: dict[str, Any] = field(default_factory=dict)
    raw: Any = None
    at: datetime = field(default_factory=timezone.now)


def append(run: Run, events: Sequence[NewEvent], *, seq: int) -> int:
    """Store `events` from number `seq` on, with one change notice; the next free number.

    Only the run's one writer may call this: the holder of the lease while the run goes on, and
    whoever locked the task's row afterwards. A second writer fails on the unique (run, seq).
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
    append(run, [NewEvent(kind, payload)], seq=run.next_seq())
