"""Who is told of what, and where to, as JSON."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from ninja import Schema
from pydantic import Field

from tasks_app.api.schemas.base import AT, Flag, Input, Storable
from tasks_app.models import Digest, Extent, Reach


class Told(StrEnum):
    """An occasion that one can ask to be told of."""

    QUESTION = "question"
    FAILED = "failed"
    DONE = "done"
    CANCELLED = "cancelled"


class Outside(StrEnum):
    """Where a project's messages go."""

    CHAT = "chat"
    WEBHOOK = "webhook"


Occasions = Annotated[list[Told], Field(min_length=1, max_length=4)]
TargetName = Annotated[Storable, Field(min_length=1, max_length=60, pattern=r"^[^\x00]*\S[^\x00]*$")]


class TargetFacts(Schema):
    """A webhook or chat that hears of a project's tasks. Its address is a secret."""

    id: int = Field(description="Its number.")
    name: str = Field(description="What it is called.")
    medium: Outside = Field(description="A webhook or a chat.")
    shown: str = Field(description="The address, as far as it is shown.")
    occasions: list[Told] = Field(description="What it is told of.")
    active: bool = Field(description="Whether anything is sent there.")


class TargetPage(Schema):
    items: list[TargetFacts] = Field(description="Targets, in the order in which they came.")
    next: str | None = Field(description="The address of the next page; null on the last.")


class TargetMade(TargetFacts):
    secret: str = Field(
        description="With which posts to a webhook are signed. It is told this once; empty for a chat."
    )


class NewTarget(Input):
    medium: Outside = Field(description="A webhook or a chat.")
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


class DeliveryFacts(Schema):
    """One message to one target, and what became of it."""

    id: int = Field(description="Its number.")
    target: int = Field(description="The target's number.")
    occasion: str = Field(description="What it tells: an occasion, or test.")
    task: int | None = Field(description="The task's number; null for a test.")
    state: str = Field(description="waiting, sent, failed (given up) or dropped (not to be sent any more).")
    attempts: int = Field(description="How often it was tried.")
    due_at: str = Field(description=f"From when on it may be sent. {AT}")
    sent_at: str | None = Field(description=f"When it was sent. {AT}")
    status: int | None = Field(description="What the receiver answered; null if it did not.")
    said: str = Field(description="Why it was not sent.")


class DeliveryPage(Schema):
    items: list[DeliveryFacts] = Field(description="Deliveries, the newest first.")
    next: str | None = Field(description="The address of the next page; null on the last.")


class Personal(StrEnum):
    """How a person is told."""

    PAGE = "page"
    EMAIL = "email"
    CHAT = "chat"


Wishes = dict[Told, dict[Personal, Extent]]
Clock = Annotated[str, Field(pattern=r"^([01][0-9]|2[0-3]):[0-5][0-9]$")]


class PreferencesFacts(Schema):
    """What you are told, by which media and when."""

    wishes: Wishes = Field(description="By occasion and medium: `off`, `mine` (your tasks) or `all`.")
    reach: Reach = Field(
        description="Of which projects: `mine` (with a role, or your tasks), `all` that you see, or `chosen`."
    )
    projects: list[str] = Field(description="Those that are chosen.")
    time_zone: str = Field(description="In which the hours are meant.")
    quiet_from: str | None = Field(description="E-mail and chat wait from then, as in 22:00, …")
    quiet_until: str | None = Field(description="… until then.")
    digest: Digest = Field(description="E-mails come `at_once`, or together `hourly` or `daily`.")
    digest_at: str | None = Field(description="When the daily one comes, as in 08:00.")
    chat: str | None = Field(description="Your own chat, as far as its address is shown; null for none.")


class PreferencesPatch(Input):
    """What is to be changed; what is not named stays as it is."""

    wishes: Wishes = Field({}, description="By occasion and medium: `off`, `mine` or `all`.")
    reach: Reach = Field(Reach.MINE, description="Of which projects: `mine`, `all` or `chosen`.")
    projects: list[Annotated[Storable, Field(max_length=60)]] = Field(
        [], max_length=1000, description="The names of those that are chosen."
    )
    time_zone: Annotated[Storable, Field(max_length=64)] = Field("UTC", examples=["Europe/Berlin"])
    quiet_from: Clock | None = Field(None, description="As in 22:00; null for no quiet hours.")
    quiet_until: Clock | None = Field(None, description="As in 07:00.")
    digest: Digest = Field(Digest.AT_ONCE, description="`at_once`, `hourly` or `daily`.")
    digest_at: Clock | None = Field(None, description="When the daily one comes.")
