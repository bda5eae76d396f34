"""JSON models of the user, their tokens and their notices."""

from __future__ import annotations

from typing import Any, Self

from pydantic import Field

from tasks_app.models import ApiToken, EventType, Notice, Scope
from tasks_app.permissions import Principal
from tasks_app.reporting.schemas.base import DateTime, Out, UserOut


class TokenOut(Out):
    """A personal API token, without its secret."""

    name: str = Field(description="What it is for.")
    scopes: list[Scope] = Field(description="What it may be used for: read, answer, write, manage.")
    projects: list[str] | None = Field(description="The projects that it is restricted to; null for all.")
    expires_at: DateTime | None = Field(description="When it expires; null for never.")

    @classmethod
    def of(cls, token: ApiToken, **more: Any) -> Self:
        return cls(
            name=token.name,
            scopes=[Scope(scope) for scope in token.scopes],
            projects=[project.name for project in token.projects.all()] if token.restricted else None,
            expires_at=token.expires_at,
            **more,
        )


class TokenListed(TokenOut):
    id: int = Field(description="The token's id.")
    made_at: DateTime = Field(description="When it was made.")
    last_used_at: DateTime | None = Field(description="When it was used last, to the minute.")
    last_used_ip_address: str = Field(description="The IP address from which it was used last.")

    @classmethod
    def of(cls, token: ApiToken, **more: Any) -> Self:
        return super().of(
            token,
            id=token.pk,
            made_at=token.made_at,
            last_used_at=token.last_used_at,
            last_used_ip_address=token.last_used_ip_address,
            **more,
        )


class Me(UserOut):
    email: str = Field(description="Your e-mail address.")
    is_admin: bool = Field(description="Whether you are a site admin.")
    token: TokenOut | None = Field(description="The token that was used; null with a browser's login.")

    @classmethod
    def of_principal(cls, principal: Principal) -> Self:
        user, token = principal.user, principal.token
        own = TokenOut.of(token) if token else None
        return cls.of(user, email=user.email, is_admin=user.is_superuser, token=own)


class NoticeOut(Out):
    """A notification in the portal."""

    id: int = Field(description="The notice's id.")
    event_type: EventType = Field(description="question, failed, done, cancelled, reviewed or not_published.")
    headline: str = Field(
        description="The question, why the task failed or was not published, or what a review says;"
        " may be empty."
    )
    project: str = Field(description="The project's name.")
    task: int = Field(description="The task's id.")
    title: str = Field(description="The task's title.")
    step: str = Field(description="The step's name; may be empty.")
    at: DateTime = Field(description="When you were told.")
    read_at: DateTime | None = Field(description="When you read it.")
    unread: bool = Field(description="Whether it still counts: a question that was answered does not.")

    @classmethod
    def of(cls, notice: Notice) -> Self:
        return cls(
            id=notice.pk,
            event_type=EventType(notice.event_type),
            headline=notice.headline,
            project=notice.task.project.name,
            task=notice.task_id,
            title=notice.task.title,
            step=notice.step,
            at=notice.at,
            read_at=notice.read_at,
            unread=notice.is_unread,
        )
