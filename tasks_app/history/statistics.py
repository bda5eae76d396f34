"""Usage and durations (P11, H11) of steps, tasks and sequences, and usage by model, user and project.

Each function makes a fixed number of queries, however many rows it is given.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from django.db.models import Count, F, Max, Q, QuerySet, Sum
from django.utils import timezone

from tasks_app.core.phases import ENDED, Phase
from tasks_app.core.types import Usage
from tasks_app.models import ModelUsage, Run, Sequence, Step, Task, Transition
from tasks_app.models.phased import Phased

#: Phases in which a task waits for a human or for the reset of a usage limit.
PAUSES = frozenset({Phase.WAITING_FOR_INPUT, Phase.WAITING_FOR_RESET, Phase.INTERRUPTED})
#: Phases in which a task that was started does not work: in the last one it is queued again.
NOT_WORKING = PAUSES | {Phase.PENDING}

_SUMS = {
    name: Sum(name)
    for name in ("input_tokens", "output_tokens", "cache_write_tokens", "cache_read_tokens", "cost_usd")
}


class By(StrEnum):
    """A dimension of usage; the value is the lookup from a run."""

    MODEL = "model"
    USER = "step__task__created_by__username"
    PROJECT = "step__task__project__name"


@dataclass(frozen=True)
class Duration:
    """Seconds: `total` from start to end or now, None before the start; `paused` is the part spent waiting.

    Waiting is for humans (an answer, or resuming), for usage limits, and after that for a worker.
    """

    total: float | None = None
    paused: float = 0.0

    @property
    def working(self) -> float | None:
        """The total without the pauses."""
        return None if self.total is None else max(0.0, self.total - self.paused)


@dataclass(frozen=True)
class Metrics:
    """Usage, in total and by model, and duration."""

    usage: Usage = field(default_factory=Usage)
    by_model: Mapping[str, Usage] = field(default_factory=dict)
    duration: Duration = field(default_factory=Duration)


def usage_of(runs: QuerySet[Run] | QuerySet[ModelUsage]) -> Usage:
    """Return the total usage of the runs, or of days."""
    return _to_usage(runs.order_by().aggregate(**_SUMS))


def of_task(task: Task) -> Metrics:
    return of_tasks([task])[task.pk]


def of_tasks(tasks: Collection[Task]) -> dict[int, Metrics]:
    """Return metrics by task id."""
    used = _usage_by_model(Run.objects.filter(step__task__in=[task.pk for task in tasks]), "step__task")
    starts = _pause_starts(tasks)
    paused = {task.pk: task.paused_seconds + _seconds_since(starts.get(task.pk)) for task in tasks}
    return {
        task.pk: _metrics(used[task.pk], Duration(_total_seconds(task), paused[task.pk])) for task in tasks
    }


def of_steps(steps: Collection[Step]) -> dict[int, Metrics]:
    """Return metrics by step id; pauses are those of the step's own transitions."""
    used = _usage_by_model(Run.objects.filter(step__in=[step.pk for step in steps]), "step")
    paused, queued = _step_pauses(steps)
    return {
        step.pk: _metrics(used[step.pk], _step_duration(step, paused[step.pk], queued[step.pk]))
        for step in steps
    }


def of_sequence(sequence: Sequence) -> Metrics:
    return of_sequences([sequence])[sequence.pk]


def of_sequences(sequences: Collection[Sequence]) -> dict[int, Metrics]:
    """Return metrics by sequence id: the sums of its tasks, and the time from its start to its end."""
    tasks = Task.objects.filter(sequence__in=[sequence.pk for sequence in sequences]).defer("text", "body")
    parts = of_tasks(list(tasks))
    found: dict[int, list[Metrics]] = defaultdict(list)
    for task in tasks:
        found[task.sequence_id or 0].append(parts[task.pk])
    return {sequence.pk: _sum_of_tasks(sequence, found[sequence.pk]) for sequence in sequences}


def tasks_done(sequences: Collection[Sequence]) -> dict[int, tuple[int, int]]:
    """Return the numbers of done and of created tasks by sequence id."""
    rows = Task.objects.filter(sequence__in=[sequence.pk for sequence in sequences]).order_by()
    counts = rows.values("sequence").annotate(done=Count("pk", filter=Q(phase=Phase.DONE)), begun=Count("pk"))
    found = {row["sequence"]: (row["done"], row["begun"]) for row in counts}
    return {sequence.pk: found.get(sequence.pk, (0, 0)) for sequence in sequences}


