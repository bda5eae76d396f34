"""Operations on the audit log."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, time, timedelta
from typing import Any

from django.db.models import Q, QuerySet
from django.http import HttpRequest, StreamingHttpResponse
from ninja import Field, Query, Router, Schema

from tasks_app import permissions
from tasks_app.api.auth import authenticators, principal_of
from tasks_app.api.declarations import responses, sends
from tasks_app.api.exports import KINDS, ExportFormat, export_response
from tasks_app.api.filters import Day, Name
from tasks_app.api.paging import Paging, page_of
from tasks_app.api.schemas.audit import AuditPage
from tasks_app.models import Action, AuditEntry, Channel, Scope
from tasks_app.reporting.exports import BATCH_SIZE
from tasks_app.reporting.schemas.audit import AuditEntryOut
from tasks_app.reporting.search.paging import iterate_ids, rows_in_order

router = Router(tags=["Audit"])


class AuditFilters(Schema):
    """The filters of the audit log's page."""

    q: Name = Field(
        "",
        description="All these words must occur in user, subject, project, token or address.",
    )
    project: Name = Field("", description="Only entries of the project with this name.")
    person: Name = Field("", description="Only entries of this user, by user name or name.")
    action: Action | None = Field(None, description="Only entries with this action.")
    via: Channel | None = Field(None, description="Only entries from this channel.")
    task: int | None = Field(None, ge=1, le=2**63 - 1, description="Only entries of this task.")
    since: Day | None = Field(None, alias="from", description="The first day, in UTC, as in 2026-03-01.")
    until: Day | None = Field(None, alias="to", description="The last day, in UTC.")


@router.get("/audit", response=responses(AuditPage), auth=authenticators(Scope.MANAGE))
def list_audit(request: HttpRequest, only: Query[AuditFilters], paging: Query[Paging]) -> AuditPage:
    """List who did what, when and from where, the newest first. For site admins."""
    _require_admin(request)
    rows, following = page_of(request, _filtered_entries(only), paging)
    return AuditPage(items=[AuditEntryOut.of(row) for row in rows], next=following)


@router.get(
    "/audit/export", response=responses(str), auth=authenticators(Scope.MANAGE), openapi_extra=sends(*KINDS)
)
def export_audit(
    request: HttpRequest, only: Query[AuditFilters], which: Query[ExportFormat]
) -> StreamingHttpResponse:
    """Export all entries that match, the newest first, as one table. The audit log records it."""
    _require_admin(request)
    return export_response(
        request, list(AuditEntryOut.model_fields), _exported_rows(only), name="audit entries", which=which
    )


def _require_admin(request: HttpRequest) -> None:
    permissions.require_site_admin(principal_of(request), "read the audit log")


def _exported_rows(only: AuditFilters) -> Iterator[dict[str, Any]]:
    for ids in iterate_ids(_filtered_entries(only), BATCH_SIZE):
        for row in rows_in_order(AuditEntry.objects.all(), ids):
            yield AuditEntryOut.of(row).model_dump()


def _filtered_entries(only: AuditFilters) -> QuerySet[AuditEntry]:
    wanted = Q()
    if only.project:
        wanted &= Q(project_name=only.project)
    if only.person:
        wanted &= Q(actor__username=only.person) | Q(actor_name=only.person)
    if only.via:
        wanted &= Q(via=only.via)
    if only.action:
        wanted &= Q(action=only.action)
    if only.task:
        wanted &= Q(task_id=only.task)
    if only.since:
        wanted &= Q(at__gte=datetime.combine(only.since, time(), UTC))
    if only.until:
        wanted &= Q(at__lt=datetime.combine(only.until, time(), UTC) + timedelta(days=1))
    return AuditEntry.objects.search(only.q).filter(wanted)
