"""What is one's own, as JSON."""

from __future__ import annotations

from ninja import Schema
from pydantic import Field

from tasks_app.api.schemas.base import AT, ExactNumber, Input, Person


class TokenFacts(Schema):
    """A personal API token. Its secret is not known to anybody but its holder."""

    name: str = Field(description="What it is for.")
    scopes: list[str] = Field(description="What it may be used for: read, answer, write, manage.")
    projects: list[str] | None = Field(description="The projects that it is restricted to; null for all.")
    expires_at: str | None = Field(description=f"When it expires; null for never. {AT}")


class Me(Person):
    email: str = Field(description="Your e-mail address.")
    is_admin: bool = Field(description="Whether you are a site admin.")
    token: TokenFacts | None = Field(description="The token that was used; null with a browser's login.")


class TokenListed(TokenFacts):
    id: int = Field(description="The token's number.")
    made_at: str = Field(description=f"When it was made. {AT}")
    last_used_at: str | None = Field(description=f"When it was used last, to the minute. {AT}")
    last_used_address: str = Field(description="From where it was used last.")


class TokenPage(Schema):
    items: list[TokenListed] = Field(description="Tokens, the newest first.")
    next: str | None = Field(description="The address of the next page; null on the last.")


class NoticeFacts(Schema):
    """Something that you were told in the page."""

    id: int = Field(description="The notice's number.")
    occasion: str = Field(description="question, failed, done or cancelled.")
    headline: str = Field(description="The question, or why the task failed; may be empty.")
    project: str = Field(description="The project's name.")
    task: int = Field(description="The task's number.")
    title: str = Field(description="The task's title.")
    step: str = Field(description="The step's name; may be empty.")
    at: str = Field(description=f"When you were told. {AT}")
    read_at: str | None = Field(description=f"When you read it. {AT}")
    unread: bool = Field(description="Whether it still counts: a question that was answered does not.")


class NoticePage(Schema):
    items: list[NoticeFacts] = Field(description="Notices, the newest first.")
    next: str | None = Field(description="The address of the next page; null on the last.")


class Read(Input):
    notice: ExactNumber | None = Field(None, description="The number of one notice; without it all of them.")


class ReadDone(Schema):
    read: int = Field(description="How many were unread until now.")
