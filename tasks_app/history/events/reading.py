"""Read events, whether they are rows or in compressed blocks. Every reader of events goes through here.

Compaction moves events of ended runs from rows into blocks, and never back. So rows are read first, then
blocks: an event that moves meanwhile is read twice, and is left out once, but is never missed.

A reader of a part of a log decompresses only the blocks that this part needs, by the ids, kinds and failures
that stand beside the content.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from heapq import heappop, heappush, merge
from itertools import chain, islice
from typing import Any, Self

from django.db import connection
from django.db.models import Exists, Max, OuterRef, Q, QuerySet, TextField
from django.db.models.functions import Cast
from django.utils import timezone

from tasks_app.history.events.blocks import EVERYTHING, OpenBlock, Selection, blocks_with, is_failure
from tasks_app.history.events.lines import question_text, summarise, tool_input
from tasks_app.models import Channel, Event, EventBlock, EventKind, Run, Step
from tasks_app.prompting.replay import PastAction

#: Events read at a time from rows, which limits the memory of a download. Without an open cursor: with one, a
#: slow download would pin SQLite's WAL.
PAGE_SIZE = 100
#: No run is compacted that ended more recently; the setting counts hours.
NEVER_COMPACTED_WITHIN = timedelta(minutes=30)
#: Blocks whose positions in the log are read at once; their contents are read one by one.
_PLACES_AT_ONCE = 200
#: Decompressed blocks that a reader keeps.
_KEPT = 4


def may_be_compacted(ended_at: datetime | None) -> bool:
    """Return whether a run that ended then may have blocks."""
    return ended_at is not None and ended_at < timezone.now() - NEVER_COMPACTED_WITHIN


@dataclass(frozen=True)
class Events:
    """Some events of some runs in the order of their ids, which is the order of time within a task.

    `runs` is a condition on the column `run` of both tables, as in `Q(run__step__task=task)`. `related` is
    what is loaded with each event, `raw` whether its message is. Without `blocks` only rows are read: for
    runs that cannot be compacted yet.
    """

    runs: Q
    selection: Selection = EVERYTHING
    related: str = "run"
    raw: bool = False
    blocks: bool = True
    _open: dict[int, OpenBlock] = field(default_factory=dict, compare=False, repr=False)

    def only(self, selection: Selection) -> Self:
        return replace(self, selection=selection)

    def of_kinds(self, kinds: Collection[str]) -> Self:
        return self.only(Selection.of(kinds))

    def after(self, event_id: int, most: int) -> list[Event]:
        """Return at most `most` of the first events after this id."""
        rows = list(self.rows().filter(pk__gt=event_id).order_by("pk")[:most])
        upto = None
        if len(rows) == most:
            upto = rows[-1].pk + 1
        return self._joined(rows, self._from_blocks(after=event_id, before=upto), most, newest_first=False)

    def before(self, event_id: int | None, most: int) -> list[Event]:
        """Return at most `most` of the last events before this id, or of all, newest first."""
        rows_before = self.rows()
        if event_id is not None:
            rows_before = rows_before.filter(pk__lt=event_id)
        rows = list(rows_before.order_by("-pk")[:most])
        after = 0
        if len(rows) == most:
            after = rows[-1].pk - 1
        found = self._from_blocks(after=after, before=event_id, newest_first=True)
        return self._joined(rows, found, most, newest_first=True)

    def first(self) -> Event | None:
        return next(iter(self.after(0, 1)), None)

    def last(self) -> Event | None:
        return next(iter(self.before(None, 1)), None)

    def get(self, event_id: int) -> Event | None:
        if row := self.rows().filter(pk=event_id).first():
            return row
        return next(self._from_blocks(after=event_id - 1, before=event_id + 1), None)

    def first_with(self, name: str, value: object) -> Event | None:
        """Return the first event whose payload has this value."""
        row = self.rows().filter(**{f"payload__{name}": value}).order_by("pk").first()
        for block, place in self.in_blocks(before=row.pk if row else None):
            if block.payload(place).get(name) == value:
                return block.event(place, raw=self.raw)
        return row

    def any_with(self, name: str, values: Collection[str]) -> bool:
        """Return whether an event has one of these values in its payload."""
        if self.rows().filter(**{f"payload__{name}__in": list(values)}).exists():
            return True
        return any(block.payload(place).get(name) in values for block, place in self.in_blocks())

    def with_payload_ids(self, ids: Collection[str], *, before: int) -> list[Event]:
        """Return the events before this id whose payload has one of the ids: the calls of results."""
        rows = list(self.rows().filter(payload__id__in=list(ids)))
        missing = set(ids) - {row.payload["id"] for row in rows}
        if missing:
            for block, place in self.in_blocks(before=before, newest_first=True):
                text = block.payload_text(place)
                if any(one in text for one in missing) and block.payload(place).get("id") in missing:
                    rows.append(block.event(place, raw=self.raw))
                    missing.discard(rows[-1].payload["id"])
                if not missing:
                    break
        return rows

    def newest_id(self) -> int:
        """Return the highest id of an event of any kind, or 0."""
        row: int | None = Event.objects.filter(self.runs).aggregate(newest=Max("pk"))["newest"]
        block: int | None = EventBlock.objects.filter(self.runs).aggregate(newest=Max("last_id"))["newest"]
        return max(row or 0, block or 0)

    def all(self, *, after: int = 0) -> Iterator[Event]:
        """Yield all events after this id, page by page."""
        while page := self.after(after, PAGE_SIZE):
            yield from page
            if len(page) < PAGE_SIZE:
                return
            after = page[-1].pk

    def of_run(self, run: Run) -> Iterator[Event]:
        """Yield the selected events of one run by their numbers; `runs` does not matter here."""
        rows = run.events.filter(self.selection.rows).order_by("seq")
        if not self.raw:
            rows = rows.defer("raw")
        last = -1
        while True:
            page = list(rows.filter(seq__gt=last)[:PAGE_SIZE])
            block = self._block_of(run, after=last, page=page)
            if block is not None:
                block.run = run
                opened = OpenBlock(block)
                for place in self._selected(opened):
                    if opened.seqs[place] > last:
                        yield opened.event(place, raw=self.raw)
                last = block.last_seq
            elif page:
                yield from page
                last = page[-1].seq
            else:
                return

    def rows(self) -> QuerySet[Event]:
        """Return the selected events that are rows."""
        rows = Event.objects.filter(self.runs, self.selection.rows).select_related(self.related)
        if not self.raw:
            rows = rows.defer("raw")
        return rows.defer("run__prompt")

    def _block_of(self, run: Run, *, after: int, page: list[Event]) -> EventBlock | None:
        """Return the next block of the run, if it comes before the page of rows."""
        if not self.blocks or run.ended_at is None:
            return None
        found = EventBlock.objects.filter(run=run, last_seq__gt=after).order_by("first_seq")
        if page:
            found = found.filter(first_seq__lt=page[0].seq)
        return found.first()

    def _joined(
        self, rows: list[Event], found: Iterator[Event], most: int, *, newest_first: bool
    ) -> list[Event]:
        known = {row.pk for row in rows}
        events = [*rows, *islice((event for event in found if event.pk not in known), most)]
        events.sort(key=lambda event: event.pk, reverse=newest_first)
        return events[:most]

    def _from_blocks(
        self, *, after: int = 0, before: int | None = None, newest_first: bool = False
    ) -> Iterator[Event]:
        """Yield the selected events between these ids that are in blocks, in order."""
        found = self.in_blocks(after=after, before=before, newest_first=newest_first)
        return (block.event(place, raw=self.raw) for block, place in found)

    def in_blocks(
        self, *, after: int = 0, before: int | None = None, newest_first: bool = False
    ) -> Iterator[tuple[OpenBlock, int]]:
        """Yield the selected events between these ids that are in blocks, in order: a block, and where in it.

        Blocks of two runs may overlap, because an answer can be noted in an earlier run than the newest. So
        an event is yielded once no later block can have one before it.
        """
        if not self.blocks:
            return
        sign = -1 if newest_first else 1
        waiting: list[tuple[int, int, OpenBlock]] = []
        for pk, edge in self._places(after, before, newest_first=newest_first):
            while waiting and waiting[0][0] < edge:
                _, place, block = heappop(waiting)
                yield block, place
            opened = self._opened(pk)
            if opened is None:  # its log was just removed
                continue
            for place in self._selected(opened):
                event_id = opened.ids[place]
                if event_id > after and (before is None or event_id < before):
                    heappush(waiting, (sign * event_id, place, opened))
        while waiting:
            _, place, block = heappop(waiting)
            yield block, place

    def _places(self, after: int, before: int | None, *, newest_first: bool) -> Iterator[tuple[int, int]]:
        """Yield the blocks that may have selected events between these ids: their ids, and where they begin.

        Where they begin is their first event in the order that is asked for; backwards, it is negative.
        """
        blocks = EventBlock.objects.filter(self.runs, self.selection.blocks, last_id__gt=after)
        if before is not None:
            blocks = blocks.filter(first_id__lt=before)
        edge, order, sign, next_ones = "first_id", "first_id", 1, "first_id__gt"
        if newest_first:
            edge, order, sign, next_ones = "last_id", "-last_id", -1, "last_id__lt"
        ordered = blocks.order_by(order).values_list("pk", edge)
        found = list(ordered[:_PLACES_AT_ONCE])
        while found:
            yield from ((pk, sign * value) for pk, value in found)
            if len(found) < _PLACES_AT_ONCE:
                return
            found = list(ordered.filter(**{next_ones: found[-1][1]})[:_PLACES_AT_ONCE])

    def _opened(self, pk: int) -> OpenBlock | None:
        if pk not in self._open:
            block = EventBlock.objects.filter(pk=pk).select_related(self.related).defer("run__prompt").first()
            if block is None:
                return None
            while len(self._open) >= _KEPT:
                self._open.pop(next(iter(self._open)))
            self._open[pk] = OpenBlock(block)
        return self._open[pk]

    def _selected(self, block: OpenBlock) -> Iterator[int]:
        """Yield where in the block the selected events are."""
        wanted = self.selection
        for place, kind in enumerate(block.kinds):
            if (
                wanted.has_kind(kind)
                and (not wanted.failures or is_failure(kind, block.payload(place)))
                and (not wanted.from_agent or block.has_raw(place))
            ):
                yield place


def has_events(*kinds: EventKind) -> Q:
    """Return the condition for runs that have an event of these kinds."""
    row = Event.objects.filter(run=OuterRef("pk"), kind__in=kinds)
    block = EventBlock.objects.filter(blocks_with(kinds), run=OuterRef("pk"))
    return Q(Exists(row)) | Q(Exists(block))


def newest_event_id() -> int:
    """Return the highest id of all events, with one query."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT max(newest) FROM (SELECT max(id) AS newest FROM tasks_app_event "
            "UNION ALL SELECT max(last_id) FROM tasks_app_eventblock) AS events"
        )
        return int(cursor.fetchone()[0] or 0)


