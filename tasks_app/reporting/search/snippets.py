"""Snippets of texts for search results, with the matching words marked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tasks_app.reporting.search.words import WORD, Query

#: Characters before the first match.
_BEFORE = 60
#: Characters before and after the first match that are rendered as Markdown.
_MARKDOWN_BEFORE, _MARKDOWN_AFTER = 400, 800


@dataclass(frozen=True)
class TextPart:
    """A piece of a text; `hit`: whether it is a matching word."""

    text: str
    hit: bool = False


def mark_hits(text: str, query: Query) -> list[TextPart]:
    """Return the whole text in parts, with matching words marked."""
    return list(_split_at_hits(text, query))


def snippet(text: str, query: Query, *, length: int = 200) -> list[TextPart]:
    """Return about `length` characters around the first match in one line; empty without a match."""
    line = " ".join(text.split())
    first = _first_match(line, query)
    if first is None:
        return []
    start = _next_word_start(line, max(0, first - _BEFORE)) if first > _BEFORE else 0
    cut = line[start : start + length]
    before, after = "… " if start else "", " …" if start + length < len(line) else ""
    return [TextPart(before), *_split_at_hits(cut, query), TextPart(after)]


def lines_around_hit(text: str, query: Query) -> str:
    """Return the text around the first match, from the start of a line if possible."""
    first = _first_match(text, query)
    if first is None:
        return ""
    start, end = max(0, first - _MARKDOWN_BEFORE), first + _MARKDOWN_AFTER
    if start:
        start = max(start, text.find("\n", start, first) + 1)
    return text[start:end]


def _first_match(text: str, query: Query) -> int | None:
    return next((word.start() for word in WORD.finditer(text) if query.matches(word[0])), None)


def _next_word_start(line: str, position: int) -> int:
    """Return the start of the next word, if one is near."""
    space = line.find(" ", position, position + 20)
    return position if space < 0 else space + 1


def _split_at_hits(text: str, query: Query) -> Iterator[TextPart]:
    end = 0
    for word in WORD.finditer(text):
        if query.matches(word[0]):
            if word.start() > end:
                yield TextPart(text[end : word.start()])
            yield TextPart(word[0], hit=True)
            end = word.end()
    if end < len(text):
        yield TextPart(text[end:])
