"""Counts of runs, tasks and questions: by day in `DayFigures`, and now for days without sums."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import reduce
from operator import or_
from typing import Any

from django.db import transaction
from django.db.models import (
    Count,
    DateField,
    Exists,
    ExpressionWrapper,
    F,
    FloatField,
    Func,
    Max,
    Min,
    OuterRef,
    Q,
    QuerySet,
    Sum,
    Value,
)
from django.db.models.functions import NullIf
from django.utils import timezone

from tasks_app.core.phases import Phase
from tasks_app.core.types import Usage
from tasks_app.models import (
    ChangedDay,
    Channel,
    DayFigures,
    ModelUsage,
    Outcome,
    PersonUsage,
    Question,
    QuestionKind,
    QuestionState,
    Run,
    StepKind,
    SummedDay,
    Task,
)
from tasks_app.models.task import EarlyEnd
from tasks_app.services.usage.statistics import SUMS, usage_by_model


class Day(Func):
    """The day of a time in UTC."""

    output_field = DateField()

    def as_sqlite(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        # Stored times are text in UTC; a substring is much faster than Django's function.
        return self.as_sql(compiler, connection, template="substr(%(expressions)s, 1, 10)", **extra)

    def as_postgresql(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        template = "((%(expressions)s) AT TIME ZONE 'UTC')::date"
        return self.as_sql(compiler, connection, template=template, **extra)


class Seconds(Func):
    """The seconds from the second time to the first."""

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


#: The shares of a task's working time in which questions are counted: name, from, to.
SHARES = (
    ("First 10 %", 0.0, 0.1),
    ("10 to 40 %", 0.1, 0.4),
    ("40 to 70 %", 0.4, 0.7),
    ("Last 30 %", 0.7, None),
)
#: Answers of people: a decision answers at once, and a rule ends what nobody has answered.
BY_PEOPLE = Q(answered_at__isnull=False) & ~Q(answered_via__in=[Channel.DECISION, Channel.RULE])

_EARLY = Q(phase=Phase.DONE, early_end=EarlyEnd.ENDED)
_ENDED = Q(started_at__isnull=False, ended_at__isnull=False)
_CLARIFICATION = Q(kind=QuestionKind.CLARIFICATION)
_BEFORE = _CLARIFICATION & Q(step__kind=StepKind.CLARIFY)
_LATE = _CLARIFICATION & Q(is_late=True)
#: Of the cards of a pass, the first stands for the task: so sums of days add up.
_EARLIER = Question.objects.filter(
    step=OuterRef("step"), kind=QuestionKind.CLARIFICATION, pk__lt=OuterRef("pk")
)
_OTHERS = _CLARIFICATION & ~_BEFORE & ~_LATE
_ANSWERED = _CLARIFICATION & Q(state=QuestionState.ANSWERED)

#: Aggregates by name, for runs.
OF_RUNS: dict[str, Any] = {
    "runs_running": Count("pk", filter=Q(outcome="")),
    **{f"runs_{outcome}": Count("pk", filter=Q(outcome=outcome)) for outcome in Outcome.values},
}
#: Aggregates by name, for tasks that have ended.
OF_TASKS: dict[str, Any] = {
    "tasks_done": Count("pk", filter=Q(phase=Phase.DONE) & ~_EARLY),
    "tasks_finished_early": Count("pk", filter=_EARLY),
    "tasks_failed": Count("pk", filter=Q(phase=Phase.FAILED)),
    "tasks_cancelled": Count("pk", filter=Q(phase=Phase.CANCELLED)),
    "tasks_ended": Count("pk", filter=_ENDED),
    "task_seconds": Sum(Seconds("ended_at", "started_at") - F("idle_seconds"), filter=_ENDED),
    "paused_seconds": Sum("paused_seconds", filter=_ENDED),
    "last_end": Max("ended_at"),
}
#: Aggregates by name, for questions: all, and questions answered by people.
OF_ANSWERS: dict[str, Any] = {"asked": Count("pk"), "answered": Count("pk", filter=BY_PEOPLE)}


def _of_clarifications() -> dict[str, Any]:
    counts: dict[str, Any] = {
        "questions": Count("pk", filter=_CLARIFICATION),
        "before_work": Count("pk", filter=_BEFORE),
        "tasks_before_work": Count("pk", filter=_BEFORE & Q(~Exists(_EARLIER))),
        "late": Count("pk", filter=_LATE),
        "recommended": Sum("recommended", filter=_ANSWERED),
        "recommended_taken": Sum("recommended_taken", filter=_ANSWERED),
        "compared": Count("pk", filter=_CLARIFICATION & ~Q(item_keys="")),
        "asked_before": Count("pk", filter=_CLARIFICATION & Q(asked_before=True)),
    }
    for number, (_, begin, end) in enumerate(SHARES):
        within = Q(task__phase=Phase.DONE, share__isnull=False)
        if begin:
            within &= Q(share__gte=begin)
        if end:
            within &= Q(share__lt=end)
        for name, kind in (("before_work", _BEFORE), ("late", _LATE), ("others", _OTHERS)):
            counts[f"{name}_{number}"] = Count("pk", filter=within & kind)
    return counts


#: Aggregates by name, for questions with their `share`.
OF_CLARIFICATIONS = _of_clarifications()
#: Which aggregates belong to which rows, and the time by which those belong to a day.
FIGURES: tuple[tuple[type[Run | Task | Question], str, str, dict[str, Any]], ...] = (
    (Run, "started_at", "step__task__project", OF_RUNS),
    (Task, "created_at", "project", OF_TASKS),
    (Question, "asked_at", "task__project", OF_ANSWERS | OF_CLARIFICATIONS),
)


def with_share(questions: QuerySet[Question]) -> QuerySet[Question]:
    """Annotate the share of its task's working time that had passed; null if the task has not ended."""
    length = (
        Seconds("task__ended_at", "task__started_at") - F("task__paused_seconds") - F("task__idle_seconds")
    )
    positive = NullIf(length, Value(0.0, output_field=FloatField()))
    share = ExpressionWrapper(F("worked_seconds") / positive, output_field=FloatField())
    return questions.annotate(share=share)


