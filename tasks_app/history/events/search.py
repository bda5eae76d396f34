"""Find words in events (W2).

It stands apart from the page that searches because it knows how events are stored.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from django.db.models import QuerySet, TextField
from django.db.models.functions import Cast

from tasks_app.models import Event

#: Values that no reader sees: they tie a result to its call.
_IDS = frozenset({"id", "tool_use_id"})
#: What JSON writes as it is; everything else may be stored as an escape.
_NOT_PLAIN = re.compile(r"[^ !#-\[\]-~]+")
_ROWS_AT_ONCE = 500


def events_with(events: QuerySet[Event], words: str) -> Iterator[int]:
    """Yield the ids of those events whose texts contain the words, in the order of `events`.

    Upper and lower case are the same. The database leaves out most events by the longest part of the words
    that it stores as it is; names of fields, which every event contains, do not count.
    """
    wanted = words.casefold()
    plain = max(_NOT_PLAIN.split(words), key=len)
    if plain:
        events = events.annotate(stored=Cast("payload", TextField())).filter(stored__icontains=plain)
    for pk, payload in events.values_list("pk", "payload").iterator(_ROWS_AT_ONCE):
        if any(wanted in text.casefold() for text in _texts(payload)):
            yield pk


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
