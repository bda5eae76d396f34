"""The format of blocks of compressed events (see `models/event_block.py`).

A block is text, compressed by zlib. The first line is a JSON object with ids, numbers, kinds and times; then
each event has two lines, its payload and its raw message (empty if there is none). The two stand side by side
because the message mostly repeats the payload, which compression finds only close by.
"""

from __future__ import annotations

import json
import zlib
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

from tasks_app.history.events.selection import is_failure
from tasks_app.models import Event, EventBlock, Run

#: A block has at most so many events, and ends with the event that takes it over so many characters.
MOST_EVENTS = 500
MOST_CHARACTERS = 1_000_000
_LEVEL = 6
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def make_block(run: Run, events: Iterable[Event]) -> EventBlock | None:
    """Return a block, which is not stored yet, of as many of the first events as it may have.

    The events are those of the run from the first row on, in the order of their numbers. None for no events.
    """
    taken: list[Event] = []
    lines: list[str] = []
    size = 0
    for event in islice(events, MOST_EVENTS):
        payload, raw = _json(event.payload), "" if event.raw is None else _json(event.raw)
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
