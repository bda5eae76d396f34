"""Texts as search results show them: the part around what was found, with the words found marked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tasks_app.reporting.search.words import WORD, Query

#: Characters before the first word found.
_BEFORE = 60
#: The same, and after it, of what is read as Markdown before the snippet is taken of it.
_WIDELY_BEFORE, _WIDELY_AFTER = 400, 800


@dataclass(frozen=True)
class Part:
    """A piece of a text; `hit`: a word that was looked for."""

    text: str
    hit: bool = False


def marked(text: str, query: Query) -> list[Part]:
    """The whole text, with what was looked for marked."""
    return list(_parts(text, query))


def snippet(text: str, query: Query, *, length: int = 200) -> list[Part]:
    """About `length` characters around the first word found, in one line; empty if there is none."""
    line = " ".join(text.split())
    first = _first(line, query)
    if first is None:
        return []
    start = _word_border(line, max(0, first - _BEFORE)) if first > _BEFORE else 0
    cut = line[start : start + length]
    before, after = "… " if start else "", " …" if start + length < len(line) else ""
    return [Part(before), *_parts(cut, query), Part(after)]


def surroundings(text: str, query: Query) -> str:
    """Whole lines, where they are short, around the first word found, to be read as what they are."""
    first = _first(text, query)
    if first is None:
        return ""
    start, end = max(0, first - _WIDELY_BEFORE), first + _WIDELY_AFTER
    if start:
        start = max(start, text.find("\n", start, first) + 1)
    return text[start:end]


def _first(text: str, query: Query) -> int | None:
    return next((word.start() for word in WORD.finditer(text) if query.names(word[0])), None)


def _word_border(line: str, position: int) -> int:
    """The next beginning of a word, if one is near."""
    space = line.find(" ", position, position + 20)
    return position if space < 0 else space + 1


def _parts(text: str, query: Query) -> Iterator[Part]:
    end = 0
    for word in WORD.finditer(text):
        if query.names(word[0]):
            if word.start() > end:
                yield Part(text[end : word.start()])
            yield Part(word[0], hit=True)
            end = word.end()
    if end < len(text):
        yield Part(text[end:])
