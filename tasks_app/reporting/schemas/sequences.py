"""JSON models of sequences."""

from __future__ import annotations

from typing import Any, Self

from pydantic import Field

from tasks_app.core.phases import Phase
from tasks_app.history import statistics
from tasks_app.history.statistics import Metrics
from tasks_app.models import Sequence, Task
from tasks_app.reporting.schemas.base import HasMetrics, HasTimes, metrics_fields, user_or_none
from tasks_app.reporting.schemas.costs import HasForecast
from tasks_app.reporting.schemas.tasks import TaskOut, TaskOutcome, tasks_out


class SequenceOut(HasTimes, HasMetrics):
    """A folder of tasks that run one after the other on one branch."""

    sequence: int = Field(description="The sequence's id.")
    project: str = Field(description="The name of its project.")
    name: str = Field(description="`project/slug`, as commands take it.")
    folder: str = Field(description="The folder in the repository.")
    phase: Phase = Field(description="What it does or waits for: the phase of the task at hand.")
    failure: str = Field(description="Why it failed; else empty.")
    branch: str = Field(description="The branch that all its tasks work on.")
    commit: str = Field(description="The newest commit of its work; empty before the first.")

    @classmethod
    def of(cls, sequence: Sequence, *, metrics: Metrics | None = None, **more: Any) -> Self:
        """Make a model; callers with many sequences pass `metrics` to save queries."""
        return cls(
            sequence=sequence.pk,
            project=sequence.project.name,
            name=f"{sequence.project.name}/{sequence.slug}",
            folder=sequence.folder,
            phase=Phase(sequence.phase),
            failure=sequence.failure,
            created_by=user_or_none(sequence.created_by),
            created_at=sequence.created_at,
            started_at=sequence.started_at,
            ended_at=sequence.ended_at,
            **metrics_fields(metrics or statistics.of_sequence(sequence)),
            branch=sequence.branch,
            commit=sequence.head_commit,
            **more,
        )


class SequenceWithTasks(SequenceOut):
    fetch: str | None = Field(
        description="The git command that brings its branch into a clone on that machine."
    )
    tasks: list[TaskOut] = Field(description="Its tasks in the order in which they ran.")

    @classmethod
    def of(cls, sequence: Sequence, *, metrics: Metrics | None = None, **more: Any) -> Self:
        tasks = tasks_out(list(sequence.tasks.select_related("project", "created_by").order_by("pk")))
        fetch = tasks[-1].fetch if tasks else None
        return super().of(sequence, metrics=metrics, fetch=fetch, tasks=tasks, **more)


class SequenceDetail(SequenceWithTasks):
    to_come: list[str] = Field(description="Task files of the folder that were not begun, in their order.")
    trouble: str = Field(description="Why the files to come are not known; else empty.")


class SequenceOutcome(SequenceWithTasks):
    """Output of commands that run a sequence."""

    exit_code: int = Field(description="The exit code of the command.")


def outcome_of(
    thing: Task | Sequence, *, exit_code: int, forecast: HasForecast | None = None
) -> TaskOutcome | SequenceOutcome:
    """Return the output of a command that ran a task or sequence; `forecast` is that of a created task."""
    if isinstance(thing, Task):
        return TaskOutcome.of(thing, exit_code=exit_code, **(dict(forecast) if forecast else {}))
    return SequenceOutcome.of(thing, exit_code=exit_code)
