"""What agents and repositories wrote, made harmless for places where it is read outside. Pure functions."""

from __future__ import annotations

import re

from tasks_app.core.control_characters import strip_controls

_JOINER = "\u2060"
#: What chat services read as a mention, a link or markup, and the same with nothing to read in it.
_ACTIVE = [
    (re.compile("@"), f"@{_JOINER}"),
    (re.compile("<"), "‹"),
    (re.compile(">"), "›"),
    (re.compile("://"), f":{_JOINER}//"),
    (re.compile(r"\]\("), f"]{_JOINER}("),
    (re.compile(r"(?<=\w)\.(?=\w)"), f".{_JOINER}"),
    (re.compile("([*_~`|])"), rf"{_JOINER}\1{_JOINER}"),
]


def one_line(text: str, limit: int) -> str:
    """The text in one line of at most `limit` characters, without what cannot be seen."""
    return cut(strip_controls(text[: 4 * limit], one_line=True), limit)


def lines(text: str, limit: int) -> list[str]:
    """The same, line by line; `limit` for all of them."""
    found = [one_line(line, limit) for line in cut(text, limit).splitlines()]
    return [line for line in found if line]


def cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


def inert(text: str) -> str:
    """For chat services: nobody is called, nothing is a link, nothing is markup."""
    for pattern, instead in _ACTIVE:
        text = pattern.sub(instead, text)
    return text.lstrip("#-+/!")
