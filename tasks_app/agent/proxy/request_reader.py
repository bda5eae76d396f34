"""Reading a request to the Messages API while it streams by: what it asks for, without holding it. Pure.

The proxy must know the model before the last byte is sent on, wherever in the body it stands, and a body
may have 32 MB. So the JSON is walked through in pieces, and only a few short values are kept.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field

#: Longer strings are not kept: none of the values looked for has as many bytes.
LONGEST_VALUE = 512
DEEPEST = 200

_SPACE = re.compile(rb"[ \t\r\n]*")
_BARE = re.compile(rb"[-+.0-9A-Za-z]+")
# Up to the closing quote or the end of the piece; a backslash at the very end is left for the next piece.
_STRING = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)

_ANY = "*"
#: Parts of a request in which "model" names none: what was said, and what the agent's own tools take.
_ONLY_TEXT = {"messages", "system", "metadata"}
_SCHEMA = "input_schema"
#: Tools that Anthropic runs: with them a request reaches other hosts although the sandbox reaches none.
_SERVER_TOOL = re.compile(r"(web_search|web_fetch|code_execution|mcp_toolset)(_|$)")


class BadRequestBody(ValueError):
    """The body is not one JSON object, or names something twice; the message says what."""


@dataclass
class RequestReader:
    """Feed it the body in pieces, then call `finish`. Both raise BadRequestBody."""

    model: str = ""
    max_tokens: int = 0
    #: Other models that the request may have work on it: an advisor among its tools, or one to fall back to.
    more_models: set[str] = field(default_factory=set)
    #: What would make the API itself reach other hosts: server tools, MCP servers, sources by URL.
    reaches_out: set[str] = field(default_factory=set)
    size: int = 0
    _rest: bytes = b""
    _string: bytearray | None = None
    _too_long: bool = False
    _path: list[str] = field(default_factory=list)
    _kinds: list[str] = field(default_factory=list)
    _expect: str = "value"
    _seen: set[str] = field(default_factory=set)

    def feed(self, piece: bytes) -> None:
        self.size += len(piece)
        self._walk(piece)

    def _walk(self, piece: bytes) -> None:
        data, place = self._rest + piece, 0
        self._rest = b""
        while place < len(data):
            place = (
                self._continue_string(data, place) if self._string is not None else self._token(data, place)
            )

    def finish(self) -> None:
        self._walk(b" ")  # ends a bare value
        if self._expect != "end" or self._string is not None or self._rest.strip():
            raise BadRequestBody("The request is not complete JSON.")

    def _token(self, data: bytes, place: int) -> int:
        place = _end(_SPACE, data, place)
        if place == len(data):
            return place
        sign = data[place : place + 1]
        if sign == b'"':
            self._string, self._too_long = bytearray(), False
            return place + 1
        if sign in b"{}[],:":
            self._sign(sign.decode())
            return place + 1
        return self._bare(data, place)

    def _bare(self, data: bytes, place: int) -> int:
        end = _end(_BARE, data, place)
        if end == place or end - place > LONGEST_VALUE:
            raise BadRequestBody("The request is not JSON in UTF-8.")
        if end == len(data):  # it may go on in the next piece
            self._rest = data[place:]
        else:
            self._value(data[place:end].decode("ascii"), quoted=False)
        return end

    def _continue_string(self, data: bytes, place: int) -> int:
        assert self._string is not None  # noqa: S101 (asked by the caller)
        end = _end(_STRING, data, place)
        if end == len(data) or data[end : end + 1] == b"\\":
            self._keep(data[place:end])
            self._rest = data[end:]
            return len(data)
        self._keep(data[place:end])
        text = "" if self._too_long else _unescaped(bytes(self._string))
        self._string = None
        self._value(text, quoted=True)
        return end + 1

    def _keep(self, part: bytes) -> None:
        assert self._string is not None  # noqa: S101
        self._too_long = self._too_long or len(self._string) + len(part) > LONGEST_VALUE
        if not self._too_long:
            self._string += part

    def _sign(self, sign: str) -> None:
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
        wanted = self._expect in ("value", "value or end")
        if not wanted or (not self._kinds and sign != "{") or len(self._kinds) >= DEEPEST:
            raise BadRequestBody("The request is not one JSON object.")
        self._kinds.append(sign)
        self._path.append(_ANY)
        self._expect = "key or end" if sign == "{" else "value or end"

    def _close(self, sign: str) -> None:
        closes = {"}": "{", "]": "["}[sign]
        if not self._kinds or self._kinds[-1] != closes or self._expect not in ("comma", _or_end(closes)):
            raise BadRequestBody("The request is not well-formed JSON.")
        self._kinds.pop()
        self._path.pop()
        self._expect = "comma" if self._kinds else "end"

    def _value(self, text: str, *, quoted: bool) -> None:
        if quoted and self._expect in ("key", "key or end"):
            self._key(text)
        elif self._expect in ("value", "value or end") and self._kinds:
            self._take(text, quoted=quoted)
            self._expect = "comma"
        else:
            raise BadRequestBody("The request is not well-formed JSON.")

    def _key(self, text: str) -> None:
        self._path[-1] = text
        self._expect = "colon"
        if len(self._path) == 1:
            if text in self._seen:
                raise BadRequestBody(f"The request names {text[:50]!r} twice.")
            self._seen.add(text)
            if text == "mcp_servers":
                self.reaches_out.add("mcp_servers")

    def _take(self, text: str, *, quoted: bool) -> None:
        if self._path == ["model"] and quoted:
            self.model = text
        elif (
            self._path[-1] == "model"
            and quoted
            and self._path[0] not in _ONLY_TEXT
            and _SCHEMA not in self._path
        ):
            self.more_models.add(text)
        elif self._path == ["max_tokens"] and not quoted and text.isdigit():
            self.max_tokens = int(text[:9])
        elif self._path == ["tools", _ANY, "type"] or self._path == ["tools", "type"]:
            self._tool(text)
        elif self._path[-2:] == ["source", "type"] and text == "url":
            self.reaches_out.add("a source by URL")

    def _tool(self, kind: str) -> None:
        if _SERVER_TOOL.match(kind):
            self.reaches_out.add(kind)


def _or_end(kind: str) -> str:
    return "key or end" if kind == "{" else "value or end"


def _end(pattern: re.Pattern[bytes], data: bytes, place: int) -> int:
    found = pattern.match(data, place)
    return found.end() if found else place


def _unescaped(raw: bytes) -> str:
    try:
        text = json.loads('"' + raw.decode("utf-8") + '"', strict=False)
    except ValueError as error:
        raise BadRequestBody("The request holds a string that is not JSON in UTF-8.") from error
    return str(text)