def run_seconds(run: Run) -> float:
    """Return the seconds from the start of the agent's process to its end or now."""
    return ((run.ended_at or timezone.now()) - run.started_at).total_seconds()


def paused_until_now(task: Task) -> float:
    """Return the seconds that the task has waited so far, to be stored when it stops waiting.

    The time between its end and a resume counts as waiting too.
    """
    return task.paused_seconds + _seconds_since(_pause_starts([task], NOT_WORKING | ENDED).get(task.pk))


def _to_usage(row: Mapping[str, float | None]) -> Usage:
    return Usage(**{name: row[name] or 0 for name in _SUMS})  # type: ignore[arg-type]


def _usage_by_model(runs: QuerySet[Run], owner: str) -> dict[int, dict[str, Usage]]:
    found: dict[int, dict[str, Usage]] = defaultdict(dict)
    rows = runs.order_by().values(owner, "model", "by_model").annotate(**_SUMS, runs=Count("pk"))
    for row in rows:
        if (total := _to_usage(row)) == Usage():  # a run that has not reported its usage yet
            continue
        of_owner = found[row[owner]]
        for model, usage in divided(row["model"], row["by_model"], total, runs=row["runs"]):
            of_owner[model] = of_owner.get(model, Usage()) + usage
    return found


def divided(
    model: str, by_model: Mapping[str, list[float]] | None, total: Usage, *, runs: int
) -> Iterator[tuple[str, Usage]]:
    """Yield the usage of each model of a group of runs with the same `model` and `by_model`."""
    if by_model is None:
        yield model, total
        return
    for name, amounts in by_model.items():
        yield name, Usage(*(amount * runs for amount in amounts))  # type: ignore[arg-type]


def _metrics(by_model: Mapping[str, Usage], duration: Duration) -> Metrics:
    return Metrics(sum(by_model.values(), Usage()), dict(by_model), duration)


def _sum_of_tasks(sequence: Sequence, tasks: Iterable[Metrics]) -> Metrics:
    by_model: dict[str, Usage] = defaultdict(Usage)
    paused = 0.0
    for metrics in tasks:
        paused += metrics.duration.paused
        for model, usage in metrics.by_model.items():
            by_model[model] += usage
    return _metrics(by_model, Duration(_total_seconds(sequence), paused))


def _step_duration(step: Step, paused: float, queued: float) -> Duration:
    """Return the step's duration without `queued`, the seconds since it was put back to pending."""
    total = _total_seconds(step)
    return Duration(None if total is None else max(0.0, total - queued), paused)


def _total_seconds(thing: Phased) -> float | None:
    if thing.started_at is None:
        return None
    return ((thing.ended_at or timezone.now()) - thing.started_at).total_seconds()


def _seconds_since(at: datetime | None) -> float:
    return (timezone.now() - at).total_seconds() if at else 0.0


def _pause_starts(tasks: Iterable[Task], phases: Collection[Phase] = NOT_WORKING) -> dict[int, datetime]:
    """Return when each task that is in one of these phases entered it."""
    waiting = [task.pk for task in tasks if task.phase in phases and task.started_at is not None]
    if not waiting:
        return {}
    moves = Transition.objects.filter(task__in=waiting, step=None, target=F("task__phase")).order_by()
    return dict(moves.values_list("task").annotate(Max("at")))


def _step_pauses(steps: Iterable[Step]) -> tuple[dict[int, float], dict[int, float]]:
    """Return the seconds of each step in pauses, and those since it was put back to pending.

    A pause lasts from the transition into a pause, an end or pending to the next transition.
    """
    ids = [step.pk for step in steps if step.started_at is not None]
    paused: dict[int, float] = defaultdict(float)
    queued: dict[int, float] = defaultdict(float)
    last: dict[int, tuple[str, datetime]] = {}
    moves = Transition.objects.filter(step__in=ids).order_by("at", "pk").values_list("step", "target", "at")
    for step, target, at in moves:
        if step in last and last[step][0] in PAUSES | ENDED | {Phase.PENDING}:
            paused[step] += (at - last[step][1]).total_seconds()
        last[step] = (target, at)
    for step, (target, at) in last.items():
        if target in PAUSES:
            paused[step] += _seconds_since(at)
        elif target == Phase.PENDING:
            queued[step] = _seconds_since(at)
    return paused, queued
