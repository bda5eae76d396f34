"""What was used and how long it took (P11, H11): of steps, tasks and sequences, and by model, user, project.

Each function asks a fixed number of questions to the database, however many things it is given.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from django.db.models import Count, F, Max, Q, QuerySet, Sum
from django.utils import timezone

from tasks_app.core.phases import ENDED, Phase
from tasks_app.core.types import Usage
from tasks_app.models import Run, Sequence, Step, Task, Transition
from tasks_app.models.phased import Phased

#: Nothing runs, until a human or a usage limit lets it.
PAUSES = frozenset({Phase.WAITING_FOR_INPUT, Phase.WAITING_FOR_RESET, Phase.INTERRUPTED})

_SUMS = {
    name: Sum(name)
    for name in ("input_tokens", "output_tokens", "cache_write_tokens", "cache_read_tokens", "cost_usd")
}


class By(StrEnum):
    """What usage is told apart by; the value is the way there from a run."""

    MODEL = "model"
    USER = "step__task__created_by__username"
    PROJECT = "step__task__project__name"


@dataclass(frozen=True)
class Duration:
    """Seconds. `total` from start to end, or until now, None before the start; `paused`: waiting of these.

    Waiting is for humans (an answer, or the word to go on) and for usage limits.
    """

    total: float | None = None
    paused: float = 0.0

    @property
    def working(self) -> float | None:
        """The total without the pauses."""
        return None if self.total is None else max(0.0, self.total - self.paused)


@dataclass(frozen=True)
class Figures:
    """What something used, in all and by model, and how long it took."""

    usage: Usage = field(default_factory=Usage)
    by_model: Mapping[str, Usage] = field(default_factory=dict)
    duration: Duration = field(default_factory=Duration)


def usage_of(runs: QuerySet[Run]) -> Usage:
    """What the runs used together."""
    return _usage(runs.order_by().aggregate(**_SUMS))


def usage_by(runs: QuerySet[Run], dimension: By) -> dict[str, Usage]:
    """What the runs used, told apart; under "" where a model is not known or a user is gone."""
    rows = runs.order_by().values(dimension.value).annotate(**_SUMS)
    return {str(row[dimension.value] or ""): _usage(row) for row in rows}


def of_task(task: Task) -> Figures:
    return of_tasks([task])[task.pk]


def of_tasks(tasks: Collection[Task]) -> dict[int, Figures]:
    """Figures by the task's id."""
    used = _by_model(Run.objects.filter(step__task__in=[task.pk for task in tasks]), "step__task")
    began = _pauses_began(tasks)
    return {task.pk: _figures(used[task.pk], _duration_of(task, began.get(task.pk))) for task in tasks}


def of_steps(steps: Collection[Step]) -> dict[int, Figures]:
    """Figures by the step's id; its pauses are those of its own history."""
    used = _by_model(Run.objects.filter(step__in=[step.pk for step in steps]), "step")
    paused, queued = _paused_steps(steps)
    return {
        step.pk: _figures(used[step.pk], _duration_of_step(step, paused[step.pk], queued[step.pk]))
        for step in steps
    }


def of_sequence(sequence: Sequence) -> Figures:
    return of_sequences([sequence])[sequence.pk]


def of_sequences(sequences: Collection[Sequence]) -> dict[int, Figures]:
    """Figures by the sequence's id: the sums of its tasks, and the time from its start to its end."""
    tasks = Task.objects.filter(sequence__in=[sequence.pk for sequence in sequences]).defer("text", "body")
    parts = of_tasks(list(tasks))
    found: dict[int, list[Figures]] = defaultdict(list)
    for task in tasks:
        found[task.sequence_id or 0].append(parts[task.pk])
    return {sequence.pk: _rolled_up(sequence, found[sequence.pk]) for sequence in sequences}


def tasks_done(sequences: Collection[Sequence]) -> dict[int, tuple[int, int]]:
    """By the sequence's id: how many of its tasks are done, and how many were begun."""
    rows = Task.objects.filter(sequence__in=[sequence.pk for sequence in sequences]).order_by()
    counts = rows.values("sequence").annotate(done=Count("pk", filter=Q(phase=Phase.DONE)), begun=Count("pk"))
    found = {row["sequence"]: (row["done"], row["begun"]) for row in counts}
    return {sequence.pk: found.get(sequence.pk, (0, 0)) for sequence in sequences}


def run_seconds(run: Run) -> float:
    """From the start of the agent's process to its end, or until now."""
    return ((run.ended_at or timezone.now()) - run.started_at).total_seconds()


def paused_until_now(task: Task) -> float:
    """Seconds that the task waited so far; to be stored when it stops waiting.

    The time between its end and the word to go on is waiting too.
    """
    waits = PAUSES | ENDED
    return task.paused_seconds + _since(_pauses_began([task], waits).get(task.pk))


def _usage(row: Mapping[str, float | None]) -> Usage:
    return Usage(**{name: row[name] or 0 for name in _SUMS})  # type: ignore[arg-type]


def _by_model(runs: QuerySet[Run], owner: str) -> dict[int, dict[str, Usage]]:
    found: dict[int, dict[str, Usage]] = defaultdict(dict)
    for row in runs.order_by().values(owner, "model").annotate(**_SUMS):
        if (usage := _usage(row)) != Usage():  # a run under way has not told what it uses
            found[row[owner]][row["model"]] = usage
    return found


def _figures(by_model: Mapping[str, Usage], duration: Duration) -> Figures:
    return Figures(sum(by_model.values(), Usage()), dict(by_model), duration)


def _rolled_up(sequence: Sequence, tasks: Iterable[Figures]) -> Figures:
    by_model: dict[str, Usage] = defaultdict(Usage)
    paused = 0.0
    for figures in tasks:
        paused += figures.duration.paused
        for model, usage in figures.by_model.items():
            by_model[model] += usage
    return _figures(by_model, Duration(_total(sequence), paused))


def _duration_of(task: Task, pause_began: datetime | None) -> Duration:
    return Duration(_total(task), task.paused_seconds + _since(pause_began))


def _duration_of_step(step: Step, paused: float, queued: float) -> Duration:
    """`queued`: seconds since it was put back to pending. Its time goes on when a worker takes it up."""
    total = _total(step)
    return Duration(None if total is None else max(0.0, total - queued), paused)


def _total(thing: Phased) -> float | None:
    if thing.started_at is None:
        return None
    return ((thing.ended_at or timezone.now()) - thing.started_at).total_seconds()


def _since(at: datetime | None) -> float:
    return (timezone.now() - at).total_seconds() if at else 0.0


def _pauses_began(tasks: Iterable[Task], phases: Collection[Phase] = PAUSES) -> dict[int, datetime]:
    """When each of the tasks that are in one of these phases came to be in it."""
    waiting = [task.pk for task in tasks if task.phase in phases and task.started_at is not None]
    if not waiting:
        return {}
    moves = Transition.objects.filter(task__in=waiting, step=None, target=F("task__phase")).order_by()
    return dict(moves.values_list("task").annotate(Max("at")))


def _paused_steps(steps: Iterable[Step]) -> tuple[dict[int, float], dict[int, float]]:
    """Seconds that each step did not work: in pauses that are over or last, and pending until now.

    A pause lasts from the move into it, or to an end or back to pending, to the move out of it.
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
            paused[step] += _since(at)
        elif target == Phase.PENDING:
            queued[step] = _since(at)
    return paused, queued
