"""What was used and how long was waited, as JSON."""

from __future__ import annotations

from enum import StrEnum

from ninja import Schema
from pydantic import Field

from tasks_app.api.schemas.base import Used


class ToldApart(StrEnum):
    MODEL = "model"
    PROJECT = "project"
    PERSON = "person"


class Part(Used):
    name: str = Field(description="The model, project or login; empty if it is not known.")


class DayPart(Part):
    day: str = Field(description="The day, in UTC, as in 2026-03-01.")


class Waited(Schema):
    """Of the tasks that were created and the questions that were asked in the period."""

    tasks: int = Field(description="Tasks that were begun.")
    working_seconds: float = Field(description="Agents and checks at work.")
    paused_seconds: float = Field(description="Waiting for people and for usage limits.")
    questions: int = Field(description="Questions that were asked.")
    answered: int = Field(description="Those that were answered, dismissed or decided.")
    median_seconds: float | None = Field(description="How soon half of them were; null if none was.")


class UsageReport(Used):
    """`since` and `until` are days in UTC, both included."""

    since: str = Field(description="The first day.")
    until: str = Field(description="The last day.")
    before: Used = Field(description="The same of the period of that length before it.")
    models: list[Part] = Field(description="Told apart by model.")
    projects: list[Part] = Field(description="Told apart by project.")
    people: list[Part] = Field(description="Told apart by who created the task.")
    days: list[DayPart] = Field(description="Day by day, told apart by `by`; days without use are left out.")
    waited: Waited = Field(description="How long was worked and waited.")
