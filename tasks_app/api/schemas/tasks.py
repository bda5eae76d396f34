"""What is taken about tasks, and pages of them."""

from __future__ import annotations

from typing import Annotated

from ninja import Schema
from pydantic import Field

from tasks_app.api.schemas.base import Flag, Input, Storable, Threshold
from tasks_app.config.project_settings import SETTINGS
from tasks_app.reporting.schemas.tasks import EventOut, StepOut, TaskOut


class TaskPage(Schema):
    items: list[TaskOut] = Field(description="Tasks, the newest first.")
    next: str | None = Field(description="The address of the next page; null on the last.")


class TaskDraft(Input):
    """A task's text, and what is to hold instead of its front matter and the project's settings."""

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
    """A task that is to be created."""

    start: Flag = Field(False, description="Start it at once.")


class TaskPatch(Input):
    """What is to be changed of a task."""

    threshold: Threshold = Field(description=f"{SETTINGS['threshold'].help} It applies from the next run on.")


class Retry(Input):
    """How a step is to be done again."""

    put_back: Flag = Field(
        False, description="Put the files back first, as they were before the step; else they stay."
    )


class Steps(Schema):
    items: list[StepOut] = Field(description="The steps in order.")


class EventPage(Schema):
    items: list[EventOut] = Field(description="Events in the order in which they happened.")
    next: str = Field(description="The address of what comes after these, now or later.")
    more: bool = Field(description="Whether there is more already; else ask again when there is news.")
