"""Input schemas about tasks, and pages of them."""

from __future__ import annotations

from typing import Annotated, Any

from ninja import Schema
from pydantic import Field

from tasks_app.api.schemas.base import Flag, Input, Storable, Threshold
from tasks_app.config.project_settings import SETTINGS
from tasks_app.config.task_file import PriorityName
from tasks_app.reporting.schemas.tasks import EventOut, StepOut, TaskOut


class TaskPage(Schema):
    items: list[TaskOut] = Field(description="Tasks, the newest first.")
    next: str | None = Field(description="The URL of the next page; null on the last.")


class TaskDraft(Input):
    """A task's text, with options that override its front matter and the project's settings."""

    project: Annotated[Storable, Field(min_length=1, max_length=60)] = Field(
        description="The project's name.", examples=["sample"]
    )
    text: Annotated[Storable, Field(min_length=1, max_length=1_000_000)] = Field(
        description="Markdown with optional front matter; the first heading is the title.",
        examples=["# Round invoice totals to the cent\n\nRound them where they are computed."],
    )
    threshold: Threshold | None = Field(None, description=SETTINGS["threshold"].help)
    pipeline: Annotated[Storable, Field(min_length=1, max_length=100)] | None = Field(
        None, description="One of the project's pipelines."
    )


class NewTask(TaskDraft):
    """The task to create."""

    start: Flag = Field(False, description="Start the task at once.")


def _left_out() -> Any:
    """Return what stands for a field that was left out: nobody reads it, see model_fields_set."""
    return None


class TaskPatch(Input):
    """The changes of a task. Fields that are left out stay as they are; none of them can be null."""

    threshold: Threshold = Field(
        default_factory=_left_out,
        description=f"{SETTINGS['threshold'].help} It applies from the next run on.",
    )
    priority: PriorityName = Field(
        default_factory=_left_out, description="How early it has its turn among the tasks that wait."
    )


class Retry(Input):
    """How to retry a step."""

    put_back: Flag = Field(False, description="First restore the files as they were before the step.")


class Steps(Schema):
    items: list[StepOut] = Field(description="The steps in order.")


class EventPage(Schema):
    items: list[EventOut] = Field(description="Events, the oldest first.")
    next: str = Field(description="The URL of the events after these, now or later.")
    more: bool = Field(description="Whether there are more events now.")
