"""Usage and durations (P11, H11) of steps, tasks and sequences, and what is likely for a new task.

Each function makes a fixed number of queries, however many rows it is given.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import ceil
from statistics import median
from typing import Any

from django.db.models import Count, Q, QuerySet, Sum
from django.utils import timezone

from tasks_app.core.phases import ENDED, Phase
from tasks_app.core.types import Usage
from tasks_app.history.transitions import NOT_WORKING, PAUSES, pause_starts
from tasks_app.models import ModelUsage, Project, Run, Sequence, Step, Task, Transition
from tasks_app.models.phased import Phased

SUMS = {
    name: Sum(name)
    for name in ("input_tokens", "output_tokens", "cache_write_tokens", "cache_read_tokens", "cost_usd")
}


@dataclass(frozen=True)
class Duration:
    """Seconds: `total` from start to end or now, None before the start; `paused` is the part spent waiting.

    Waiting is for humans (an answer, or resuming), for usage limits, and after that for a worker. The time
    from an end until a human resumed the work counts as neither.

    What works or waits now would have done so since `working_since` or `waiting_since` without a break: from
    these moments pages count on, so that one time has the same figure wherever it stands.
    """

    total: float | None = None
    paused: float = 0.0
    working_since: datetime | None = field(default=None, compare=False)
    waiting_since: datetime | None = field(default=None, compare=False)

    @property
    def working(self) -> float | None:
        """The total without the pauses."""
        if self.total is None:
            return None
        return max(0.0, self.total - self.paused)


@dataclass(frozen=True)
class Metrics:
    """Usage, in total and by model, and duration."""

    usage: Usage = field(default_factory=Usage)
    by_model: Mapping[str, Usage] = field(default_factory=dict)
    duration: Duration = field(default_factory=Duration)


def usage_of(runs: QuerySet[Run] | QuerySet[ModelUsage]) -> Usage:
    """Return the total usage of the runs, or of days."""
    return _to_usage(runs.order_by().aggregate(**SUMS))


def of_task(task: Task) -> Metrics:
    return of_tasks([task])[task.pk]


def of_tasks(tasks: Collection[Task]) -> dict[int, Metrics]:
    """Return metrics by task id."""
    used = _usage_of_owners(Run.objects.filter(step__task__in=[task.pk for task in tasks]), "step__task")
    starts, now = pause_starts(tasks), timezone.now()
    found = {}
    for task in tasks:
        duration = _duration(task, task.paused_seconds, task.idle_seconds, now, starts.get(task.pk))
        found[task.pk] = _metrics(used[task.pk], duration)
    return found


def of_steps(steps: Collection[Step]) -> dict[int, Metrics]:
    """Return metrics by step id; pauses follow from the step's own transitions."""
    used = _usage_of_owners(Run.objects.filter(step__in=[step.pk for step in steps]), "step")
    now = timezone.now()
    paused, idle = _step_pauses(steps, now)
    return {
        step.pk: _metrics(used[step.pk], _duration(step, paused[step.pk], idle[step.pk], now))
        for step in steps
    }


def of_sequence(sequence: Sequence) -> Metrics:
    return of_sequences([sequence])[sequence.pk]


def of_sequences(sequences: Collection[Sequence]) -> dict[int, Metrics]:
    """Return metrics by sequence id: the sums of its tasks, and the time from its start to its end."""
    tasks = Task.objects.filter(sequence__in=[sequence.pk for sequence in sequences]).defer("text", "body")
    parts = of_tasks(list(tasks))
    found: dict[int, list[Metrics]] = defaultdict(list)
    idle: dict[int, float] = defaultdict(float)
    for task in tasks:
        found[task.sequence_id or 0].append(parts[task.pk])
        idle[task.sequence_id or 0] += task.idle_seconds
    return {one.pk: _sum_of_tasks(one, found[one.pk], idle[one.pk]) for one in sequences}


def tasks_done(sequences: Collection[Sequence]) -> dict[int, tuple[int, int]]:
    """Return the numbers of done and of started tasks by sequence id."""
    rows = Task.objects.filter(sequence__in=[sequence.pk for sequence in sequences]).order_by()
    counts = rows.values("sequence").annotate(
        done=Count("pk", filter=Q(phase=Phase.DONE)), begun=Count("pk", filter=Q(started_at__isnull=False))
    )
    found = {row["sequence"]: (row["done"], row["begun"]) for row in counts}
    return {sequence.pk: found.get(sequence.pk, (0, 0)) for sequence in sequences}


def _to_usage(row: Mapping[str, float | None]) -> Usage:
    return Usage(**{name: row[name] or 0 for name in SUMS})  # type: ignore[arg-type]


