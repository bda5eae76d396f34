"""What a task's page says about it, worked out from its rows."""

from __future__ import annotations

from dataclasses import dataclass

from django.utils import timezone

from tasks_app import places, stats
from tasks_app.engine.limits import reset_words
from tasks_app.models import Run, Step, Task
from tasks_app.state.phases import CANCELLABLE, RESUMABLE, Phase
from tasks_app.types import Usage


@dataclass(frozen=True)
class StepFacts:
    step: Step
    runs: list[tuple[Run, Usage, float]]
    spent: Usage
    seconds: float | None


@dataclass(frozen=True)
class TaskFacts:
    """`seconds` is the whole time, `working` the time without waiting for people and limits."""

    task: Task
    steps: list[StepFacts]
    spent: Usage
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
    def limit(self) -> str:
        """When the usage limit that the task waits for resets."""
        if self.phase is not Phase.WAITING_FOR_RESET:
            return ""
        return reset_words(self.task.resets_at, now=timezone.now())

    @property
    def current_step(self) -> Step | None:
        return next((facts.step for facts in self.steps if facts.step.phase != Phase.DONE), None)


def facts_of(task: Task) -> TaskFacts:
    figures = stats.of_task(task)
    return TaskFacts(
        task=task,
        steps=_step_facts(task),
        spent=figures.usage,
        seconds=figures.duration.total,
        working=figures.duration.working,
        repository=str(places.repository(task.project).path),
    )


def _step_facts(task: Task) -> list[StepFacts]:
    steps = list(task.steps.prefetch_related("runs"))
    figures = stats.of_steps(steps)
    return [
        StepFacts(
            step,
            [(run, run.usage, stats.run_seconds(run)) for run in step.runs.all()],
            figures[step.pk].usage,
            figures[step.pk].duration.working,
        )
        for step in steps
    ]