# Collect what the agent did in a step so far, for a run that cannot resume the session (H9).


#: Call and result of this tool repeat the events of the question and the answer.
_ASK_TOOL = "AskUserQuestion"

_KINDS = (
    EventKind.TEXT,
    EventKind.THINKING,
    EventKind.TOOL_USE,
    EventKind.TOOL_RESULT,
    EventKind.QUESTION,
    EventKind.ANSWER,
    EventKind.NOTE,
)


def past_actions(step: Step) -> list[PastAction]:
    """Return texts, thoughts, tool calls, results, questions and answers of all runs that count.

    Events with a damaged payload are left out, and answers that were taken back.
    """
    calls: dict[str, tuple[str, str]] = {}
    stored = Events(Q(run__step=step)).of_kinds(_KINDS)
    found = [event for run in step.current_runs.order_by("number") for event in stored.of_run(run)]
    events = _without_taken_back([(event.kind, event.payload) for event in found])
    actions = (_to_action(kind, payload, calls) for kind, payload in events)
    return [action for action in actions if action and action.text.strip()]


def _without_taken_back(events: list[tuple[str, object]]) -> list[tuple[str, object]]:
    """Leave out notes, and answers with the number of a later note that says they were taken back."""
    kept: list[tuple[str, object]] = []
    taken_back: set[object] = set()
    for kind, payload in reversed(events):
        match kind, payload:
            case EventKind.NOTE, {"taken_back": number}:
                taken_back.add(number)
            case EventKind.NOTE, _:
                pass
            case EventKind.ANSWER, {"number": number} if number in taken_back:
                taken_back.discard(number)
            case _:
                kept.append((kind, payload))
    return kept[::-1]


