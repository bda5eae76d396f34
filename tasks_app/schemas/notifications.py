"""JSON models of notices, notification targets, deliveries and preferences."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from tasks_app.models import DeliveryState, Digest, EventType, ProjectSelection, TaskSelection
from tasks_app.schemas.base import DateTime, Out


class TaskEventType(StrEnum):
    """An event of which users and targets can be notified."""

    QUESTION = "question"
    FAILED = "failed"
    DONE = "done"
    CANCELLED = "cancelled"
    UNANSWERED = "unanswered"
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

    id: int = Field(validation_alias="pk", description="Its id.")
    name: str = Field(description="The name.")
    medium: ProjectMedium = Field(description="A webhook or a chat.")
    shown: str = Field(description="The address, as far as it is shown.")
    event_types: list[TaskEventType] = Field(description="The events that are sent to it.")
    active: bool = Field(description="Whether anything is sent there.")


class TargetMade(TargetOut):
    secret: str = Field(
        description="With which posts to a webhook are signed. It is told this once; empty for a chat."
    )


class DeliveryOut(Out):
    """One notification to one target, with its outcome."""

    id: int = Field(validation_alias="pk", description="Its id.")
    target: int = Field(validation_alias="target_id", description="The target's id.")
    event_type: EventType = Field(description="The event, or test.")
    task: int | None = Field(validation_alias="event.task_id", description="The task's id; null for a test.")
    state: DeliveryState = Field(
        description="waiting, sent, failed (given up) or dropped (not to be sent any more)."
    )
    attempts: int = Field(description="How often it was tried.")
    due_at: DateTime = Field(description="From when on it may be sent.")
    sent_at: DateTime | None = Field(description="When it was sent.")
    status: int | None = Field(description="What the receiver answered; null if it did not.")
    error: str = Field(description="Why it was not sent.")


class PreferencesOut(Out):
    """Your notification settings."""

    subscriptions: Subscriptions = Field(
        description="By event and medium: `off`, `mine` (your tasks) or `all`."
    )
    project_selection: ProjectSelection = Field(
        description="Of which projects: `mine` (with a role, or your tasks), `all` that you see, or `chosen`."
    )
    projects: list[str] = Field(description="The chosen projects.")
    time_zone: str = Field(description="The time zone of the hours.")
    quiet_from: str | None = Field(description="E-mail and chat wait from then, as in 22:00, …")
    quiet_until: str | None = Field(description="… until then.")
    digest: Digest = Field(description="E-mails come `at_once`, or together `hourly` or `daily`.")
    digest_at: str | None = Field(description="When the daily one comes, as in 08:00.")
    chat: str | None = Field(description="Your own chat, as far as its address is shown; null for none.")


class NoticeOut(Out):
    """A notification in the portal."""

    id: int = Field(validation_alias="pk", description="The notice's id.")
    event_type: EventType = Field(
        description="question, failed, done, cancelled, unanswered, reviewed, not_published or token_seen."
    )
    headline: str = Field(
        description="The question, why the task failed or was not published, or what a review says;"
        " may be empty."
    )
    project: str = Field(validation_alias="task.project.name", description="The project's name.")
    task: int = Field(validation_alias="task_id", description="The task's id.")
    title: str = Field(validation_alias="task.title", description="The task's title.")
    step: str = Field(description="The step's name; may be empty.")
    at: DateTime = Field(description="When you were told.")
    read_at: DateTime | None = Field(description="When you read it.")
    unread: bool = Field(
        validation_alias="is_unread",
        description="Whether it still counts: a question that was answered does not.",
    )
