"""Numbers beside lists, and pages of long lists: counted no further than a reader needs to know.

An exact number of a million rows reads a million rows, each time that a page is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from django.core.paginator import Paginator
from django.db.models import IntegerField, QuerySet, Subquery
from django.utils.functional import cached_property

from tasks_app.models import User

#: What is counted exactly; more is shown as “1,000+”.
MOST_COUNTED = 1_000
#: Rows that a list of pages leads to; the history has the rest.
MOST_LISTED = 2_000


class _CappedCount(Subquery):
    """The number of rows, or MOST_COUNTED + 1 if there are more."""

    template = "(SELECT COUNT(*) FROM (%(subquery)s) counted)"
    output_field = IntegerField()

    def __init__(self, rows: QuerySet[Any]) -> None:
        super().__init__(rows.order_by().values("pk")[: MOST_COUNTED + 1])


def counted(user: User, rows: Mapping[str, QuerySet[Any]]) -> dict[str, int]:
    """Return the number of rows by key, or MOST_COUNTED + 1 if there are more, by one query.

    The query needs a row to select from, which is that of the user who looks.
    """
    keys = {f"count_{number}": key for number, key in enumerate(rows)}
    counts = {name: _CappedCount(rows[key]) for name, key in keys.items()}
    row = User.objects.filter(pk=user.pk).order_by().annotate(**counts).values(*counts).get()
    return {key: row[name] for name, key in keys.items()}


def count_words(number: int) -> str:
    """Return a number from `counted` as it is shown: `1,000+` if there are more than are counted."""
    return f"{number:,}" if number <= MOST_COUNTED else f"{MOST_COUNTED:,}+"


@dataclass(frozen=True)
class Tab:
    """A tab over a list: a state of its rows, and the number of matching ones as it is shown."""

    state: str
    label: str
    count: str
    query: str


def tabs_of(
    user: User,
    labels: Mapping[str, str],
    rows: Mapping[str, QuerySet[Any]],
    query: Callable[[str], str],
) -> list[Tab]:
    """Return a tab for each label; `query` gives the part of the URL that leads to a state. One query."""
    numbers = counted(user, rows)
    return [Tab(state, label, count_words(numbers[state]), query(state)) for state, label in labels.items()]


class CappedPaginator(Paginator):  # type: ignore[type-arg]
    """Pages of the first MOST_LISTED rows. `is_capped`: there are more rows."""

    object_list: QuerySet[Any]

    @cached_property
    def _found(self) -> int:
        return self.object_list.order_by().values("pk")[: MOST_LISTED + 1].count()

    @cached_property
    def count(self) -> int:
        return min(self._found, MOST_LISTED)

    @property
    def is_capped(self) -> bool:
        return self._found > MOST_LISTED
