"""JSON models of sequences."""

from __future__ import annotations

from typing import Any, Self

from pydantic import Field

from tasks_app.core.phases import Phase
from tasks_app.models import Sequence, Task
from tasks_app.schemas.base import HasMetrics, HasTimes, metrics_fields
from tasks_app.schemas.tasks import TaskOut, TaskOutcome
from tasks_app.schemas.usage import HasForecast
from tasks_app.services.usage import statistics
from tasks_app.services.usage.statistics import Metrics


class SequenceOut(HasTimes, HasMetrics):
    """A folder of tasks that run one after the other on one branch."""

    sequence: int = Field(validation_alias="pk", description="The sequence's id.")
    project: str = Field(validation_alias="project.name", description="The name of its project.")
    name: str = Field(description="`project/slug`, as commands take it.")
    folder: str = Field(description="The folder in the repository.")
    phase: Phase = Field(
        validation_alias="shown_phase",
        description="What it does or waits for: the phase of the task at hand.",
    )
    failure: str = Field(description="Why it failed; else empty.")
    ask: list[str] = Field(
        description="Whom the questions of all its tasks are put to; empty: each task or the project decides."
    )
    branch: str = Field(description="The branch that all its tasks work on.")
    commit: str = Field(
        validation_alias="head_commit", description="The newest commit of its work; empty before the first."
    )

    @classmethod
    def from_row(cls, sequence: Sequence, /, *, metrics: Metrics | None = None, **more: Any) -> Self:
        """Make a model; callers with many sequences pass `metrics` to save queries."""
        return super().from_row(
            sequence, **metrics_fields(metrics or statistics.of_sequence(sequence)), **more
        )

    @staticmethod
    def resolve_name(sequence: Sequence) -> str:
        return f"{sequence.project.name}/{sequence.slug}"


class SequenceWithTasks(SequenceOut):
    fetch: str | None = Field(
        description="The git command that brings its branch into a clone on that machine."
    )
    tasks: list[TaskOut] = Field(description="Its tasks in the order in which they ran.")

    @classmethod
    def from_row(cls, sequence: Sequence, /, **more: Any) -> Self:
        tasks = TaskOut.of_each(list(sequence.tasks.select_related("project", "created_by").order_by("pk")))
        return super().from_row(sequence, fetch=tasks[-1].fetch if tasks else None, tasks=tasks, **more)


class SequenceDetail(SequenceWithTasks):
    to_come: list[str] = Field(description="Task files of the folder that were not begun, in their order.")
    trouble: str = Field(description="Why the files to come are not known; else empty.")
    more_open: list[str] = Field(
        description="What the next task may do beyond the first one, for which it waits for permission."
    )
    allow_key: str = Field(description="What `resume` takes as `allow` to permit that; else empty.")


class SequenceOutcome(SequenceWithTasks):
    """Output of commands that run a sequence."""

    exit_code: int = Field(description="The exit code of the command.")


def outcome_of(
    thing: Task | Sequence, *, exit_code: int, forecast: HasForecast | None = None
) -> TaskOutcome | SequenceOutcome:
    """Return the output of a command that ran a task or sequence; `forecast` is that of a created task."""
    if isinstance(thing, Task):
        return TaskOutcome.from_row(thing, exit_code=exit_code, **dict(forecast or {}))
    return SequenceOutcome.from_row(thing, exit_code=exit_code)
