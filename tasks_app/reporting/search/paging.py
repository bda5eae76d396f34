"""Keyset pagination by id: every page is as fast as the first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from django.db.models import Model, QuerySet
from django.http import QueryDict

Row = TypeVar("Row", bound=Model)

_MAX_ID = 2**63 - 1


@dataclass(frozen=True)
class PageCursor:
    """A position in the pages: starts after the row `after`, or ends before the row `before`."""

    after: int | None = None
    before: int | None = None
    oldest_first: bool = False

    @classmethod
    def of(cls, asked: QueryDict) -> PageCursor:
        after, before = _parse_id(asked.get("after", "")), _parse_id(asked.get("before", ""))
        return cls(after, None if after is not None else before, asked.get("sort") == "oldest")


@dataclass(frozen=True)
class PageOfIds:
    """Ids of a page in order. `before`, `after`: cursors of the neighbouring pages, if there are any."""

    ids: list[int]
    before: int | None = None
    after: int | None = None


def page_of_ids(rows: QuerySet[Any], cursor: PageCursor, size: int) -> PageOfIds:
    """Return the page at the cursor. Rows are ordered by id, that is, by creation."""
    backwards = cursor.before is not None
    start = cursor.before if backwards else cursor.after
    rising = cursor.oldest_first != backwards
    if start is not None:
        rows = rows.filter(pk__gt=start) if rising else rows.filter(pk__lt=start)
    ids = list(rows.order_by("pk" if rising else "-pk").values_list("pk", flat=True)[: size + 1])
    more, ids = len(ids) > size, ids[:size]
    if backwards:
        ids.reverse()
    if not ids:
        return PageOfIds([])
    has_before, has_after = (more, True) if backwards else (start is not None, more)
    return PageOfIds(ids, ids[0] if has_before else None, ids[-1] if has_after else None)


def rows_in_order(rows: QuerySet[Row], ids: list[int]) -> list[Row]:
    """Return the rows with these ids, in the order of the ids."""
    found = {row.pk: row for row in rows.filter(pk__in=ids)}
    return [found[pk] for pk in ids if pk in found]


def iterate_ids(rows: QuerySet[Any], size: int) -> Iterator[list[int]]:
    """Yield the ids of all rows, newest first, in batches, without an open database cursor."""
    cursor: PageCursor | None = PageCursor()
    while cursor:
        part = page_of_ids(rows, cursor, size)
        if part.ids:
            yield part.ids
        cursor = PageCursor(after=part.after) if part.after is not None else None


def _parse_id(text: str) -> int | None:
    if not (text.isascii() and text.isdigit()) or len(text) > 19:
        return None
    return min(int(text), _MAX_ID)
