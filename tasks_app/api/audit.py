"""Operations on the audit log."""

from __future__ import annotations

from django.db.models import QuerySet
from django.http import HttpRequest, StreamingHttpResponse
from ninja import Field, Query, Router, Schema

from tasks_app.api.auth import authenticators, principal_of
from tasks_app.api.base import (
    KINDS,
    Day,
    ExportFormat,
    Name,
    Paging,
    export_response,
    page_of,
    responses,
    sends,
)
from tasks_app.models import Action, AuditEntry, Channel, Scope
from tasks_app.schemas.audit import AuditEntryOut, audit_rows
from tasks_app.services.audit import AuditFilters


class AuditPage(Schema):
    items: list[AuditEntryOut] = Field(description="Entries, the newest first.")
    next: str | None = Field(description="The URL of the next page; null on the last.")


router = Router(tags=["Audit"])


class AuditQuery(Schema):
    """The filters of the audit log's page, and two more."""

    q: Name = Field(
        "",
        description="All these words must occur in user, subject, project, token or IP address.",
    )
    project: Name = Field("", description="Only entries of the project with this name.")
    person: Name = Field("", description="Only entries of this user: the user name, or a part of the name.")
    action: Action | None = Field(None, description="Only entries with this action.")
    via: Channel | None = Field(None, description="Only entries from this channel.")
    task: int | None = Field(None, ge=1, le=2**63 - 1, description="Only entries of this task.")
    since: Day | None = Field(None, alias="from", description="The first day, in UTC, as in 2026-03-01.")
    until: Day | None = Field(None, alias="to", description="The last day, in UTC.")

    def entries(self, request: HttpRequest) -> QuerySet[AuditEntry]:
        """Return the matching entries that the caller may see."""
        return AuditFilters(**self.model_dump(exclude_none=True)).entries_visible_to(principal_of(request))


@router.get("/audit", response=responses(AuditPage), auth=authenticators(Scope.MANAGE))
def list_audit(request: HttpRequest, only: Query[AuditQuery], paging: Query[Paging]) -> AuditPage:
    """List who did what, when and from where, the newest first.

    Site admins see all entries, others those of the projects that they maintain.
    """
    rows, following = page_of(request, only.entries(request), paging)
    return AuditPage(items=[AuditEntryOut.from_row(row) for row in rows], next=following)


@router.get(
    "/audit/export", response=responses(str), auth=authenticators(Scope.MANAGE), openapi_extra=sends(*KINDS)
)
def export_audit(
    request: HttpRequest, only: Query[AuditQuery], which: Query[ExportFormat]
) -> StreamingHttpResponse:
    """Export all entries that match, the newest first, as one table. The audit log records it."""
    columns, rows = list(AuditEntryOut.model_fields), audit_rows(only.entries(request))
    return export_response(request, columns, rows, name="audit entries", which=which)
