"""Entries of the audit room, as JSON."""

from __future__ import annotations

from ninja import Schema
from pydantic import Field

from tasks_app.api.schemas.base import AT, Json


class AuditFacts(Schema):
    """One thing that somebody did. It stays as it was written, and outlives what it is about."""

    id: int = Field(description="Its number.")
    at: str = Field(description=f"When it was done. {AT}")
    actor: str = Field(description="Who did it, as people see the name; empty for the portal and agents.")
    action: str = Field(description="What was done.")
    subject: str = Field(description="What it was done to.")
    project: str = Field(description="The project's name; empty if it was about none.")
    task: int | None = Field(description="The task's number; the task may be gone.")
    via: str = Field(description="Through what: web, terminal, api.")
    token: str = Field(description="The name of the API token that was used.")
    address: str = Field(description="Where the request came from.")
    detail: Json = Field(description="More about it, depending on the action.")


class AuditPage(Schema):
    items: list[AuditFacts] = Field(description="Entries, the newest first.")
    next: str | None = Field(description="The address of the next page; null on the last.")
