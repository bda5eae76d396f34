"""Reading the usage from a response of the Messages API while it is passed on. No I/O."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

#: A longer line, or a longer complete message, is not parsed: its request counts with an estimate.
LONGEST = 8 * 1024 * 1024
#: Bytes around the text in a stream's event with a piece of text.
_ENVELOPE = 110


class ResponseReader:
    """Takes the body in pieces. `usage` is the usage that the response reported, None before that.

    `received_tokens` estimates the output so far, for a stream that is cut before it reports its usage.
    """

    def __init__(self, content_type: str) -> None:
        self.model = ""
        self.received_tokens = 0
        self.usage: dict[str, Any] | None = None
        #: Whether the numbers are final: in a stream they are in its `message_delta`.
        self.complete = False
        self._streamed = content_type.startswith("text/event-stream")
        self._rest = bytearray()
        self._skipping = False

    def feed(self, piece: bytes) -> None:
        if not self._streamed:
            self._collect(piece)
            return
        *lines, rest = piece.split(b"\n")
        for line in lines:
            self._collect(line)
            if not self._skipping:
                self._read_line(bytes(self._rest))
            self._rest.clear()
            self._skipping = False
        self._collect(rest)

    def finish(self) -> None:
        """Read a message that is not a stream, after the response has ended in order."""
        if not self._streamed and not self._skipping:
            message = _parse_object(bytes(self._rest))
            self._update(message.get("usage"), message.get("model"))
            self.complete = self.usage is not None

    def _collect(self, piece: bytes) -> None:
        self._skipping = self._skipping or len(self._rest) + len(piece) > LONGEST
        if self._skipping:
            self._rest.clear()
        else:
            self._rest += piece

    def _read_line(self, line: bytes) -> None:
        if not line.startswith(b"data:"):
            return
        if b'"content_block_delta"' in line:
            self.received_tokens += max(1, (len(line) - _ENVELOPE) // 3)
        elif b'"usage"' in line:
            self._read_event(_parse_object(line[5:]))

    def _read_event(self, event: Mapping[str, Any]) -> None:
        if event.get("type") == "message_start" and isinstance(event.get("message"), dict):
            self._update(event["message"].get("usage"), event["message"].get("model"))
        elif event.get("type") == "message_delta":
            self._update(event.get("usage"), None)
            self.complete = True

    def _update(self, usage: Any, model: Any) -> None:
        """Merge reported numbers: in a stream they are totals, and later ones may omit unchanged values."""
        if isinstance(usage, dict):
            reported = {name: value for name, value in usage.items() if value is not None}
            self.usage = {**(self.usage or {}), **reported}
        if isinstance(model, str):
            self.model = model


def _parse_object(text: bytes) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
