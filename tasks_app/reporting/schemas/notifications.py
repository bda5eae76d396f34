"""JSON models of notification targets, deliveries and preferences."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Self

from pydantic import Field

from tasks_app.models import (
    Delivery,
    DeliveryState,
    Digest,
    EventType,
    ProjectSelection,
    Target,
    TaskSelection,
)
from tasks_app.reporting.schemas.base import DateTime, Out


class TaskEventType(StrEnum):
    """An event of which users and targets can be notified."""

    QUESTION = "question"
    FAILED = "failed"
    DONE = "done"
    CANCELLED = "cancelled"
    REVIEWED = "reviewed"
    NOT_PUBLISHED = "not_published"


class ProjectMedium(StrEnum):
    """A medium of a project's target."""

    CHAT = "chat"
    WEBHOOK = "webhook"


class PersonalMedium(StrEnum):
    """A medium of a user's notifications."""

    PAGE = "page"
    EMAIL = "email"
    CHAT = "chat"


Subscriptions = dict[TaskEventType, dict[PersonalMedium, TaskSelection]]


class TargetOut(Out):
    """A webhook or chat that is notified of a project's tasks. Its URL is secret."""

    id: int = Field(description="Its id.")
    name: str = Field(description="What it is called.")
    medium: ProjectMedium = Field(description="A webhook or a chat.")
    shown: str = Field(description="The address, as far as it is shown.")
    event_types: list[TaskEventType] = Field(description="What it is told of.")
    active: bool = Field(description="Whether anything is sent there.")

    @classmethod
    def of(cls, target: Target, **more: Any) -> Self:
        return cls(
            id=target.pk,
            name=target.name,
            medium=ProjectMedium(target.medium),
            shown=target.shown,
            event_types=[TaskEventType(event_type) for event_type in target.event_types],
            active=target.active,
            **more,
        )


class TargetMade(TargetOut):
    secret: str = Field(
        description="With which posts to a webhook are signed. It is told this once; empty for a chat."
    )


class DeliveryOut(Out):
    """One notification to one target, with its outcome."""

    id: int = Field(description="Its id.")
    target: int = Field(description="The target's id.")
    event_type: EventType = Field(description="What it tells: an event, or test.")
    task: int | None = Field(description="The task's id; null for a test.")
    state: DeliveryState = Field(
        description="waiting, sent, failed (given up) or dropped (not to be sent any more)."
    )
    attempts: int = Field(description="How often it was tried.")
    due_at: DateTime = Field(description="From when on it may be sent.")
    sent_at: DateTime | None = Field(description="When it was sent.")
    status: int | None = Field(description="What the receiver answered; null if it did not.")
    error: str = Field(description="Why it was not sent.")

    @classmethod
    def of(cls, delivery: Delivery) -> Self:
        return cls(
            id=delivery.pk,
            target=delivery.target_id or 0,
            event_type=EventType(delivery.event_type),
            task=delivery.event.task_id if delivery.event else None,
            state=DeliveryState(delivery.state),
            attempts=delivery.attempts,
            due_at=delivery.due_at,
            sent_at=delivery.sent_at,
            status=delivery.status,
            error=delivery.error,
        )


class PreferencesOut(Out):
    """Your notification settings."""

    subscriptions: Subscriptions = Field(
        description="By event and medium: `off`, `mine` (your tasks) or `all`."
    )
    project_selection: ProjectSelection = Field(
        description="Of which projects: `mine` (with a role, or your tasks), `all` that you see, or `chosen`."
    )
    projects: list[str] = Field(description="Those that are chosen.")
    time_zone: str = Field(description="In which the hours are meant.")
    quiet_from: str | None = Field(description="E-mail and chat wait from then, as in 22:00, …")
    quiet_until: str | None = Field(description="… until then.")
    digest: Digest = Field(description="E-mails come `at_once`, or together `hourly` or `daily`.")
    digest_at: str | None = Field(description="When the daily one comes, as in 08:00.")
    chat: str | None = Field(description="Your own chat, as far as its address is shown; null for none.")
