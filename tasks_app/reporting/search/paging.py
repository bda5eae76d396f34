"""A page of many rows, found by the number of the row before it: no page is farther away than the first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from django.db.models import Model, QuerySet
from django.http import QueryDict

Row = TypeVar("Row", bound=Model)

_LARGEST = 2**63 - 1


@dataclass(frozen=True)
class Place:
    """Where a page begins: behind the row `after`, or so that it ends in front of the row `before`."""

    after: int | None = None
    before: int | None = None
    oldest_first: bool = False

    @classmethod
    def of(cls, asked: QueryDict) -> Place:
        after, before = _number(asked.get("after", "")), _number(asked.get("before", ""))
        return cls(after, None if after is not None else before, asked.get("sort") == "oldest")


@dataclass(frozen=True)
class Slice:
    """Numbers of rows in order. `before`, `after`: to be asked for, if there is more in that direction."""

    ids: list[int]
    before: int | None = None
    after: int | None = None


def slice_of(rows: QuerySet[Any], place: Place, size: int) -> Slice:
    """The page there. Rows are in the order of their numbers, which is that in which they were made."""
    backwards = place.before is not None
    start = place.before if backwards else place.after
    rising = place.oldest_first != backwards
    if start is not None:
        rows = rows.filter(pk__gt=start) if rising else rows.filter(pk__lt=start)
    ids = list(rows.order_by("pk" if rising else "-pk").values_list("pk", flat=True)[: size + 1])
    more, ids = len(ids) > size, ids[:size]
    if backwards:
        ids.reverse()
    if not ids:
        return Slice([])
    has_before, has_after = (more, True) if backwards else (start is not None, more)
    return Slice(ids, ids[0] if has_before else None, ids[-1] if has_after else None)


def in_order(rows: QuerySet[Row], ids: list[int]) -> list[Row]:
    """The rows with these numbers, in the order of the numbers."""
    found = {row.pk: row for row in rows.filter(pk__in=ids)}
    return [found[number] for number in ids if number in found]


def all_ids(rows: QuerySet[Any], size: int) -> Iterator[list[int]]:
    """The numbers of all the rows, newest first, some at a time: nothing is held open meanwhile."""
    place: Place | None = Place()
    while place:
        part = slice_of(rows, place, size)
        if part.ids:
            yield part.ids
        place = Place(after=part.after) if part.after is not None else None


def _number(text: str) -> int | None:
    if not (text.isascii() and text.isdigit()) or len(text) > 19:
        return None
    return min(int(text), _LARGEST)
