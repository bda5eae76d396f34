"""Usage, waiting times and questions in a period, summed by the database.

Days are in UTC on every page and in every file, so that everybody sees the same numbers. Each function makes
a fixed number of queries. Days that were added up are read from their sums, the others from their rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from enum import StrEnum
from statistics import median
from typing import Any

from django.db.models import Count, F, Max, Min, QuerySet, Sum
from django.db.models.functions import Now
from django.utils import timezone

from tasks_app.core.phases import ENDED, Phase
from tasks_app.core.types import Usage
from tasks_app.history.transitions import NOT_WORKING
from tasks_app.models import DayFigures, ModelUsage, PersonUsage, Question, Run, Task, Transition, User
from tasks_app.permissions import Principal, projects_visible_to
from tasks_app.services.usage.day_sums import (
    BY_PEOPLE,
    DAY,
    OF_ANSWERS,
    OF_CLARIFICATIONS,
    OF_TASKS,
    SHARES,
    Day,
    Days,
    Seconds,
    SplitDays,
    split_days,
    with_share,
)
from tasks_app.services.usage.statistics import SUMS, usage_by_model

#: The longest period that can be requested.
MAX_PERIOD = timedelta(days=3660)
#: The median time is that of this number of newest answers: medians of days cannot be added up.
MOST_TIMED = 1_000
_UNFINISHED = [phase for phase in Phase if phase not in ENDED]
#: A day, or None for the whole period; a name; and what was used.
_Used = tuple[date | None, str, Usage]


class Bucket(StrEnum):
    """The unit in which days are grouped."""

    DAY = "day"
    WEEK = "week"
    MONTH = "month"

    def start(self, day: date) -> date:
        """Return the first day of the bucket that contains the day; weeks begin on Monday."""
        if self is Bucket.WEEK:
            return day - timedelta(days=day.weekday())
        if self is Bucket.MONTH:
            return day.replace(day=1)
        return day

    def next(self, start: date) -> date:
        """Return the first day of the next bucket."""
        if self is Bucket.MONTH:
            return (start + timedelta(days=31)).replace(day=1)
        if self is Bucket.WEEK:
            return start + timedelta(days=7)
        return start + DAY


class By(StrEnum):
    """A dimension of usage; the value is the lookup from a run."""

    MODEL = "model"
    USER = "step__task__created_by__username"
    PROJECT = "step__task__project__name"


@dataclass(frozen=True)
class Period(Days):
    """A range of days in UTC, both included, as people choose it."""

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


@dataclass(frozen=True)
class WaitingTimes:
    """Working and waiting seconds of the tasks that were created in the period.

    `median` is the median time to an answer, of the newest `timed` answers, or None if there were none.
    """

    tasks: int = 0
    working: float = 0.0
    paused: float = 0.0
    questions: int = 0
    answered: int = 0
    median: float | None = None

    @property
    def timed(self) -> int:
        return min(self.answered, MOST_TIMED)


@dataclass(frozen=True)
class UsageInPeriod:
    """Usage of runs that started in the period: total, in the period before, by day, and by dimension."""

    total: Usage
    before: Usage
    by_day: Mapping[date, Mapping[str, Usage]]
    parts: Mapping[By, Mapping[str, Usage]] = field(default_factory=dict)


def first_day(principal: Principal, project: str = "") -> date | None:
    """Return the day on which the first run that the principal may see started."""
    days = split_days()
    run: datetime | None = _runs(principal, project, days).aggregate(first=Min("started_at"))["first"]
    day: date | None = sums_of(ModelUsage, principal, project, days).aggregate(first=Min("day"))["first"]
    if run and (day is None or run.date() < day):
        return run.date()
    return day


def usage_in_period(principal: Principal, period: Period, project: str, by: By) -> UsageInPeriod:
    """Return the usage of a period, by day and by one dimension, and its total by each dimension."""
    split = split_days(period.before.since, period.until)
    days = split.within(period)
    daily = _usage(principal, days, project, by, daily=True)
    parts = {by: _by_name(daily)}
    for other in set(By) - {by}:
        parts[other] = _by_name(_usage(principal, days, project, other, daily=False))
    before = _usage(principal, split.within(period.before), project, By.MODEL, daily=False)
    return UsageInPeriod(
        sum(parts[By.MODEL].values(), Usage()),
        sum((used for _, _, used in before), Usage()),
        _by_day(daily),
        {one: _without_unused(part) for one, part in parts.items()},
    )


def usage_by_day(principal: Principal, period: Period, project: str, by: By) -> dict[date, dict[str, Usage]]:
    """Return usage by day and dimension, without days that have none."""
    days = split_days(period.since, period.until)
    return _by_day(_usage(principal, days, project, by, daily=True))


def usage_of_all_time(by: By) -> dict[str, Usage]:
    """Return the usage of all runs by dimension; "" is for unknown models and removed users."""
    days = split_days()
    sums: QuerySet[Any] = _sums(by)._default_manager.filter(days.with_sums())
    if by is By.USER:
        sums = sums.filter(project=None)
    return _by_name(_merged(sums, Run.objects.filter(days.without_sums("started_at")), by, daily=False))


def _usage(principal: Principal, days: SplitDays, project: str, by: By, *, daily: bool) -> list[_Used]:
    """Return usage by dimension, and by day if `daily`. A name and a day may come twice."""
    sums = sums_of(_sums(by), principal, project, days)
    return _merged(sums, _runs(principal, project, days) if days.open else None, by, daily=daily)


def _sums(by: By) -> type[ModelUsage | PersonUsage]:
    return PersonUsage if by is By.USER else ModelUsage


def _merged(sums: QuerySet[Any], runs: QuerySet[Run] | None, by: By, *, daily: bool) -> list[_Used]:
    """Return the usage of days with sums and of the runs of other days."""
    # Users are named afterwards: their table, joined to each of many rows, takes longer.
    column = {By.MODEL: "model", By.PROJECT: "project__name", By.USER: "user"}[by]
    found = _grouped(sums, column, daily=daily)
    if by is By.USER:
        ids = {user for _, user, _ in found if user}
        names = dict(User.objects.filter(pk__in=ids).values_list("pk", "username"))
        found = [(day, names.get(user, ""), used) for day, user, used in found]
    if runs is None:
        return found
    runs = runs.annotate(day=Day("started_at"))
    if by is not By.MODEL:
        return found + _grouped(runs, by.value, daily=daily)
    of_models = usage_by_model(runs, "day")
    return found + [(day if daily else None, model, used) for (day,), model, used in of_models]


def _grouped(rows: QuerySet[Any], column: str, *, daily: bool) -> list[tuple[date | None, Any, Usage]]:
    groups = rows.order_by().values_list(*(["day"] if daily else []), column).annotate(**SUMS)
    return [
        (row[0] if daily else None, row[daily] or "", Usage(*(amount or 0 for amount in row[daily + 1 :])))
        for row in groups
    ]


def _runs(principal: Principal, project: str, days: SplitDays) -> QuerySet[Run]:
    """Return the runs of the days without sums."""
    runs = Run.objects.filter(days.without_sums("started_at"))
    return in_visible_projects(runs, principal, project, "step__task__project__in")


def sums_of(model: type[Any], principal: Principal, project: str, days: SplitDays) -> QuerySet[Any]:
    """Return the sums of the days that have them, of the projects that the principal may see."""
    rows: QuerySet[Any] = model._default_manager.filter(days.with_sums())
    if model is PersonUsage and principal.is_site_admin and not project:
        return rows.filter(project=None)
    return in_visible_projects(rows, principal, project, "project__in")


def _by_name(found: Iterable[_Used]) -> dict[str, Usage]:
    parts: dict[str, Usage] = {}
    for _, name, used in found:
        parts[name] = parts.get(name, Usage()) + used
    return parts


def _by_day(found: Iterable[_Used]) -> dict[date, dict[str, Usage]]:
    days: dict[date, dict[str, Usage]] = {}
    for day, name, used in found:
        if day is not None:
            of_day = days.setdefault(day, {})
            of_day[name] = of_day.get(name, Usage()) + used
    return days


def _without_unused(parts: Mapping[str, Usage]) -> dict[str, Usage]:
    """Drop names without usage: the CLI reports the model `<synthetic>` for runs without a response."""
    return {name: used for name, used in parts.items() if used.any or used.cost_usd}


def waiting_times(principal: Principal, period: Period, project: str) -> WaitingTimes:
    days = split_days(period.since, period.until)
    tasks = in_visible_projects(Task.objects.all(), principal, project, "project__in")
    questions = in_visible_projects(Question.objects.all(), principal, project, "task__project__in")
    of_tasks = {name: OF_TASKS[name] for name in ("tasks_ended", "task_seconds", "paused_seconds")}
    sums = sums_of(DayFigures, principal, project, days)
    found = figures_of_days(sums, [*of_tasks, *OF_ANSWERS])
    add_figures(found, tasks.filter(days.without_sums("created_at")), of_tasks)
    add_figures(found, questions.filter(days.without_sums("asked_at")), OF_ANSWERS)
    count, total, paused = _unfinished(tasks.filter(**period.conditions("created_at")))
    paused += found["paused_seconds"]
    working = max(0.0, total + found["task_seconds"] - paused)
    answered = questions.filter(BY_PEOPLE, **period.conditions("asked_at"))
    half = _median(answered, int(found["answered"]))
    return WaitingTimes(
        count + int(found["tasks_ended"]),
        working,
        paused,
        int(found["asked"]),
        int(found["answered"]),
        half,
    )


def figures_of_days(rows: QuerySet[DayFigures], names: Iterable[str]) -> dict[str, float]:
    """Return these figures of days with sums."""
    found = rows.aggregate(**{name: Sum(name) for name in names})
    return {name: value or 0 for name, value in found.items()}


def add_figures(found: dict[str, float], rows: QuerySet[Any], figures: Mapping[str, Any]) -> None:
    """Add figures of the days without sums."""
    for name, value in rows.order_by().aggregate(**figures).items():
        found[name] += value or 0


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


def _unfinished(tasks: QuerySet[Task]) -> tuple[int, float, float]:
    """Return the number of begun tasks without an end, their seconds until now, and seconds of pauses."""
    begun = tasks.filter(phase__in=_UNFINISHED, ended_at=None, started_at__isnull=False).order_by()
    length = Seconds(Now(), "started_at") - F("idle_seconds")
    row = begun.aggregate(count=Count("pk"), total=Sum(length), paused=Sum("paused_seconds"))
    return row["count"], row["total"] or 0.0, (row["paused"] or 0.0) + _current_pauses(tasks)


def _current_pauses(tasks: QuerySet[Task]) -> float:
    """Return the seconds of current pauses, which are not stored yet."""
    paused = tasks.filter(phase__in=NOT_WORKING, started_at__isnull=False).order_by()
    moves = Transition.objects.filter(task__in=paused.values("pk"), step=None, target=F("task__phase"))
    began = moves.order_by().values("task").annotate(began=Max("at"))
    now = timezone.now()
    return float(sum((now - row["began"]).total_seconds() for row in began))


def _median(answered: QuerySet[Question], count: int) -> float | None:
    """Return the median of the waiting times of the newest answers, or None."""
    if not count:
        return None
    newest = answered.order_by("-asked_at").annotate(took=Seconds("answered_at", "asked_at"))[:MOST_TIMED]
    times = list(newest.values_list("took", flat=True))
    return median(times) if times else None


# When questions of agents came in a period, and what they brought (D8).


COLUMNS = ["figure", "part", "count", "of"]


@dataclass(frozen=True)
class Timing:
    """The questions that were asked in one share of the working time of their tasks."""

    share: str
    before_work: int = 0
    late: int = 0
    others: int = 0

    @property
    def total(self) -> int:
        return self.before_work + self.late + self.others


@dataclass(frozen=True)
class QuestionFigures:
    """Figures of the clarifications that agents asked in a period: `questions` cards.

    `before_work` and `late` count those about the goal; `tasks_before_work` are the tasks that asked before
    work: more cards than tasks mean that some did not ask all at once. `timings` count those of done tasks.
    `recommended` are the answered items that recommended an option. `compared` are the questions that were
    looked for among earlier ones of their project, `asked_before` those of which an item was found.
    """

    questions: int = 0
    before_work: int = 0
    tasks_before_work: int = 0
    late: int = 0
    timings: tuple[Timing, ...] = field(default=())
    recommended: int = 0
    recommended_taken: int = 0
    compared: int = 0
    asked_before: int = 0

    @property
    def others(self) -> int:
        return self.questions - self.before_work - self.late

    @property
    def timed(self) -> int:
        return sum(timing.total for timing in self.timings)

    @property
    def percent_taken(self) -> int | None:
        """Per cent of the recommendations that were taken; None if there was none."""
        return round(100 * self.recommended_taken / self.recommended) if self.recommended else None


def question_figures(principal: Principal, period: Period, project: str) -> QuestionFigures:
    """Return the figures of the projects that the principal may see, or of one of them."""
    days = split_days(period.since, period.until)
    found = figures_of_days(sums_of(DayFigures, principal, project, days), OF_CLARIFICATIONS)
    asked = Question.objects.filter(days.without_sums("asked_at"))
    visible = in_visible_projects(asked, principal, project, "task__project__in")
    add_figures(found, with_share(visible), OF_CLARIFICATIONS)
    counts = {name: int(value) for name, value in found.items()}
    timings = tuple(
        Timing(name, *(counts.pop(f"{kind}_{number}") for kind in ("before_work", "late", "others")))
        for number, (name, _, _) in enumerate(SHARES)
    )
    return QuestionFigures(timings=timings, **counts)


def figure_rows(figures: QuestionFigures) -> Iterator[dict[str, Any]]:
    """Yield the figures as rows of a CSV: `count` of `of`."""
    parts = {"before work": figures.before_work, "late": figures.late, "others": figures.others}
    for part, count in parts.items():
        yield {"figure": "asked", "part": part, "count": count, "of": figures.questions}
    yield {
        "figure": "tasks asked before work", "part": "",
        "count": figures.tasks_before_work, "of": figures.before_work,
    }  # fmt: skip
    for timing in figures.timings:
        kinds = {"before work": timing.before_work, "late": timing.late, "others": timing.others}
        for kind, count in kinds.items():
            part = f"{timing.share.lower()}, {kind}"
            yield {"figure": "when asked", "part": part, "count": count, "of": figures.timed}
    yield {
        "figure": "recommended option taken", "part": "",
        "count": figures.recommended_taken, "of": figures.recommended,
    }  # fmt: skip
    yield {"figure": "asked before", "part": "", "count": figures.asked_before, "of": figures.compared}
