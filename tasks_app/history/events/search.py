"""Find words in events (W2).

It stands apart from the page that searches because it knows how events are stored.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from heapq import merge
from itertools import chain

from django.db.models import TextField
from django.db.models.functions import Cast

from tasks_app.history.events.reading import Events

#: Values that no reader sees: they tie a result to its call.
_IDS = frozenset({"id", "tool_use_id"})
#: What JSON writes as it is; everything else may be stored as an escape.
_NOT_PLAIN = re.compile(r"[^ !#-\[\]-~]+")
_ROWS_AT_ONCE = 500


def events_with(events: Events, words: str, *, after: int = 0, before: int | None = None) -> Iterator[int]:
    """Yield the ids of those events between two ids whose texts contain the words, in order.

    Upper and lower case are the same. The longest part of the words that is stored as it is leaves out most
    events, in the database or before a payload is parsed; names of fields, which every event contains, do not
    count.
    """
    found = _in_blocks(events, words, after=after, before=before, newest_first=False)
    return _both(_in_rows(events, words, after=after, before=before), found)


def last_event_with(events: Events, words: str, *, after: int, before: int | None = None) -> int | None:
    """Return the id of the last of these events, or None."""
    rows = _in_rows(events, words, after=after, before=before, newest_first=True)
    blocks = _in_blocks(events, words, after=after, before=before, newest_first=True)
    found = [event for event in (next(rows, None), next(blocks, None)) if event is not None]
    return max(found, default=None)


def _both(rows: Iterator[int], blocks: Iterator[int]) -> Iterator[int]:
    """Yield the ids of both in order, each once. Rows are read first (see `reading.py`)."""
    first = next(rows, None)
    known = [first] if first is not None else []
    last = 0
    for event in merge(chain(known, rows), blocks):
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
