"""Entries of the audit log, as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from django.db.models import QuerySet
from pydantic import Field

from tasks_app.models import AuditEntry, Channel
from tasks_app.schemas.base import DateTime, Json, Out
from tasks_app.services.exports import BATCH_SIZE
from tasks_app.services.search import iterate_ids, rows_in_order


class AuditEntryOut(Out):
    """One thing that somebody did. Entries are never changed, and survive what they are about."""

    id: int = Field(validation_alias="pk", description="Its id.")
    at: DateTime = Field(description="When it was done.")
    actor: str = Field(
        validation_alias="actor_name",
        description="Who did it, as people see the name; empty for the portal and agents.",
    )
    action: str = Field(description="What was done; entries keep the words of their time.")
    subject: str = Field(description="What it was done to.")
    sentence: str = Field(
        validation_alias="in_words",
        description="Who did what to what, as the audit log of the portal says it.",
    )
    project: str = Field(
        validation_alias="project_name", description="The project's name; empty if it was about none."
    )
    task: int | None = Field(validation_alias="task_id", description="The task's id; the task may be gone.")
    via: Channel | Literal[""] = Field(
        description="Through what: web, terminal or api; empty for the portal itself."
    )
    token: str = Field(description="The name of the API token that was used.")
    ip_address: str = Field(description="The IP address that the request came from.")
    detail: Json = Field(description="More about it, depending on the action.")


def audit_rows(entries: QuerySet[AuditEntry]) -> Iterator[dict[str, Any]]:
    """Yield the entries as rows of an export, the newest first."""
    for ids in iterate_ids(entries, BATCH_SIZE):
        for entry in rows_in_order(AuditEntry.objects.all(), ids):
            yield AuditEntryOut.from_row(entry).model_dump()
