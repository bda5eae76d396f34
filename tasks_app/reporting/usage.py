"""What was used in a period and how long people were waited for: added up by the database, day by day.

Days are those of UTC, on every page and in every file: all who look see the same numbers. Each function asks
a fixed number of questions to the database.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from enum import StrEnum
from typing import Any

from django.db.models import Count, DateField, F, FloatField, Func, Max, Min, QuerySet, Sum
from django.db.models.functions import Coalesce, Now
from django.utils import timezone

from tasks_app.core.types import Usage
from tasks_app.history.statistics import PAUSES, By, usage_by, usage_of
from tasks_app.models import Question, Run, Task, Transition
from tasks_app.permissions import Principal, projects_visible_to

DAY = timedelta(days=1)
#: Of a period that somebody asks for.
LONGEST = timedelta(days=3660)


class Bucket(StrEnum):
    """What days are put together to."""

    DAY = "day"
    WEEK = "week"
    MONTH = "month"

    def start(self, day: date) -> date:
        """The first day of the bucket that the day is in; weeks begin on Monday."""
        if self is Bucket.WEEK:
            return day - timedelta(days=day.weekday())
        return day.replace(day=1) if self is Bucket.MONTH else day

    def next(self, start: date) -> date:
        """The first day of the bucket after it."""
        if self is Bucket.MONTH:
            return (start + timedelta(days=31)).replace(day=1)
        return start + (timedelta(days=7) if self is Bucket.WEEK else DAY)


@dataclass(frozen=True)
class Period:
    """Days in UTC, both included."""

    since: date
    until: date

    @property
    def days(self) -> int:
        return (self.until - self.since).days + 1

    @property
    def before(self) -> Period:
        """The period of the same length that ends where this one begins."""
        return Period(self.since - self.days * DAY, self.since - DAY)

    def buckets(self, bucket: Bucket) -> list[date]:
        """The first day of each, in order."""
        starts, start = [], bucket.start(self.since)
        while start <= self.until:
            starts.append(start)
            start = bucket.next(start)
        return starts

    def holds(self, when: str) -> dict[str, Any]:
        """The conditions on a column of times."""
        start = datetime.combine(self.since, time(), UTC)
        return {f"{when}__gte": start, f"{when}__lte": datetime.combine(self.until, time.max, UTC)}


@dataclass(frozen=True)
class Waiting:
    """Seconds, of the tasks that were created in the period: at work, and waiting for people and limits.

    `median` is that of the times to an answer, None if there was none.
    """

    tasks: int = 0
    working: float = 0.0
    paused: float = 0.0
    questions: int = 0
    answered: int = 0
    median: float | None = None


@dataclass(frozen=True)
class Spent:
    """What runs that started in the period used: in all, in the period before, by day, and told apart."""

    total: Usage
    before: Usage
    by_day: Mapping[date, Mapping[str, Usage]]
    parts: Mapping[By, Mapping[str, Usage]] = field(default_factory=dict)


class _Day(Func):
    """The day of a time, in UTC."""

    output_field = DateField()

    def as_sqlite(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        # Stored times are text in UTC: a part of it is found far faster than by a function of Django's.
        return self.as_sql(compiler, connection, template="substr(%(expressions)s, 1, 10)", **extra)

    def as_postgresql(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        template = "((%(expressions)s) AT TIME ZONE 'UTC')::date"
        return self.as_sql(compiler, connection, template=template, **extra)


class _Seconds(Func):
    """From the second time to the first."""

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
    """The runs that started in the period, in what the principal may see."""
    runs = Run.objects.filter(**period.holds("started_at"))
    return _within(runs, principal, project, "step__task__project__in")


def first_day(principal: Principal, project: str = "") -> date | None:
    """When the first run started that the principal may see."""
    runs = _within(Run.objects.all(), principal, project, "step__task__project__in")
    first: datetime | None = runs.aggregate(first=Min("started_at"))["first"]
    return first.date() if first else None


def spent(principal: Principal, period: Period, project: str, by: By) -> Spent:
    runs = runs_in(principal, period, project)
    before = usage_of(runs_in(principal, period.before, project))
    parts = {one: _used_something(usage_by(runs, one)) for one in By}
    return Spent(sum(parts[By.MODEL].values(), Usage()), before, by_day(runs, by), parts)


def _used_something(parts: Mapping[str, Usage]) -> dict[str, Usage]:
    """The CLI names a model of its own, `<synthetic>`, for runs that no model answered."""
    return {name: used for name, used in parts.items() if used.any or used.cost_usd}


def by_day(runs: QuerySet[Run], by: By) -> dict[date, dict[str, Usage]]:
    """What was used on each day on which something was, told apart."""
    found: dict[date, dict[str, Usage]] = {}
    names = ("input_tokens", "output_tokens", "cache_write_tokens", "cache_read_tokens", "cost_usd")
    sums = {name: Sum(name) for name in names}
    for row in runs.order_by().annotate(day=_Day("started_at")).values("day", by.value).annotate(**sums):
        used = Usage(**{name: row[name] or 0 for name in names})
        found.setdefault(row["day"], {})[str(row[by.value] or "")] = used
    return found


def waiting(principal: Principal, period: Period, project: str) -> Waiting:
    tasks = _within(Task.objects.filter(**period.holds("created_at")), principal, project, "project__in")
    questions = Question.objects.filter(**period.holds("asked_at"))
    asked = _within(questions, principal, project, "task__project__in")
    count, total, stored = _times(tasks)
    paused = stored + _pauses_now(tasks)
    answered = asked.filter(answered_at__isnull=False).order_by()
    counts = asked.order_by().aggregate(all=Count("pk"), answered=Count("answered_at"))
    median = _median(answered.annotate(took=_Seconds("answered_at", "asked_at")), counts["answered"])
    return Waiting(count, max(0.0, total - paused), paused, counts["all"], counts["answered"], median)


def _within(rows: QuerySet[Any], principal: Principal, project: str, way: str) -> QuerySet[Any]:
    """Numbers of projects, as in the history: a join over memberships would read far more."""
    projects = projects_visible_to(principal).order_by()
    if project:
        projects = projects.filter(name=project)
    elif principal.is_site_admin:
        return rows
    return rows.filter(**{way: projects.values("pk")})


def _times(tasks: QuerySet[Task]) -> tuple[int, float, float]:
    """How many were begun; seconds from their starts to their ends or until now, and of stored pauses."""
    begun = tasks.filter(started_at__isnull=False).order_by()
    length = _Seconds(Coalesce("ended_at", Now()), "started_at")
    row = begun.aggregate(count=Count("pk"), total=Sum(length), paused=Sum("paused_seconds"))
    return row["count"], row["total"] or 0.0, row["paused"] or 0.0


def _pauses_now(tasks: QuerySet[Task]) -> float:
    """Seconds of pauses that last until now, which no row has yet."""
    paused = tasks.filter(phase__in=PAUSES, started_at__isnull=False).order_by()
    moves = Transition.objects.filter(task__in=paused.values("pk"), step=None, target=F("task__phase"))
    began = moves.order_by().values("task").annotate(began=Max("at"))
    now = timezone.now()
    return float(sum((now - row["began"]).total_seconds() for row in began))


def _median(answered: QuerySet[Any], count: int) -> float | None:
    """The middle one, or the mean of the two in the middle."""
    if not count:
        return None
    times = answered.order_by("took").values_list("took", flat=True)
    middle = list(times[(count - 1) // 2 : count // 2 + 1])
    return float(sum(middle) / len(middle))
