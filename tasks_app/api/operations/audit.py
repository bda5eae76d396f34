"""The audit: who did what, when, from where."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta

from django.db.models import Q, QuerySet
from django.http import HttpRequest
from ninja import Field, Query, Router, Schema

from tasks_app.api.door import doors, person
from tasks_app.api.filtering import Day, Name
from tasks_app.api.operation import responses
from tasks_app.api.paging import Paging, page_of
from tasks_app.api.schemas.audit import AuditFacts, AuditPage
from tasks_app.errors import NotAllowed
from tasks_app.models import Action, AuditEntry, Scope

router = Router(tags=["Audit"])


class AuditFilters(Schema):
    project: Name = Field("", description="Only what was done in the project of that name.")
    person: Name = Field("", description="Only what this person did, by login or name.")
    action: Action | None = Field(None, description="Only this.")
    task: int | None = Field(None, ge=1, le=2**63 - 1, description="Only what was done to this task.")
    since: Day | None = Field(None, alias="from", description="The first day, in UTC, as in 2026-03-01.")
    until: Day | None = Field(None, alias="to", description="The last day, in UTC.")


@router.get("/audit", response=responses(AuditPage), auth=doors(Scope.MANAGE))
def list_audit(request: HttpRequest, only: Query[AuditFilters], paging: Query[Paging]) -> AuditPage:
    """Who did what, when and from where, the newest first. For site admins."""
    user = person(request)
    if not user.is_superuser or user.reach is not None:
        raise NotAllowed(
            "Only a site admin reads the audit, and not with a token that is restricted to some."
        )
    rows, following = page_of(request, _rows(only), paging)
    return AuditPage(items=[_said(row) for row in rows], next=following)


def _rows(only: AuditFilters) -> QuerySet[AuditEntry]:
    wanted = Q()
    if only.project:
        wanted &= Q(project_name=only.project)
    if only.person:
        wanted &= Q(actor__username=only.person) | Q(actor_name=only.person)
    if only.action:
        wanted &= Q(action=only.action)
    if only.task:
        wanted &= Q(task_id=only.task)
    if only.since:
        wanted &= Q(at__gte=datetime.combine(only.since, time(), UTC))
    if only.until:
        wanted &= Q(at__lt=datetime.combine(only.until, time(), UTC) + timedelta(days=1))
    return AuditEntry.objects.filter(wanted)


def _said(row: AuditEntry) -> AuditFacts:
    return AuditFacts(
        id=row.pk,
        at=row.at.isoformat(),
        actor=row.actor_name,
        action=row.action,
        subject=row.subject,
        project=row.project_name,
        task=row.task_id,
        via=row.via,
        token=row.token,
        address=row.address,
        detail=row.detail,
    )
