"""What a task's page says about it, worked out from its rows."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.utils import timezone

from tasks_app import places
from tasks_app.actions.pauses import pause_seconds
from tasks_app.models import Run, Step, Task
from tasks_app.state.phases import CANCELLABLE, RESUMABLE, Phase


@dataclass(frozen=True)
class Spent:
    """Tokens and dollars of some runs. `input` counts cached tokens too: all that the model read."""

    input: int = 0
    output: int = 0
    dollars: float = 0.0

    @property
    def any(self) -> bool:
        return bool(self.input or self.output)


@dataclass(frozen=True)
class StepFacts:
    step: Step
    runs: list[tuple[Run, Spent, float]]
    spent: Spent
    seconds: float | None


@dataclass(frozen=True)
class TaskFacts:
    """`seconds` is the whole time, `working` the time without waiting for people and limits."""

    task: Task
    steps: list[StepFacts]
    spent: Spent
    seconds: float | None
    working: float | None
    repository: str

    @property
    def phase(self) -> Phase:
        return Phase(self.task.phase)

    @property
    def can_cancel(self) -> bool:
        return self.phase in CANCELLABLE and not self.task.not_started

    @property
    def can_go_on(self) -> bool:
        return self.phase in RESUMABLE

    @property
    def current_step(self) -> Step | None:
        return next((facts.step for facts in self.steps if facts.step.phase != Phase.DONE), None)


def facts_of(task: Task) -> TaskFacts:
    steps = [_step_facts(step) for step in task.steps.prefetch_related("runs")]
    seconds = _seconds(task.started_at, task.ended_at)
    paused = task.paused_seconds + pause_seconds(task)
    return TaskFacts(
        task=task,
        steps=steps,
        spent=_sum([facts.spent for facts in steps]),
        seconds=seconds,
        working=None if seconds is None else max(0.0, seconds - paused),
        repository=str(places.repository(task.project).path),
    )


def _step_facts(step: Step) -> StepFacts:
    runs = [(run, _spent(run), _seconds(run.started_at, run.ended_at) or 0.0) for run in step.runs.all()]
    worked = sum(seconds for _, _, seconds in runs) if runs else None
    return StepFacts(step, runs, _sum([spent for _, spent, _ in runs]), worked)


def _spent(run: Run) -> Spent:
    usage = run.usage
    read = usage.input_tokens + usage.cache_write_tokens + usage.cache_read_tokens
    return Spent(read, usage.output_tokens, usage.cost_usd)


def _sum(parts: list[Spent]) -> Spent:
    return Spent(
        sum(part.input for part in parts),
        sum(part.output for part in parts),
        sum(part.dollars for part in parts),
    )


def _seconds(start: datetime | None, end: datetime | None) -> float | None:
    return ((end or timezone.now()) - start).total_seconds() if start else None
