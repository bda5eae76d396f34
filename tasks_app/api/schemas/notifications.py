"""What is taken about notifications, and pages of them."""

from __future__ import annotations

from typing import Annotated

from ninja import Schema
from pydantic import Field

from tasks_app.api.schemas.base import Flag, Input, Storable
from tasks_app.models import Digest, ProjectSelection
from tasks_app.reporting.schemas.notifications import DeliveryOut, EventType, ProjectMedium, TargetOut, Wishes

Occasions = Annotated[list[EventType], Field(min_length=1, max_length=4)]
TargetName = Annotated[Storable, Field(min_length=1, max_length=60, pattern=r"^[^\x00]*\S[^\x00]*$")]


class TargetPage(Schema):
    items: list[TargetOut] = Field(description="Targets, in the order in which they came.")
    next: str | None = Field(description="The address of the next page; null on the last.")


class NewTarget(Input):
    medium: ProjectMedium = Field(description="A webhook or a chat.")
    name: TargetName = Field(description="What it is called.", examples=["team chat"])
    address: Annotated[Storable, Field(min_length=1, max_length=1000)] = Field(
        description="An https address, or that of a chat as apprise writes it.",
        examples=["https://example.org/hook"],
    )
    occasions: Occasions = Field(description="What it is told of.")


class TargetIn(Input):
    name: TargetName = Field(description="What it is called.")
    occasions: Occasions = Field(description="What it is told of.")
    active: Flag = Field(description="Whether anything is sent there.")


class DeliveryPage(Schema):
    items: list[DeliveryOut] = Field(description="Deliveries, the newest first.")
    next: str | None = Field(description="The address of the next page; null on the last.")


Clock = Annotated[str, Field(pattern=r"^([01][0-9]|2[0-3]):[0-5][0-9]$")]


class PreferencesPatch(Input):
    """What is to be changed; what is not named stays as it is."""

    wishes: Wishes = Field({}, description="By event and medium: `off`, `mine` or `all`.")
    reach: ProjectSelection = Field(
        ProjectSelection.MINE, description="Of which projects: `mine`, `all` or `chosen`."
    )
    projects: list[Annotated[Storable, Field(max_length=60)]] = Field(
        [], max_length=1000, description="The names of those that are chosen."
    )
    time_zone: Annotated[Storable, Field(max_length=64)] = Field("UTC", examples=["Europe/Berlin"])
    quiet_from: Clock | None = Field(None, description="As in 22:00; null for no quiet hours.")
    quiet_until: Clock | None = Field(None, description="As in 07:00.")
    digest: Digest = Field(Digest.AT_ONCE, description="`at_once`, `hourly` or `daily`.")
    digest_at: Clock | None = Field(None, description="When the daily one comes.")
