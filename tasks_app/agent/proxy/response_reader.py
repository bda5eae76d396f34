"""Reading a response of the Messages API while it streams by: what it used. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

#: A longer line, or a longer whole message, is not looked into: its request counts as much as it can cost.
LONGEST = 8 * 1024 * 1024
#: Bytes around the text in an event of a stream that carries a piece of it.
_ENVELOPE = 110


class ResponseReader:
    """Feed it the body in pieces. `usage` is what the response says that it used, None until it does.

    `received_tokens` estimates the output that came so far, for a stream that is cut before it says so.
    """

    def __init__(self, content_type: str) -> None:
        self.model = ""
        self.received_tokens = 0
        self.usage: dict[str, Any] | None = None
        #: Whether the numbers are final: of a stream, those of its `message_delta`.
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
                self._line(bytes(self._rest))
            self._rest.clear()
            self._skipping = False
        self._collect(rest)

    def finish(self) -> None:
        """The response has ended well: a whole message can be read now."""
        if not self._streamed and not self._skipping:
            message = _object(bytes(self._rest))
            self._take(message.get("usage"), message.get("model"))
            self.complete = self.usage is not None

    def _collect(self, piece: bytes) -> None:
        self._skipping = self._skipping or len(self._rest) + len(piece) > LONGEST
        if self._skipping:
            self._rest.clear()
        else:
            self._rest += piece

    def _line(self, line: bytes) -> None:
        if not line.startswith(b"data:"):
            return
        if b'"content_block_delta"' in line:
            self.received_tokens += max(1, (len(line) - _ENVELOPE) // 3)
        elif b'"usage"' in line:
            self._event(_object(line[5:]))

    def _event(self, event: Mapping[str, Any]) -> None:
        if event.get("type") == "message_start" and isinstance(event.get("message"), dict):
            self._take(event["message"].get("usage"), event["message"].get("model"))
        elif event.get("type") == "message_delta":
            self._take(event.get("usage"), None)
            self.complete = True

    def _take(self, usage: Any, model: Any) -> None:
        """The numbers of a stream are totals, and later ones may leave out what has not changed."""
        if isinstance(usage, dict):
            said = {name: value for name, value in usage.items() if value is not None}
            self.usage = {**(self.usage or {}), **said}
        if isinstance(model, str):
            self.model = model


def _object(text: bytes) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