def _to_action(kind: str, payload: object, calls: dict[str, tuple[str, str]]) -> PastAction | None:
    """Return one action, or None.

    `calls` maps call ids to tools and a line for each call, for the results that follow: a result names its
    call if another one was made in between.
    """
    if not isinstance(payload, dict):
        return None
    text = str(payload.get("text", ""))
    match EventKind(kind):
        case EventKind.TOOL_USE:
            tool, given = str(payload.get("name", "")), payload.get("input")
            if not isinstance(given, dict):
                given = {}
            calls[str(payload.get("id"))] = tool, summarise(tool, given)
            if tool == _ASK_TOOL:
                return None
            return PastAction("tool", tool_input(payload), tool)
        case EventKind.TOOL_RESULT:
            call = str(payload.get("tool_use_id"))
            tool, line = calls.get(call, ("", ""))
            if tool == _ASK_TOOL:
                return None
            if line and call != next(reversed(calls)):
                tool = f"{tool}: {line}"
            return PastAction("tool", text, f"result of {tool}".rstrip())
        case EventKind.QUESTION:
            return PastAction("tool", question_text(payload), "question")
        case EventKind.ANSWER:
            return _answer_as_action(payload)
    return PastAction("reasoning", text)


def _answer_as_action(payload: dict[str, Any]) -> PastAction:
    text, by = str(payload.get("text", "")), payload.get("by")
    outcome, via = str(payload.get("outcome") or "Answered"), payload.get("via")
    if via == Channel.RULE:
        return PastAction("tool", f"{outcome} by {by}. {text}".strip(), "no answer of a human")
    if outcome != "Answered":
        said = f"{outcome}. {payload.get('notes') or ''}".strip()
        return PastAction("tool", said, "decision of a human")
    if via == Channel.DECISION:
        return PastAction("tool", text, f"answer of {by}")
    return PastAction("tool", text, "answer of a human")


