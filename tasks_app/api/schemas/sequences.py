"""Sequences of tasks."""

from __future__ import annotations

from typing import Annotated

from ninja import Schema
from pydantic import Field

from tasks_app.api.schemas.base import Figures, Flag, Input, Storable, Threshold, Timed
from tasks_app.api.schemas.tasks import TaskFacts
from tasks_app.core.phases import Phase


class SequenceFacts(Timed, Figures):
    """A folder of tasks that run one after the other on one branch."""

    sequence: int = Field(description="The sequence's number.")
    project: str = Field(description="The name of its project.")
    name: str = Field(description="`project/slug`, as commands take it.")
    folder: str = Field(description="The folder in the repository.")
    phase: Phase = Field(description="What it does or waits for: the phase of the task at hand.")
    failure: str = Field(description="Why it failed; else empty.")
    branch: str = Field(description="The branch that all its tasks work on.")
    commit: str = Field(description="The newest commit of its work; empty before the first.")


class SequencePage(Schema):
    items: list[SequenceFacts] = Field(description="Sequences, the newest first.")
    next: str | None = Field(description="The address of the next page; null on the last.")


class SequenceWhole(SequenceFacts):
    tasks: list[TaskFacts] = Field(description="Its tasks in the order in which they ran.")
    fetch: str | None = Field(
        description="The git command that brings its branch into a clone on that machine."
    )
    to_come: list[str] = Field(description="Task files of the folder that were not begun, in their order.")
    trouble: str = Field(description="Why the files to come are not known; else empty.")


class NewSequence(Input):
    """A folder of task files, as it is committed in the repository."""

    project: Annotated[Storable, Field(min_length=1, max_length=60)] = Field(
        description="The project's name."
    )
    folder: Annotated[Storable, Field(min_length=1, max_length=300)] = Field(
        description="Seen from the top of the repository.", examples=["tasks/new-prices"]
    )
    threshold: Threshold | None = Field(None, description="For all its tasks; else each says its own.")
    pipeline: Annotated[Storable, Field(min_length=1, max_length=100)] | None = Field(
        None, description="For all its tasks; else each says its own."
    )
    start: Flag = Field(False, description="Start its first task at once.")
