"""Read events, whether they are rows or in compressed blocks. Every reader of events goes through here.

Compaction moves events of ended runs from rows into blocks, and never back. So rows are read first, then
blocks: an event that moves meanwhile is read twice, and is left out once, but is never missed.

A reader of a part of a log decompresses only the blocks that this part needs, by the ids, kinds and failures
that stand beside the content.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from heapq import heappop, heappush
from itertools import islice
from typing import Self

from django.db import connection
from django.db.models import Exists, Max, OuterRef, Q, QuerySet
from django.utils import timezone

from tasks_app.history.events.blocks import OpenBlock
from tasks_app.history.events.selection import EVERYTHING, Selection, blocks_with, is_failure
from tasks_app.models import Event, EventBlock, EventKind, Run

#: Events read at a time from rows, which limits the memory of a download. Without an open cursor: with one, a
#: slow download would pin SQLite's WAL.
PAGE_SIZE = 100
#: No run is compacted that ended more recently; the setting counts hours.
NEVER_COMPACTED_WITHIN = timedelta(minutes=30)
#: Blocks of which is read at once where they are in the log; their contents are read one by one.
_PLACES_AT_ONCE = 200
#: Decompressed blocks that a reader keeps.
_KEPT = 4


def may_be_compacted(ended_at: datetime | None) -> bool:
    """Return whether a run that ended then may have blocks."""
    return ended_at is not None and ended_at < timezone.now() - NEVER_COMPACTED_WITHIN


@dataclass(frozen=True)
class Events:
    """Some events of some runs, in the order of their ids, which is that of time within a task.

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
        """Return the first events after this id, at most so many."""
        rows = list(self.rows().filter(pk__gt=event_id).order_by("pk")[:most])
        upto = rows[-1].pk + 1 if len(rows) == most else None
        return self._joined(rows, self._from_blocks(after=event_id, before=upto), most, newest_first=False)

    def before(self, event_id: int | None, most: int) -> list[Event]:
        """Return the last events before this id, or the last of all, newest first, at most so many."""
        rows_before = self.rows() if event_id is None else self.rows().filter(pk__lt=event_id)
        rows = list(rows_before.order_by("-pk")[:most])
        after = rows[-1].pk - 1 if len(rows) == most else 0
        found = self._from_blocks(after=after, before=event_id, newest_first=True)
        return self._joined(rows, found, most, newest_first=True)

    def first(self) -> Event | None:
        return next(iter(self.after(0, 1)), None)

    def last(self) -> Event | None:
        return next(iter(self.before(None, 1)), None)

    def get(self, event_id: int) -> Event | None:
        """Return the event with this id, or None."""
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
            after = page[-1].pk

    def of_run(self, run: Run) -> Iterator[Event]:
        """Yield the selected events of one run by their numbers; `runs` does not matter here."""
        last = -1
        while True:
            page = list(self._rows_of(run).filter(seq__gt=last)[:PAGE_SIZE])
            block = self._block_of(run, after=last, before=page[0].seq if page else None)
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
        return rows.defer("run__prompt") if self.raw else rows.defer("raw", "run__prompt")

    def _rows_of(self, run: Run) -> QuerySet[Event]:
        rows = run.events.filter(self.selection.rows).order_by("seq")
        return rows if self.raw else rows.defer("raw")

    def _block_of(self, run: Run, *, after: int, before: int | None) -> EventBlock | None:
        if not self.blocks or run.ended_at is None:
            return None
        found = EventBlock.objects.filter(run=run, last_seq__gt=after).order_by("first_seq")
        return (found if before is None else found.filter(first_seq__lt=before)).first()

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
        edge, sign, next_ones = (
            ("last_id", -1, "last_id__lt") if newest_first else ("first_id", 1, "first_id__gt")
        )
        ordered = blocks.order_by("-last_id" if newest_first else "first_id").values_list("pk", edge)
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