def _usage_of_owners(runs: QuerySet[Run], owner: str) -> dict[int, dict[str, Usage]]:
    found: dict[int, dict[str, Usage]] = defaultdict(dict)
    for (pk,), model, usage in usage_by_model(runs, owner):
        if usage != Usage():  # otherwise its run has not reported its usage yet
            found[pk][model] = found[pk].get(model, Usage()) + usage
    return found


def usage_by_model(runs: QuerySet[Run], *columns: str) -> Iterator[tuple[tuple[Any, ...], str, Usage]]:
    """Yield the columns' values, a model and its usage; the same values and model may come several times."""
    groups = runs.order_by().values(*columns, "model", "by_model")
    for row in groups.annotate(**SUMS, runs=Count("pk")):
        key = tuple(row[column] for column in columns)
        if row["by_model"] is None:
            yield key, row["model"], _to_usage(row)
        else:  # all runs of the group have the same
            for model, amounts in row["by_model"].items():
                yield key, model, Usage(*(amount * row["runs"] for amount in amounts))


def _metrics(by_model: Mapping[str, Usage], duration: Duration) -> Metrics:
    return Metrics(sum(by_model.values(), Usage()), dict(by_model), duration)


def _sum_of_tasks(sequence: Sequence, tasks: Iterable[Metrics], idle: float) -> Metrics:
    by_model: dict[str, Usage] = defaultdict(Usage)
    paused = 0.0
    for metrics in tasks:
        paused += metrics.duration.paused
        for model, usage in metrics.by_model.items():
            by_model[model] += usage
    return _metrics(by_model, _duration(sequence, paused, idle, timezone.now()))


def _duration(
    thing: Phased, paused: float, idle: float, now: datetime, pause_start: datetime | None = None
) -> Duration:
    """Return the duration without `idle`, the seconds in which it had ended or stood still.

    `paused` are those of earlier pauses, `pause_start` is the beginning of the present one.
    """
    since = None
    if pause_start:
        since = pause_start - timedelta(seconds=paused)
        paused = (now - since).total_seconds()
    if thing.started_at is None:
        return Duration(None, paused, waiting_since=since)
    total = max(0.0, ((thing.ended_at or now) - thing.started_at).total_seconds() - idle)
    return Duration(total, paused, thing.started_at + timedelta(seconds=paused + idle), since)


def _step_pauses(steps: Iterable[Step], now: datetime) -> tuple[dict[int, float], dict[int, float]]:
    """Return the seconds of each step in pauses, and those in which it had ended or stood still.

    A pause lasts from the transition into a pause or pending to the next transition. A step stands still
    since it was put back to pending.
    """
    ids = [step.pk for step in steps if step.started_at is not None]
    paused: dict[int, float] = defaultdict(float)
    idle: dict[int, float] = defaultdict(float)
    last: dict[int, tuple[str, datetime]] = {}
    moves = Transition.objects.filter(step__in=ids).order_by("at", "pk").values_list("step", "target", "at")
    for step, target, at in moves:
        if step in last and last[step][0] in NOT_WORKING | ENDED:
            seconds = idle if last[step][0] in ENDED else paused
            seconds[step] += (at - last[step][1]).total_seconds()
        last[step] = (target, at)
    for step, (target, at) in last.items():
        if target in PAUSES:
            paused[step] += (now - at).total_seconds()
        elif target == Phase.PENDING:
            idle[step] += (now - at).total_seconds()
    return paused, idle


# What a task of a pipeline is likely to cost and to take, from done tasks of its project.


#: Newest done tasks of a project that are looked at.
LOOKED_AT = 500
#: With fewer tasks the 90th percentile would just be the most expensive task.
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
    runs = runs.exclude(rehearsed=True)  # they cost nothing
    columns = ("pipeline", "started_at", "ended_at", "paused_seconds", "idle_seconds")
    by_task = runs.values("step__task", *(f"step__task__{column}" for column in columns))
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in by_task.annotate(cost=Sum("cost_usd")):
        found[row["step__task__pipeline"]].append(row)
    by_pipeline = {}
    for pipeline, tasks in found.items():
        by_pipeline[pipeline] = Forecast(len(tasks))
        if len(tasks) >= FEWEST:
            costs, seconds = [row["cost"] for row in tasks], [_working_seconds(row) for row in tasks]
            by_pipeline[pipeline] = Forecast(len(tasks), spread(costs), spread(seconds))
    return by_pipeline


def _working_seconds(row: dict[str, Any]) -> float:
    """Return the seconds from start to end without the pauses."""
    lasted: timedelta = row["step__task__ended_at"] - row["step__task__started_at"]
    not_working = float(row["step__task__paused_seconds"]) + float(row["step__task__idle_seconds"])
    return max(0.0, lasted.total_seconds() - not_working)


def spread(values: list[float]) -> Spread:
    """Return the spread of one value or more."""
    ordered = sorted(values)
    return Spread(median(ordered), ordered[ceil(0.9 * len(ordered)) - 1])
