"""Pages of the audit log."""

from __future__ import annotations

from ninja import Schema
from pydantic import Field

from tasks_app.reporting.schemas.audit import AuditEntryOut


class AuditPage(Schema):
    items: list[AuditEntryOut] = Field(description="Entries, the newest first.")
    next: str | None = Field(description="The URL of the next page; null on the last.")
