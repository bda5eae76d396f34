"""Entries of the audit log, as JSON."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field

from tasks_app.models import AuditEntry, Channel
from tasks_app.reporting.schemas.base import DateTime, Json, Out


class AuditEntryOut(Out):
    """One thing that somebody did. Entries are never changed, and survive what they are about."""

    id: int = Field(description="Its id.")
    at: DateTime = Field(description="When it was done.")
    actor: str = Field(description="Who did it, as people see the name; empty for the portal and agents.")
    action: str = Field(description="What was done; entries keep the words of their time.")
    subject: str = Field(description="What it was done to.")
    project: str = Field(description="The project's name; empty if it was about none.")
    task: int | None = Field(description="The task's id; the task may be gone.")
    via: Channel | Literal[""] = Field(
        description="Through what: web, terminal or api; empty for the portal itself."
    )
    token: str = Field(description="The name of the API token that was used.")
    ip_address: str = Field(description="The IP address that the request came from.")
    detail: Json = Field(description="More about it, depending on the action.")

    @classmethod
    def of(cls, entry: AuditEntry) -> Self:
        return cls(
            id=entry.pk,
            at=entry.at,
            actor=entry.actor_name,
            action=entry.action,
            subject=entry.subject,
            project=entry.project_name,
            task=entry.task_id,
            via=Channel(entry.via) if entry.via else "",
            token=entry.token,
            ip_address=entry.ip_address,
            detail=entry.detail,
        )
