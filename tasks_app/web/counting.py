"""Numbers beside lists, and pages of long lists: counted no further than a reader needs to know.

An exact number of a million rows reads a million rows, each time that a page is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from django.core.paginator import Paginator
from django.db.models import IntegerField, JSONField, QuerySet, Subquery
from django.db.models.expressions import Combinable
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
    empty_result_set_value = 0

    def __init__(self, rows: QuerySet[Any]) -> None:
        super().__init__(rows.order_by().values("pk")[: MOST_COUNTED + 1])


class _Ids(Subquery):
    """The ids of the first MOST_COUNTED + 1 rows in their order, as JSON."""

    template = '(SELECT jsonb_agg("id") FROM (%(subquery)s) ids)'
    output_field = JSONField()

    def __init__(self, rows: QuerySet[Any, Any]) -> None:
        super().__init__(rows.values("id")[: MOST_COUNTED + 1])

    def as_sqlite(self, compiler: Any, connection: Any) -> Any:
        return self.as_sql(compiler, connection, '(SELECT json_group_array("id") FROM (%(subquery)s) ids)')


def numbers_of_each(user: User, rows: Mapping[str, QuerySet[Any]], **more: Combinable) -> dict[str, Any]:
    """Return the number of rows by key, or MOST_COUNTED + 1 if there are more, by one query.

    `more` are further values of the same moment.
    """
    return _of_one_query(user, {**{key: _CappedCount(found) for key, found in rows.items()}, **more})


def ids_of_each(
    user: User, rows: Mapping[str, QuerySet[Any, Any]], more: Combinable
) -> tuple[dict[str, list[int]], Any]:
    """Return the ids of the rows by key, in their order, and one more value of the same moment; one query.

    Of each key, MOST_COUNTED + 1 ids at most.
    """
    found = _of_one_query(user, {"": more, **{key: _Ids(few) for key, few in rows.items()}})
    value = found.pop("")
    return {key: ids or [] for key, ids in found.items()}, value


def _of_one_query(user: User, values: Mapping[str, Combinable]) -> dict[str, Any]:
    """Return these values. The query needs a row to select from, which is that of the user who looks."""
    keys = {f"value_{number}": key for number, key in enumerate(values)}
    wanted = {name: values[key] for name, key in keys.items()}
    row = User.objects.filter(pk=user.pk).order_by().annotate(**wanted).values(*wanted).get()
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
    numbers = numbers_of_each(user, rows)
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
