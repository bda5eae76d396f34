"""JSON with the positions of its parts, and inserting a member without changing the rest."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from tasks_app.config.faults import ConfigInvalid, Problem
from tasks_app.core.storable import storable

_BLANK = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()
_DEFAULT_INDENT = "  "


@dataclass(frozen=True)
class Span:
    """A member of an object, or an item of an array (then `key` is None), by its places in the text.

    It begins at `begin`, its value goes from `start` to `end`.
    """

    key: str | None
    begin: int
    start: int
    end: int


def read_json(text: str, *, where: str) -> object:
    """The value of a JSON text, with texts that can be shown. Raises ConfigInvalid with the line on which it
    stops being JSON.
    """
    try:
        value: object = json.loads(text.removeprefix("\ufeff"))
    except json.JSONDecodeError as fault:
        problem = Problem(fault.lineno, "", f"this is not JSON: {fault.msg.lower()} (column {fault.colno})")
        raise ConfigInvalid([problem], where=where) from fault
    except RecursionError:
        problem = Problem(None, "", "this is nested too deeply")
        raise ConfigInvalid([problem], where=where) from None
    except ValueError:
        problem = Problem(None, "", "this has a number that is too long")
        raise ConfigInvalid([problem], where=where) from None
    return storable(value)


def top(text: str) -> int:
    """Return where the outermost value begins."""
    return _skip(text, 1 if text.startswith("\ufeff") else 0)


def spans(text: str, at: int) -> list[Span]:
    """Return the members or items of the object or array whose bracket is at `at`; the text must be JSON."""
    found = []
    position = _skip(text, at + 1)
    while text[position] not in "]}":
        key, begin = None, position
        if text[at] == "{":
            key, position = _DECODER.raw_decode(text, position)
            position = _skip(text, _skip(text, position) + 1)
        _, end = _DECODER.raw_decode(text, position)
        found.append(Span(key, begin, position, end))
        position = _skip(text, end)
        if text[position] == ",":
            position = _skip(text, position + 1)
    return found


def member(text: str, at: int, key: str) -> Span | None:
    """Return the member that counts: the last one of that name, as every reader of JSON has it."""
    return next((span for span in reversed(spans(text, at)) if span.key == key), None)


def line_of(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1


def with_added(text: str, at: int, value: object, *, key: str | None = None) -> str:
    """The text with one more member (or item, without `key`) at the end of the object or array at `at`.

    It is laid out as its neighbours are: on a line of its own with their indentation, or beside them.
    """
    present = spans(text, at)
    gap = text[at + 1 : present[0].begin] if present else _outer(text, at) + _unit(text)
    words = _member_text(value, key=key, indent=_unit(text) if "\n" in gap else None)
    words = words.replace("\n", gap if "\n" in gap else " ")
    if not present:
        close = _skip(text, at + 1)
        return text[: at + 1] + gap + words + _outer(text, at) + text[close:]
    last = present[-1].end
    return text[:last] + "," + (gap or " ") + words + text[last:]


def _member_text(value: object, *, key: str | None, indent: str | None) -> str:
    words = json.dumps(value, ensure_ascii=False, indent=indent)
    return words if key is None else f"{json.dumps(key, ensure_ascii=False)}: {words}"


def _outer(text: str, at: int) -> str:
    """A line end and the indentation of the line in which `at` is."""
    before = text[text.rfind("\n", 0, at) + 1 : at].removeprefix("\ufeff")
    line_end = "\r\n" if "\r\n" in text else "\n"
    return line_end + before[: len(before) - len(before.lstrip(" \t"))]


def _unit(text: str) -> str:
    """One level of indentation, as the outermost object has it."""
    present = spans(text, top(text))
    gap = text[top(text) + 1 : present[0].begin] if present else ""
    return gap.rsplit("\n", 1)[1] if "\n" in gap and not gap.endswith("\n") else _DEFAULT_INDENT


def _skip(text: str, position: int) -> int:
    match = _BLANK.match(text, position)
    return match.end() if match else position
