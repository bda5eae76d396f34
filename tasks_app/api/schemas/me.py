"""Input schemas about the user's own things, and pages of them."""

from __future__ import annotations

from ninja import Schema
from pydantic import Field

from tasks_app.api.schemas.base import ExactNumber, Input
from tasks_app.reporting.schemas.me import NoticeOut, TokenListed


class TokenPage(Schema):
    items: list[TokenListed] = Field(description="Tokens, the newest first.")
    next: str | None = Field(description="The URL of the next page; null on the last.")


class NoticePage(Schema):
    items: list[NoticeOut] = Field(description="Notices, the newest first.")
    next: str | None = Field(description="The URL of the next page; null on the last.")


class Read(Input):
    notice: ExactNumber | None = Field(None, description="The id of a notice; default: all notices.")


class ReadDone(Schema):
    read: int = Field(description="The number of notices that were unread.")
