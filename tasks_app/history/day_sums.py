"""Adding up days (P11): usage by model and by person, and figures of runs, tasks and questions.

A day is added up when the next one has passed, so that a transaction over midnight, or a worker whose clock
is a few hours off, does not matter; until then its rows are read. Each later change of one of its rows is
noted by the database in the transaction that changes it. A noted day is read from its rows until it is added
up again, so the sums and the rows never differ for a reader, and nothing is counted twice or lost.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import date, datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import Count, Min, QuerySet, Sum
from django.utils import timezone

from tasks_app.core.types import Usage
from tasks_app.history.day_figures import FIGURES, with_share
from tasks_app.history.days import DAY, Days
from tasks_app.history.sql_functions import Day
from tasks_app.history.statistics import divided
from tasks_app.models import (
    ChangedDay,
    DayFigures,
    ModelUsage,
    PersonUsage,
    Question,
    Run,
    SummedDay,
    Task,
)

#: Days that one transaction adds up: on SQLite nobody else writes meanwhile.
AT_ONCE = 7
#: How old a day is that is added up.
AGE = timedelta(days=2)
SUMS = {
    name: Sum(name)
    for name in ("input_tokens", "output_tokens", "cache_write_tokens", "cache_read_tokens", "cost_usd")
}


def add_up_days(*, at_once: int = AT_ONCE) -> int:
    """Add up the newest days without sums, and those that changed; return how many. For the sweeper."""
    last = timezone.now().date() - AGE
    changed = ChangedDay.objects.filter(day__lte=last).order_by("day").values_list("day", flat=True)
    days = set(changed.distinct()[:at_once])
    days |= set(_newest_without_sums(last, at_once - len(days)))
    for run in _consecutive(sorted(days)):
        _add_up(run)
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


def _consecutive(days: Sequence[date]) -> Iterator[list[date]]:
    """Yield the days in runs without a gap."""
    found: list[date] = []
    for day in days:
        if found and found[-1] != day - DAY:
            yield found
            found = []
        found.append(day)
    if found:
        yield found


@transaction.atomic
def _add_up(days: list[date]) -> None:
    """Write the sums of consecutive days anew.

    What is noted is removed first: who changes a row later notes the day again, and whose change is committed
    by then is seen by what is read after it.
    """
    SummedDay.objects.bulk_create([SummedDay(day=day) for day in days], ignore_conflicts=True)
    list(SummedDay.objects.select_for_update().filter(day__in=days).order_by("day"))  # one worker at a time
    ChangedDay.objects.filter(day__in=days).delete()
    span = Days(days[0], days[-1])
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
    groups = runs.annotate(day=Day("started_at")).values("day", _PROJECT, "model", "by_model")
    found: dict[tuple[date, int, str], Usage] = defaultdict(Usage)
    for row in groups.annotate(**SUMS, runs=Count("pk")):
        total = Usage(*(row[name] or 0 for name in SUMS))
        for model, usage in divided(row["model"], row["by_model"], total, runs=row["runs"]):
            found[row["day"], row[_PROJECT], model] += usage
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