# Adding up days (P11): usage by model and by person, and figures of runs, tasks and questions.
#
# A day is added up when the next one has passed, so that a transaction over midnight, or a worker whose
# clock is a few hours off, does not matter; until then its rows are read. Each later change of one of its
# rows is noted by the database in the transaction that changes it. A noted day is read from its rows until
# it is added up again, so the sums and the rows never differ for a reader, and nothing is counted twice or
# lost.


#: Days that one transaction adds up: on SQLite nobody else writes meanwhile.
AT_ONCE = 7
#: How old a day is that is added up.
AGE = timedelta(days=2)


def add_up_days(*, at_once: int = AT_ONCE) -> int:
    """Add up the newest days without sums and the changed days; return how many. For the sweeper."""
    last = timezone.now().date() - AGE
    changed = ChangedDay.objects.filter(day__lte=last).order_by("day").values_list("day", flat=True)
    days = set(changed.distinct()[:at_once])
    days |= set(_newest_without_sums(last, at_once - len(days)))
    for span in _ranges(sorted(days)):
        _add_up(span)
    return len(days)


def _newest_without_sums(last: date, most: int) -> list[date]:
    first: datetime | None = Task.objects.aggregate(first=Min("created_at"))["first"]
    if first is None or most <= 0:
        return []
    summed = SummedDay.objects.filter(day__gte=first.date(), day__lte=last)
    if summed.count() > (last - first.date()).days:
        return []
    known = set(summed.values_list("day", flat=True))
    days = (last - number * DAY for number in range((last - first.date()).days + 1))
    return [day for day in days if day not in known][:most]


