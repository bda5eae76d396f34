"""Events are stored: as rows of a run in progress, and as compressed blocks of an ended one."""

from __future__ import annotations

import json
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

from django.db.models import Max, Q
from django.utils import timezone

from tasks_app.core.text import bounded, storable
from tasks_app.core.types import Json
from tasks_app.models import Change, ChangeKind, Event, EventBlock, EventKind, Question, Run


def question_payload(question: Question) -> dict[str, Json]:
    """Return the payload of the event that shows the question in the log."""
    return {
        "number": question.number,
        "question_id": question.pk,
        "kind": question.kind,
        "question": question.headline,
        "items": question.items,
        "way": question.way,
        "evidence": question.evidence,
    }


# Append events to a run.


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
    last: int | None = run.events.aggregate(last=Max("seq"))["last"]
    if last is None:  # they are all in blocks; from now on it is to be compacted again
        Run.objects.filter(pk=run.pk).update(compacted_at=None)
        last = run.next_seq() - 1
    append(run, [NewEvent(kind, payload)], seq=last + 1)


# The format of blocks of compressed events (see `models/run.py`).
#
# A block is text, compressed by zlib. The first line is a JSON object with ids, numbers, kinds and times;
# then each event has two lines, its payload and its raw message (empty if there is none). The two stand side
# by side because the message mostly repeats the payload, which compression finds only close by.


#: Maximum events of a block; and the number of characters after which it ends with the current event.
MOST_EVENTS = 500
MOST_CHARACTERS = 1_000_000
_LEVEL = 6
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def make_block(run: Run, events: Iterable[Event]) -> EventBlock | None:
    """Return an unsaved block of the first events, up to the maximum size.

    The events are those of the run from the first row on, in the order of their numbers. None for no events.
    """
    taken: list[Event] = []
    lines: list[str] = []
    size = 0
    for event in islice(events, MOST_EVENTS):
        payload, raw = _json(event.payload), ""
        if event.raw is not None:
            raw = _json(event.raw)
        lines += [payload, raw]
        event.raw = None  # they may be large
        taken.append(event)
        size += len(payload) + len(raw)
        if size > MOST_CHARACTERS:
            break
    if not taken:
        return None
    ids = [event.pk for event in taken]
    head = {
        "ids": ids,
        "seqs": [event.seq for event in taken],
        "kinds": [event.kind for event in taken],
        "times": [(event.at - _EPOCH) // _MICROSECOND for event in taken],
    }
    text = "\n".join([_json(head), *lines])
    return EventBlock(
        run=run,
        first_seq=taken[0].seq,
        last_seq=taken[-1].seq,
        first_id=min(ids),
        last_id=max(ids),
        kinds=Counter(event.kind for event in taken),
        failures=sum(is_failure(event.kind, event.payload) for event in taken),
        content=zlib.compress(text.encode(errors="surrogatepass"), _LEVEL),
    )


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


class OpenBlock:
    """A block that was decompressed. Each event is parsed when it is asked for."""

    def __init__(self, block: EventBlock) -> None:
        self._block = block
        text = zlib.decompress(bytes(block.content)).decode(errors="surrogatepass")
        head, *self._lines = text.split("\n")
        parsed = json.loads(head)
        self.ids: list[int] = parsed["ids"]
        self.seqs: list[int] = parsed["seqs"]
        self.kinds: list[str] = parsed["kinds"]
        self._times: list[int] = parsed["times"]

    def payload(self, place: int) -> Any:
        return json.loads(self.payload_text(place))

    def payload_text(self, place: int) -> str:
        """Return the payload as JSON."""
        return self._lines[2 * place]

    def has_raw(self, place: int) -> bool:
        return bool(self._lines[2 * place + 1])

    def event(self, place: int, *, raw: bool) -> Event:
        """Return an event as the database would; without `raw`, its message cannot be asked for."""
        values = {
            "id": self.ids[place],
            "run_id": self._block.run_id,
            "seq": self.seqs[place],
            "kind": self.kinds[place],
            "at": _EPOCH + self._times[place] * _MICROSECOND,
            "payload": self.payload(place),
        }
        if raw:
            stored = self._lines[2 * place + 1]
            values["raw"] = json.loads(stored) if stored else None
        event = Event.from_db(self._block._state.db, list(values), list(values.values()))
        event.run = self._block.run
        return event


# Which events a reader wants: the same condition for rows, for blocks and for the events in them.


_FAILED_ROWS = (
    Q(kind=EventKind.ERROR)
    | Q(kind=EventKind.CHECK, payload__passed=False)
    | Q(kind=EventKind.RESULT, payload__is_error=True)
    | Q(kind=EventKind.TOOL_RESULT, payload__is_error=True, payload__turned_down__isnull=True)
)


def is_failure(kind: str, payload: object) -> bool:
    """Return what `_FAILED_ROWS` asks the database."""
    match kind, payload:
        case EventKind.ERROR, _:
            return True
        case EventKind.CHECK, {"passed": False}:
            return True
        case EventKind.TOOL_RESULT, {"is_error": True, "turned_down": _}:
            return False
        case EventKind.RESULT | EventKind.TOOL_RESULT, {"is_error": True}:
            return True
    return False


@dataclass(frozen=True)
class Selection:
    """Events of some kinds (None: of all), only failures, or only those that came from the agent process."""

    kinds: frozenset[str] | None = None
    failures: bool = False
    from_agent: bool = False

    @classmethod
    def of(cls, kinds: Collection[str]) -> Selection:
        return cls(frozenset(kinds))

    @property
    def rows(self) -> Q:
        """The condition for rows of events."""
        found = Q()
        if self.kinds is not None:
            found &= Q(kind__in=self.kinds)
        if self.failures:
            found &= _FAILED_ROWS
        if self.from_agent:
            found &= Q(raw__isnull=False)
        return found

    @property
    def blocks(self) -> Q:
        """The condition for blocks that may contain such events."""
        found = Q()
        if self.kinds is not None:
            found &= blocks_with(self.kinds)
        if self.failures:
            found &= Q(failures__gt=0)
        return found

    def has_kind(self, kind: str) -> bool:
        return self.kinds is None or kind in self.kinds


def blocks_with(kinds: Collection[str]) -> Q:
    """Return the condition for blocks with events of these kinds. Django writes no valid SQL for no key."""
    if not kinds:
        return Q(pk__in=[])
    return Q(kinds__has_any_keys=sorted(kinds))


EVERYTHING = Selection()
FAILURES = Selection(failures=True)
