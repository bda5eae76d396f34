"""What is taken about the user's own things, and pages of them."""

from __future__ import annotations

from ninja import Schema
from pydantic import Field

from tasks_app.api.schemas.base import ExactNumber, Input
from tasks_app.reporting.schemas.me import NoticeOut, TokenListed


class TokenPage(Schema):
    items: list[TokenListed] = Field(description="Tokens, the newest first.")
    next: str | None = Field(description="The address of the next page; null on the last.")


class NoticePage(Schema):
    items: list[NoticeOut] = Field(description="Notices, the newest first.")
    next: str | None = Field(description="The address of the next page; null on the last.")


class Read(Input):
    notice: ExactNumber | None = Field(None, description="The id of one notice; without it all of them.")


class ReadDone(Schema):
    read: int = Field(description="How many were unread until now.")
