"""Days in UTC, and which of them have sums that hold."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import reduce
from operator import or_
from typing import Any

from django.db.models import Exists, OuterRef, Q

from tasks_app.models import ChangedDay, SummedDay

DAY = timedelta(days=1)
#: Before and after all rows.
FIRST, LAST = date(1970, 1, 1), date(9000, 1, 1)


@dataclass(frozen=True)
class Days:
    """A range of days in UTC, both included."""

    since: date
    until: date

    def conditions(self, column: str) -> dict[str, Any]:
        """Return filter conditions on a column of times."""
        start = datetime.combine(self.since, time(), UTC)
        return {f"{column}__gte": start, f"{column}__lte": datetime.combine(self.until, time.max, UTC)}


@dataclass(frozen=True)
class SplitDays:
    """A range of days in two parts, each as ranges in order: those with sums that hold, and the others."""

    summed: list[Days]
    open: list[Days]

    def within(self, days: Days) -> SplitDays:
        """Return the part that lies within these days."""
        return SplitDays(_overlaps(self.summed, days), _overlaps(self.open, days))

    def with_sums(self) -> Q:
        """Return a condition on rows of sums."""
        return _any(Q(day__gte=one.since, day__lte=one.until) for one in self.summed)

    def without_sums(self, column: str) -> Q:
        """Return a condition on a column of times: the days that must be added up now."""
        return _any(Q(**one.conditions(column)) for one in self.open)


def split_days(since: date = FIRST, until: date = LAST) -> SplitDays:
    """Return which of these days have sums that hold. Without arguments, of all time. One query.

    What is read afterwards by both conditions counts each row once, whatever is added up meanwhile.
    """
    changed = ChangedDay.objects.filter(day=OuterRef("day")).order_by()
    holding = SummedDay.objects.filter(day__gte=since, day__lte=until).exclude(Exists(changed))
    summed = _ranges(holding.order_by("day").values_list("day", flat=True))
    return SplitDays(summed, _others(summed, since, until))


def _ranges(days: Iterable[date]) -> list[Days]:
    """Return days in order as ranges."""
    found: list[Days] = []
    for day in days:
        if found and found[-1].until == day - DAY:
            found[-1] = Days(found[-1].since, day)
        else:
            found.append(Days(day, day))
    return found


def _others(ranges: Iterable[Days], since: date, until: date) -> list[Days]:
    """Return what the ranges leave of the days."""
    found = []
    for one in ranges:
        if since < one.since:
            found.append(Days(since, one.since - DAY))
        since = one.until + DAY
    return [*found, Days(since, until)] if since <= until else found


def _overlaps(ranges: Iterable[Days], days: Days) -> list[Days]:
    found = (Days(max(one.since, days.since), min(one.until, days.until)) for one in ranges)
    return [one for one in found if one.since <= one.until]


def _any(conditions: Iterable[Q]) -> Q:
    return reduce(or_, conditions, Q(pk__in=[]))
