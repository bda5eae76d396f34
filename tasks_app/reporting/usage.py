"""Usage and waiting times in a period, summed by the database.

Days are in UTC on every page and in every file, so that everybody sees the same numbers. Each function makes
a fixed number of queries.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from enum import StrEnum
from typing import Any

from django.db.models import Count, DateField, F, FloatField, Func, Max, Min, Q, QuerySet, Sum
from django.db.models.functions import Coalesce, Now
from django.utils import timezone

from tasks_app.core.types import Usage
from tasks_app.history.statistics import PAUSES, By, usage_by, usage_of
from tasks_app.models import Channel, Question, Run, Task, Transition
from tasks_app.permissions import Principal, projects_visible_to

DAY = timedelta(days=1)
#: The longest period that can be requested.
MAX_PERIOD = timedelta(days=3660)


class Bucket(StrEnum):
    """The unit in which days are grouped."""

    DAY = "day"
    WEEK = "week"
    MONTH = "month"

    def start(self, day: date) -> date:
        """Return the first day of the bucket that contains the day; weeks begin on Monday."""
        if self is Bucket.WEEK:
            return day - timedelta(days=day.weekday())
        return day.replace(day=1) if self is Bucket.MONTH else day

    def next(self, start: date) -> date:
        """Return the first day of the next bucket."""
        if self is Bucket.MONTH:
            return (start + timedelta(days=31)).replace(day=1)
        return start + (timedelta(days=7) if self is Bucket.WEEK else DAY)


@dataclass(frozen=True)
class Period:
    """A range of days in UTC, both included."""

    since: date
    until: date

    @property
    def days(self) -> int:
        return (self.until - self.since).days + 1

    @property
    def before(self) -> Period:
        """The preceding period of the same length."""
        return Period(self.since - self.days * DAY, self.since - DAY)

    def buckets(self, bucket: Bucket) -> list[date]:
        """Return the first days of all buckets in order."""
        starts, start = [], bucket.start(self.since)
        while start <= self.until:
            starts.append(start)
            start = bucket.next(start)
        return starts

    def conditions(self, column: str) -> dict[str, Any]:
        """Return filter conditions on a column of times."""
        start = datetime.combine(self.since, time(), UTC)
        return {f"{column}__gte": start, f"{column}__lte": datetime.combine(self.until, time.max, UTC)}


@dataclass(frozen=True)
class WaitingTimes:
    """Working and waiting seconds of the tasks that were created in the period.

    `median` is the median time to an answer, or None if there were no answers.
    """

    tasks: int = 0
    working: float = 0.0
    paused: float = 0.0
    questions: int = 0
    answered: int = 0
    median: float | None = None


@dataclass(frozen=True)
class UsageInPeriod:
    """Usage of runs that started in the period: total, in the period before, by day, and by dimension."""

    total: Usage
    before: Usage
    by_day: Mapping[date, Mapping[str, Usage]]
    parts: Mapping[By, Mapping[str, Usage]] = field(default_factory=dict)


class _Day(Func):
    """SQL function for the day of a time in UTC."""

    output_field = DateField()

    def as_sqlite(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        # Stored times are text in UTC; a substring is much faster than Django's function.
        return self.as_sql(compiler, connection, template="substr(%(expressions)s, 1, 10)", **extra)

    def as_postgresql(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        template = "((%(expressions)s) AT TIME ZONE 'UTC')::date"
        return self.as_sql(compiler, connection, template=template, **extra)


class Seconds(Func):
    """SQL function for the seconds from the second time to the first."""

    output_field = FloatField()
    arity = 2

    def as_sqlite(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        template = "((%(expressions)s) * 86400.0)"
        days = self.copy()
        days.set_source_expressions([Func(one, function="julianday") for one in self.source_expressions])
        return days.as_sql(compiler, connection, template=template, arg_joiner=" - ", **extra)

    def as_postgresql(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        template = "EXTRACT(EPOCH FROM (%(expressions)s))::float8"
        return self.as_sql(compiler, connection, template=template, arg_joiner=" - ", **extra)


def runs_in(principal: Principal, period: Period, project: str = "") -> QuerySet[Run]:
    """Return the runs that started in the period and that the principal may see."""
    runs = Run.objects.filter(**period.conditions("started_at"))
    return in_visible_projects(runs, principal, project, "step__task__project__in")


def first_day(principal: Principal, project: str = "") -> date | None:
    """Return the day on which the first run that the principal may see started."""
    runs = in_visible_projects(Run.objects.all(), principal, project, "step__task__project__in")
    first: datetime | None = runs.aggregate(first=Min("started_at"))["first"]
    return first.date() if first else None


def usage_in_period(principal: Principal, period: Period, project: str, by: By) -> UsageInPeriod:
    runs = runs_in(principal, period, project)
    before = usage_of(runs_in(principal, period.before, project))
    parts = {one: _without_unused(usage_by(runs, one)) for one in By}
    return UsageInPeriod(sum(parts[By.MODEL].values(), Usage()), before, by_day(runs, by), parts)


def _without_unused(parts: Mapping[str, Usage]) -> dict[str, Usage]:
    """Drop names without usage: the CLI reports the model `<synthetic>` for runs without a response."""
    return {name: used for name, used in parts.items() if used.any or used.cost_usd}


def by_day(runs: QuerySet[Run], by: By) -> dict[date, dict[str, Usage]]:
    """Return usage by day and dimension, without days that have none."""
    found: dict[date, dict[str, Usage]] = {}
    names = ("input_tokens", "output_tokens", "cache_write_tokens", "cache_read_tokens", "cost_usd")
    sums = {name: Sum(name) for name in names}
    for row in runs.order_by().annotate(day=_Day("started_at")).values("day", by.value).annotate(**sums):
        used = Usage(**{name: row[name] or 0 for name in names})
        found.setdefault(row["day"], {})[str(row[by.value] or "")] = used
    return found


def waiting_times(principal: Principal, period: Period, project: str) -> WaitingTimes:
    tasks = in_visible_projects(
        Task.objects.filter(**period.conditions("created_at")), principal, project, "project__in"
    )
    questions = Question.objects.filter(**period.conditions("asked_at"))
    asked = in_visible_projects(questions, principal, project, "task__project__in")
    count, total, stored = _count_and_seconds(tasks)
    paused = stored + _current_pauses(tasks)
    by_people = Q(answered_at__isnull=False) & ~Q(answered_via=Channel.DECISION)  # which answer at once
    answered = asked.filter(by_people).order_by()
    counts = asked.order_by().aggregate(all=Count("pk"), answered=Count("pk", filter=by_people))
    median = _median(answered.annotate(took=Seconds("answered_at", "asked_at")), counts["answered"])
    return WaitingTimes(count, max(0.0, total - paused), paused, counts["all"], counts["answered"], median)


def in_visible_projects(
    rows: QuerySet[Any], principal: Principal, project: str, lookup: str
) -> QuerySet[Any]:
    """Filter by ids of projects, as the history does: a join over memberships would read far more."""
    projects = projects_visible_to(principal).order_by()
    if project:
        projects = projects.filter(name=project)
    elif principal.is_site_admin:
        return rows
    return rows.filter(**{lookup: projects.values("pk")})


def _count_and_seconds(tasks: QuerySet[Task]) -> tuple[int, float, float]:
    """Return the number of started tasks, their seconds until the end or now, and those of stored pauses."""
    begun = tasks.filter(started_at__isnull=False).order_by()
    length = Seconds(Coalesce("ended_at", Now()), "started_at")
    row = begun.aggregate(count=Count("pk"), total=Sum(length), paused=Sum("paused_seconds"))
    return row["count"], row["total"] or 0.0, row["paused"] or 0.0


def _current_pauses(tasks: QuerySet[Task]) -> float:
    """Return the seconds of current pauses, which are not stored yet."""
    paused = tasks.filter(phase__in=PAUSES, started_at__isnull=False).order_by()
    moves = Transition.objects.filter(task__in=paused.values("pk"), step=None, target=F("task__phase"))
    began = moves.order_by().values("task").annotate(began=Max("at"))
    now = timezone.now()
    return float(sum((now - row["began"]).total_seconds() for row in began))


def _median(answered: QuerySet[Any], count: int) -> float | None:
    """Return the median of the waiting times, or None."""
    if not count:
        return None
    times = answered.order_by("took").values_list("took", flat=True)
    middle = list(times[(count - 1) // 2 : count // 2 + 1])
    return float(sum(middle) / len(middle))
