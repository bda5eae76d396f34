"""Input schemas about sequences, and pages of them."""

from __future__ import annotations

from typing import Annotated

from ninja import Schema
from pydantic import Field

from tasks_app.api.schemas.base import Flag, Input, Storable, Threshold
from tasks_app.reporting.schemas.sequences import SequenceOut


class SequencePage(Schema):
    items: list[SequenceOut] = Field(description="Sequences, the newest first.")
    next: str | None = Field(description="The URL of the next page; null on the last.")


class NewSequence(Input):
    """A folder of task files, as committed in the repository."""

    project: Annotated[Storable, Field(min_length=1, max_length=60)] = Field(
        description="The project's name."
    )
    folder: Annotated[Storable, Field(min_length=1, max_length=300)] = Field(
        description="The path of the folder in the repository.", examples=["tasks/new-prices"]
    )
    threshold: Threshold | None = Field(
        None, description="For all its tasks; default: the setting of each task."
    )
    pipeline: Annotated[Storable, Field(min_length=1, max_length=100)] | None = Field(
        None, description="For all its tasks; default: the setting of each task."
    )
    start: Flag = Field(False, description="Start the first task at once.")
