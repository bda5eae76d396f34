"""Input schemas about notifications, and pages of them."""

from __future__ import annotations

from typing import Annotated

from ninja import Schema
from pydantic import Field

from tasks_app.api.schemas.base import Flag, Input, Storable
from tasks_app.models import Digest, ProjectSelection
from tasks_app.reporting.schemas.notifications import (
    DeliveryOut,
    ProjectMedium,
    Subscriptions,
    TargetOut,
    TaskEventType,
)

EventTypes = Annotated[list[TaskEventType], Field(min_length=1, max_length=len(TaskEventType))]
TargetName = Annotated[Storable, Field(min_length=1, max_length=60, pattern=r"^[^\x00]*\S[^\x00]*$")]


class TargetPage(Schema):
    items: list[TargetOut] = Field(description="Targets, the oldest first.")
    next: str | None = Field(description="The URL of the next page; null on the last.")


class NewTarget(Input):
    medium: ProjectMedium = Field(description="A webhook or a chat.")
    name: TargetName = Field(description="Its name.", examples=["team chat"])
    url: Annotated[Storable, Field(min_length=1, max_length=1000)] = Field(
        description="An https URL, or the URL of a chat service as Apprise writes it.",
        examples=["https://example.org/hook"],
    )
    event_types: EventTypes = Field(description="The events that it receives.")


class TargetIn(Input):
    name: TargetName = Field(description="Its name.")
    event_types: EventTypes = Field(description="The events that it receives.")
    active: Flag = Field(description="Whether messages are sent to it.")


class DeliveryPage(Schema):
    items: list[DeliveryOut] = Field(description="Deliveries, the newest first.")
    next: str | None = Field(description="The URL of the next page; null on the last.")


Clock = Annotated[str, Field(pattern=r"^([01][0-9]|2[0-3]):[0-5][0-9]$")]


class PreferencesPatch(Input):
    """The changes. Fields that are left out stay as they are."""

    subscriptions: Subscriptions = Field({}, description="By event and medium: `off`, `mine` or `all`.")
    project_selection: ProjectSelection = Field(
        ProjectSelection.MINE, description="Which projects: `mine`, `all` or `chosen`."
    )
    projects: list[Annotated[Storable, Field(max_length=60)]] = Field(
        [], max_length=1000, description="The names of the chosen projects."
    )
    time_zone: Annotated[Storable, Field(max_length=64)] = Field("UTC", examples=["Europe/Berlin"])
    quiet_from: Clock | None = Field(None, description="For example 22:00; null for no quiet hours.")
    quiet_until: Clock | None = Field(None, description="For example 07:00.")
    digest: Digest = Field(Digest.AT_ONCE, description="`at_once`, `hourly` or `daily`.")
    digest_at: Clock | None = Field(None, description="The time of the daily e-mail.")
