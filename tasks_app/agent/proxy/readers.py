"""Reading a request to the Messages API while it is passed on, without holding it. No I/O.

The proxy must know the model, wherever it stands in the body, before the last byte is sent on, and a body may
have 32 MB. So the JSON is parsed in pieces, and only a few short values are kept.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from tasks_app.agent.tools import was_broken_off

#: Longer strings are not kept: none of the needed values has as many bytes.
LONGEST_VALUE = 512
DEEPEST = 200

_SPACE = re.compile(rb"[ \t\r\n]*")
_WHOLE_NUMBER = re.compile(r"[0-9]{1,9}")
_UNQUOTED = re.compile(rb"[-+.0-9A-Za-z]+")
# Up to the closing quote or the end of the piece; a backslash at its very end is left for the next piece.
_STRING = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)

#: What may follow an opening sign.
_FIRST_EXPECTED = {"{": "key or end", "[": "value or end"}

_ANY = "*"
#: Parts of a request in which "model" names no model: the conversation, and the schemas of the agent's tools.
_ONLY_TEXT = {"messages", "system", "metadata"}
_SCHEMA = "input_schema"
#: The path of a block of a message.
_BLOCK = ["messages", _ANY, "content", _ANY]
#: Tools that Anthropic runs: through them a request reaches other hosts although the sandbox cannot.
_SERVER_TOOL = re.compile(r"(web_search|web_fetch|code_execution|mcp_toolset)(_|$)")


class BadRequestBody(ValueError):
    """The body is not one JSON object, or has a key twice; the message says which."""


@dataclass
class RequestReader:
    """Takes the body in pieces by `feed`, then needs `finish`. Both raise BadRequestBody.

    `calls` are tool_use_ids to look for: `made` are those that a message holds, `answered` those that have a
    result, which is not the program's own notice that there is none.
    """

    calls: Collection[str] = ()
    made: set[str] = field(default_factory=set)
    answered: set[str] = field(default_factory=set)
    offers_tools: bool = False
    model: str = ""
    max_tokens: int = 0
    #: Other models that may work on the request: an advisor among its tools, or a fallback.
    more_models: set[str] = field(default_factory=set)
    #: Parts that make the API itself reach other hosts: server tools, MCP servers, sources by URL.
    reaches_out: set[str] = field(default_factory=set)
    size: int = 0
    _rest: bytes = b""
    _string: bytearray | None = None
    _too_long: bool = False
    _path: list[str] = field(default_factory=list)
    _kinds: list[str] = field(default_factory=list)
    _expect: str = "value"
    _seen: set[str] = field(default_factory=set)
    _result_of: str = ""
    _has_result: bool = True

    def feed(self, piece: bytes) -> None:
        self.size += len(piece)
        self._parse(piece)

    def _parse(self, piece: bytes) -> None:
        data, at = self._rest + piece, 0
        self._rest = b""
        while at < len(data):
            at = self._read_string(data, at) if self._string is not None else self._read_token(data, at)

    def finish(self) -> None:
        self._parse(b" ")  # ends an unquoted value
        if self._expect != "end" or self._string is not None or self._rest.strip():
            raise BadRequestBody("The request is not complete JSON.")

    def _read_token(self, data: bytes, at: int) -> int:
        at = _end_of_match(_SPACE, data, at)
        if at == len(data):
            return at
        sign = data[at : at + 1]
        if sign == b'"':
            self._string, self._too_long = bytearray(), False
            return at + 1
        if sign in b"{}[],:":
            self._handle_sign(sign.decode())
            return at + 1
        return self._read_unquoted(data, at)

    def _read_unquoted(self, data: bytes, at: int) -> int:
        end = _end_of_match(_UNQUOTED, data, at)
        if end == at or end - at > LONGEST_VALUE:
            raise BadRequestBody("The request is not JSON in UTF-8.")
        if end == len(data):  # the value may go on in the next piece
            self._rest = data[at:]
        else:
            self._handle_value(data[at:end].decode("ascii"), quoted=False)
        return end

    def _read_string(self, data: bytes, at: int) -> int:
        assert self._string is not None  # noqa: S101 (checked by the caller)
        end = _end_of_match(_STRING, data, at)
        self._too_long = self._too_long or len(self._string) + end - at > LONGEST_VALUE
        if not self._too_long:
            self._string += data[at:end]
        if end == len(data) or data[end : end + 1] == b"\\":
            self._rest = data[end:]
            return len(data)
        text = "" if self._too_long else _unescape(bytes(self._string))
        self._string = None
        self._handle_value(text, quoted=True)
        return end + 1

    def _handle_sign(self, sign: str) -> None:
        if sign in "{[":
            self._open(sign)
        elif sign in "}]":
            self._close(sign)
        elif sign == ":" and self._expect == "colon":
            self._expect = "value"
        elif sign == "," and self._expect == "comma":
            self._expect = "key" if self._kinds[-1] == "{" else "value"
        else:
            raise BadRequestBody("The request is not well-formed JSON.")

    def _open(self, sign: str) -> None:
        is_expected = self._expect in ("value", "value or end")
        if not is_expected or (not self._kinds and sign != "{") or len(self._kinds) >= DEEPEST:
            raise BadRequestBody("The request is not one JSON object.")
        if self._path == _BLOCK:
            self._result_of, self._has_result = "", True
        # A tool of the API itself has none: with such a request the program carries out its own WebSearch.
        self.offers_tools = self.offers_tools or self._path == ["tools", _ANY, "input_schema"]
        self._kinds.append(sign)
        self._path.append(_ANY)
        self._expect = _FIRST_EXPECTED[sign]

    def _close(self, sign: str) -> None:
        opening = {"}": "{", "]": "["}[sign]
        may_close = self._expect in ("comma", _FIRST_EXPECTED[opening])
        if not self._kinds or self._kinds[-1] != opening or not may_close:
            raise BadRequestBody("The request is not well-formed JSON.")
        self._kinds.pop()
        self._path.pop()
        if self._path == _BLOCK and self._result_of and self._has_result:
            self.answered.add(self._result_of)
        self._expect = "comma" if self._kinds else "end"

    def _handle_value(self, text: str, *, quoted: bool) -> None:
        if quoted and self._expect in ("key", "key or end"):
            self._handle_key(text)
        elif self._expect in ("value", "value or end") and self._kinds:
            self._store_value(text, quoted=quoted)
            self._expect = "comma"
        else:
            raise BadRequestBody("The request is not well-formed JSON.")

    def _handle_key(self, text: str) -> None:
        self._path[-1] = text
        self._expect = "colon"
        if len(self._path) == 1:
            if text in self._seen:
                raise BadRequestBody(f"The request names {text[:50]!r} twice.")
            self._seen.add(text)
            if text == "mcp_servers":
                self.reaches_out.add("mcp_servers")

    def _store_value(self, text: str, *, quoted: bool) -> None:
        if self._path == ["model"] and quoted:
            self.model = text
        elif (
            self._path[-1] == "model"
            and quoted
            and self._path[0] not in _ONLY_TEXT
            and _SCHEMA not in self._path
        ):
            self.more_models.add(text)
        elif self._path == ["max_tokens"]:
            if quoted or not _WHOLE_NUMBER.fullmatch(text):  # it could not be reserved
                raise BadRequestBody("`max_tokens` must be a whole number.")
            self.max_tokens = int(text)
        elif self._path == ["tools", _ANY, "type"] or self._path == ["tools", "type"]:
            if _SERVER_TOOL.match(text):
                self.reaches_out.add(text)
        elif self._path[-2:] == ["source", "type"] and text == "url":
            self.reaches_out.add("a source by URL")
        elif self.calls and quoted and self._path[:4] == _BLOCK:
            self._read_block(self._path[4:], text)

    def _read_block(self, path: list[str], text: str) -> None:
        """Read a text of a block of a message. A text that is too long is not a notice of the program."""
        if path == ["id"] and text in self.calls:
            self.made.add(text)
        elif path == ["tool_use_id"] and text in self.calls:
            self._result_of = text
        elif path in (["content"], ["content", _ANY, "text"]) and was_broken_off(text):
            self._has_result = False


def _end_of_match(pattern: re.Pattern[bytes], data: bytes, at: int) -> int:
    found = pattern.match(data, at)
    return found.end() if found else at


def _unescape(raw: bytes) -> str:
    try:
        text = json.loads('"' + raw.decode("utf-8") + '"', strict=False)
    except ValueError as error:
        raise BadRequestBody("The request holds a string that is not JSON in UTF-8.") from error
    return str(text)


# Reading the usage from a response of the Messages API while it is passed on. No I/O.


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
