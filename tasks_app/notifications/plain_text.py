"""Make texts of agents and repositories safe for e-mail and chat."""

from __future__ import annotations

import re

from tasks_app.core.text import strip_controls

_JOINER = "\u2060"
#: Mentions, links and markup of chat services, with harmless replacements.
_MARKUP = [
    (re.compile("@"), f"@{_JOINER}"),
    (re.compile("<"), "‹"),
    (re.compile(">"), "›"),
    (re.compile("://"), f":{_JOINER}//"),
    (re.compile(r"\]\("), f"]{_JOINER}("),
    (re.compile(r"(?<=\w)\.(?=\w)"), f".{_JOINER}"),
    (re.compile("([*_~`|])"), rf"{_JOINER}\1{_JOINER}"),
]


def one_line(text: str, limit: int) -> str:
    """Return the text in one line of at most `limit` characters, without invisible characters."""
    return truncate(strip_controls(text[: 4 * limit], one_line=True), limit)


def to_lines(text: str, limit: int) -> list[str]:
    """Return the lines of a text of at most `limit` characters, without invisible characters."""
    found = [one_line(line, limit) for line in truncate(text, limit).splitlines()]
    return [line for line in found if line]


def truncate(text: str, limit: int) -> str:
    """Shorten the text to `limit` characters, with “…” at the end if something was left out."""
    if len(text) <= limit:
        return text
    return text[: limit - 1].rstrip() + "…"


def neutralise_markup(text: str) -> str:
    """Neutralise mentions, links and markup of chat services."""
    for pattern, instead in _MARKUP:
        text = pattern.sub(instead, text)
    return text.lstrip("#-+/!")
