"""What a task of a pipeline is likely to cost and to take: figures of the project's own past."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import timedelta
from math import ceil
from statistics import median
from typing import Any

from django.db.models import Sum

from tasks_app.core.phases import Phase
from tasks_app.models import Project, Run, Task

#: Newest done tasks of a project that are looked at.
LOOKED_AT = 500
#: With fewer tasks the 90th percentile would be no more than the dearest task.
FEWEST = 10


@dataclass(frozen=True)
class Spread:
    """The median, and what nine of ten values do not exceed."""

    median: float
    p90: float


@dataclass(frozen=True)
class Forecast:
    """Dollars and seconds of work of `tasks` done tasks; None if there are too few of them."""

    tasks: int = 0
    cost: Spread | None = None
    working: Spread | None = None


def forecasts(project: Project) -> dict[str, Forecast]:
    """Return the forecast of each pipeline that has done tasks, from one query of bounded size."""
    done = Task.objects.filter(project=project, phase=Phase.DONE, early_end="", started_at__isnull=False)
    runs = Run.objects.filter(step__task__in=done.order_by("-pk").values("pk")[:LOOKED_AT]).order_by()
    columns = ("pipeline", "started_at", "ended_at", "paused_seconds")
    by_task = runs.values("step__task", *(f"step__task__{column}" for column in columns))
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in by_task.annotate(cost=Sum("cost_usd")):
        found[row["step__task__pipeline"]].append(row)
    return {pipeline: _forecast_from(tasks) for pipeline, tasks in found.items()}


def _forecast_from(tasks: list[dict[str, Any]]) -> Forecast:
    if len(tasks) < FEWEST:
        return Forecast(len(tasks))
    costs, seconds = [row["cost"] for row in tasks], [_working_seconds(row) for row in tasks]
    return Forecast(len(tasks), _spread(costs), _spread(seconds))


def _working_seconds(row: dict[str, Any]) -> float:
    """Return the seconds from start to end without the pauses."""
    lasted: timedelta = row["step__task__ended_at"] - row["step__task__started_at"]
    return max(0.0, lasted.total_seconds() - float(row["step__task__paused_seconds"]))


def _spread(values: list[float]) -> Spread:
    ordered = sorted(values)
    return Spread(median(ordered), ordered[ceil(0.9 * len(ordered)) - 1])