# Find words in events (W2).
#
# It stands apart from the page that searches because it knows how events are stored.


#: Values that no reader sees: they tie a result to its call.
_IDS = frozenset({"id", "tool_use_id"})
#: What JSON writes as it is; everything else may be stored as an escape.
_NOT_PLAIN = re.compile(r"[^ !#-\[\]-~]+")
_ROWS_AT_ONCE = 500


def events_with(events: Events, words: str, *, after: int = 0) -> Iterator[int]:
    """Yield the ids of the later events whose texts contain the words, in order.

    Upper and lower case are the same. The longest part of the words that is stored as it is leaves out most
    events, in the database or before a payload is parsed; names of fields, which every event contains, do not
    count.
    """
    found = _in_blocks(events, words, after=after, before=None, newest_first=False)
    return _both(_in_rows(events, words, after=after, before=None), found)


def last_event_with(events: Events, words: str, *, after: int, before: int | None = None) -> int | None:
    """Return the id of the last of these events, or None."""
    rows = _in_rows(events, words, after=after, before=before, newest_first=True)
    blocks = _in_blocks(events, words, after=after, before=before, newest_first=True)
    found = [event for event in (next(rows, None), next(blocks, None)) if event is not None]
    return max(found, default=None)


def _both(rows: Iterator[int], blocks: Iterator[int]) -> Iterator[int]:
    """Yield the ids of both in order, each once. Rows are read first (see `reading.py`)."""
    first = list(islice(rows, 1))
    last = 0
    for event in merge(chain(first, rows), blocks):
        if event != last:
            yield event
            last = event


def _in_rows(
    events: Events, words: str, *, after: int, before: int | None, newest_first: bool = False
) -> Iterator[int]:
    rows = events.rows().filter(pk__gt=after)
    if before is not None:
        rows = rows.filter(pk__lt=before)
    if plain := _plain_part(words):
        rows = rows.annotate(stored=Cast("payload", TextField())).filter(stored__icontains=plain)
    wanted = words.casefold()
    ordered = rows.order_by("-pk" if newest_first else "pk").select_related(None)
    for pk, payload in ordered.values_list("pk", "payload").iterator(_ROWS_AT_ONCE):
        if any(wanted in text.casefold() for text in _texts(payload)):
            yield pk


def _in_blocks(
    events: Events, words: str, *, after: int, before: int | None, newest_first: bool
) -> Iterator[int]:
    wanted, plain = words.casefold(), _plain_part(words).casefold()
    for block, place in events.in_blocks(after=after, before=before, newest_first=newest_first):
        if plain in block.payload_text(place).lower() and any(
            wanted in text.casefold() for text in _texts(block.payload(place))
        ):
            yield block.ids[place]


def _plain_part(words: str) -> str:
    return max(_NOT_PLAIN.split(words), key=len)


def _texts(value: object) -> Iterator[str]:
    """Yield the texts in a payload, however deep they are."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, part in value.items():
            if name not in _IDS:
                yield from _texts(part)
    elif isinstance(value, list):
        for part in value:
            yield from _texts(part)