@transaction.atomic
def _add_up(span: Days) -> None:
    """Write the sums of consecutive days anew.

    The notes are removed before the rows are read: a change that is committed by then is read, and a later
    one notes the day again.
    """
    days = [span.since + number * DAY for number in range((span.until - span.since).days + 1)]
    SummedDay.objects.bulk_create([SummedDay(day=day) for day in days], ignore_conflicts=True)
    list(SummedDay.objects.select_for_update().filter(day__in=days).order_by("day"))  # one worker at a time
    ChangedDay.objects.filter(day__in=days).delete()
    for sums in (ModelUsage, PersonUsage, DayFigures):
        sums._default_manager.filter(day__in=days).delete()
    ModelUsage.objects.bulk_create(_usage_of_models(span))
    PersonUsage.objects.bulk_create(_usage(span, PersonUsage, project_id=_PROJECT, user_id=_PERSON))
    PersonUsage.objects.bulk_create(_usage(span, PersonUsage, user_id=_PERSON))
    DayFigures.objects.bulk_create(_figures(span))


_PERSON, _PROJECT = "step__task__created_by", "step__task__project"


def _usage(span: Days, sums: Any, **columns: str) -> Iterator[Any]:
    """Yield rows of `sums` by day and by columns of runs, which `columns` has by their names there."""
    runs = Run.objects.filter(**span.conditions("started_at")).order_by()
    rows = runs.annotate(day=Day("started_at")).values("day", *columns.values()).annotate(**SUMS)
    for row in rows:
        own = {name: row[column] for name, column in columns.items()}
        yield sums(day=row["day"], **own, **{name: row[name] or 0 for name in SUMS})


def _usage_of_models(span: Days) -> Iterator[ModelUsage]:
    runs = Run.objects.filter(**span.conditions("started_at")).order_by()
    found: dict[tuple[date, int, str], Usage] = defaultdict(Usage)
    for (day, project_id), model, usage in usage_by_model(
        runs.annotate(day=Day("started_at")), "day", _PROJECT
    ):
        found[day, project_id, model] += usage
    for (day, project_id, model), usage in found.items():
        yield ModelUsage(day=day, project_id=project_id, model=model, **asdict(usage))


def _figures(span: Days) -> Iterator[DayFigures]:
    """Return the figures of runs, tasks and questions of a project and a day in one row."""
    found: dict[tuple[date, int], dict[str, Any]] = {}
    for model, column, project, figures in FIGURES:
        of_days: QuerySet[Any] = model._default_manager.filter(**span.conditions(column)).order_by()
        if model is Question:
            of_days = with_share(of_days)
        rows = of_days.annotate(day=Day(column)).values("day", project).annotate(**figures)
        for row in rows:
            values = {name: row[name] for name in figures if row[name] is not None}
            found.setdefault((row["day"], row[project]), {}).update(values)
    for (day, project_id), values in found.items():
        yield DayFigures(day=day, project_id=project_id, **values)


# Days in UTC, and which of them have sums that hold.


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
    """A range of days in two parts, each as ranges in order: days with valid sums, and the others."""

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
    """Return which of these days have valid sums. Without arguments, of all time. One query.

    Queries with both conditions count each row once, even if days are added up meanwhile.
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
    """Return the days that are in none of the ranges."""
    found = []
    for one in ranges:
        if since < one.since:
            found.append(Days(since, one.since - DAY))
        since = one.until + DAY
    if since <= until:
        found.append(Days(since, until))
    return found


def _overlaps(ranges: Iterable[Days], days: Days) -> list[Days]:
    found = (Days(max(one.since, days.since), min(one.until, days.until)) for one in ranges)
    return [one for one in found if one.since <= one.until]


def _any(conditions: Iterable[Q]) -> Q:
    return reduce(or_, conditions, Q(pk__in=[]))
