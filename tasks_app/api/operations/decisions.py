"""Operations on the decisions of a project."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from django.http import HttpRequest
from ninja import Field, Query, Router, Schema, Status

from tasks_app import permissions
from tasks_app.api.auth import authenticators, principal_of
from tasks_app.api.declarations import responses
from tasks_app.api.idempotency import once
from tasks_app.api.paging import Paging, page_of
from tasks_app.api.schemas.base import DecisionNumber, ProjectName, Storable
from tasks_app.api.schemas.decisions import (
    DecisionExportOut,
    DecisionIn,
    DecisionPage,
    FoundDecisionOut,
    ImportedDecisions,
    ImportIn,
    ImportPreviewOut,
    NoteIn,
)
from tasks_app.models import DECISION_SHOWN_WITH, DecisionState, Scope
from tasks_app.models.decision import ALL
from tasks_app.reporting.schemas.decisions import DecisionOut, DecisionWithHistory
from tasks_app.services.decisions import changes, exporting, importing
from tasks_app.services.decisions.importing import MAX_FILES

router = Router(tags=["Decisions"])

#: An operation that changes one decision and returns it.
_changes_decision = partial(
    router.post, response=responses(DecisionOut, 404, 409, 422), auth=authenticators(Scope.ANSWER)
)


class DecisionFilters(Schema):
    """The filters of a project's decisions."""

    state: DecisionState | None = Field(None, description="Only decisions in this state.")
    search: Storable = Field("", max_length=200, description="Only decisions with all of these words.")
    review: bool = Field(False, description="Only decisions at which somebody should look again.")


@router.get(
    "/projects/{project}/decisions", response=responses(DecisionPage, 404), auth=authenticators(Scope.READ)
)
def list_decisions(
    request: HttpRequest, project: ProjectName, only: Query[DecisionFilters], paging: Query[Paging]
) -> DecisionPage:
    """List the decisions of a project, the newest first."""
    found = permissions.project_named_or_404(principal_of(request), project).decisions.search(only.search)
    found = found.to_review() if only.review else found
    found = found.listed_as(only.state or ALL)
    rows, following = page_of(
        request, found.with_counts().select_related(*DECISION_SHOWN_WITH), paging, newest_first=True
    )
    return DecisionPage(items=[DecisionOut.of(one) for one in rows], next=following)


@router.post(
    "/projects/{project}/decisions",
    response=responses(DecisionOut, 404, 409, 422, status=201),
    auth=authenticators(Scope.ANSWER),
)
@once
def make_decision(request: HttpRequest, project: ProjectName, body: DecisionIn) -> Status[DecisionOut]:
    """Make a decision that no question asked for. Agents of later tasks read it."""
    principal = principal_of(request)
    found = permissions.project_named_or_404(principal, project)
    made = changes.make_decision(found, body.content(), by=principal)
    return Status(201, _decision(request, project, made.number))


class ImportedFiles(Schema):
    path: list[Storable] = Field(
        [], max_length=MAX_FILES, description="Only these files; default: rules for agents and all ADRs."
    )


@router.get(
    "/projects/{project}/decisions/import",
    response=responses(ImportPreviewOut, 404, 409),
    auth=authenticators(Scope.READ),
)
def preview_decision_import(
    request: HttpRequest, project: ProjectName, only: Query[ImportedFiles]
) -> ImportPreviewOut:
    """Return the decisions that files of the project's branch state: rules for agents, and ADRs."""
    principal = principal_of(request)
    found = permissions.project_named_or_404(principal, project)
    permissions.require_actor(principal, found)
    preview = importing.preview_import(found, only.path)
    decisions = [FoundDecisionOut.of(one) for one in preview.decisions]
    return ImportPreviewOut(decisions=decisions, faults=preview.faults)


@router.post(
    "/projects/{project}/decisions/import",
    response=responses(ImportedDecisions, 404, 409, 422, status=201),
    auth=authenticators(Scope.ANSWER),
)
@once
def import_decisions(request: HttpRequest, project: ProjectName, body: ImportIn) -> Status[ImportedDecisions]:
    """Import decisions from files, all or none. They are proposed unless `accept` is true."""
    principal = principal_of(request)
    found = permissions.project_named_or_404(principal, project)
    permissions.require_actor(principal, found)
    wanted = None if body.decisions is None else {one.key: one.statement for one in body.decisions}
    chosen = importing.select_for_import(importing.preview_import(found, body.paths), wanted)
    made = importing.import_decisions(found, chosen, by=principal, accept=body.accept)
    rows = found.decisions.filter(pk__in=[one.pk for one in made]).with_counts().order_by("number")
    decisions = [DecisionOut.of(one) for one in rows.select_related(*DECISION_SHOWN_WITH)]
    return Status(201, ImportedDecisions(decisions=decisions))


@router.post(
    "/projects/{project}/decisions/export",
    response=responses(DecisionExportOut, 404, 409, 422),
    auth=authenticators(Scope.WRITE),
)
@once
def export_decisions(request: HttpRequest, project: ProjectName) -> Status[DecisionExportOut]:
    """Write the active decisions as files (ADRs) into a commit: the result of a task on which no agent works.

    The result is reviewed and published like others. Files that an earlier export wrote are kept up to date.
    """
    principal = principal_of(request)
    found = permissions.project_named_or_404(principal, project)
    export = exporting.export_decisions(found, by=principal)
    task = export.task.pk if export.task else None
    branch = export.task.branch if export.task else ""
    return Status(200, DecisionExportOut(task=task, branch=branch, created=export.is_new))


@router.get(
    "/projects/{project}/decisions/{number}",
    response=responses(DecisionWithHistory, 404),
    auth=authenticators(Scope.READ),
)
def get_decision(request: HttpRequest, project: ProjectName, number: DecisionNumber) -> DecisionWithHistory:
    """Return a decision with everything that happened to it."""
    return DecisionWithHistory.of(permissions.decision_or_404(principal_of(request), project, number))


@router.post(
    "/projects/{project}/decisions/{number}/revise",
    response=responses(DecisionOut, 404, 409, 422, status=201),
    auth=authenticators(Scope.ANSWER),
)
@once
def revise_decision(
    request: HttpRequest, project: ProjectName, number: DecisionNumber, body: DecisionIn
) -> Status[DecisionOut]:
    """Replace a decision by a new one, which has a number of its own. The old one stays in the history."""
    principal = principal_of(request)
    decision = permissions.decision_or_404(principal, project, number)
    new = changes.revise(decision, body.content(), by=principal)
    return Status(201, _decision(request, project, new.number))


@_changes_decision("/projects/{project}/decisions/{number}/confirm")
@once
def confirm_decision(
    request: HttpRequest, project: ProjectName, number: DecisionNumber
) -> Status[DecisionOut]:
    """Say that a decision is right. A proposed one holds from then on."""
    return _changed(request, project, number, changes.confirm)


@_changes_decision("/projects/{project}/decisions/{number}/keep")
@once
def keep_decision(
    request: HttpRequest, project: ProjectName, number: DecisionNumber, body: NoteIn
) -> Status[DecisionOut]:
    """Say after a look that a decision still holds, for its code as it is now."""
    return _changed(request, project, number, changes.mark_reviewed, note=body.note)


@_changes_decision("/projects/{project}/decisions/{number}/retire")
@once
def retire_decision(
    request: HttpRequest, project: ProjectName, number: DecisionNumber, body: NoteIn
) -> Status[DecisionOut]:
    """End a decision. It can be restored."""
    return _changed(request, project, number, changes.retire, reason=body.note)


@_changes_decision("/projects/{project}/decisions/{number}/restore")
@once
def restore_decision(
    request: HttpRequest, project: ProjectName, number: DecisionNumber
) -> Status[DecisionOut]:
    """Undo that a decision was retired."""
    return _changed(request, project, number, changes.restore)


def _changed(
    request: HttpRequest, project: str, number: int, change: Callable[..., object], **values: str
) -> Status[DecisionOut]:
    """Change the decision and return it as it is then."""
    principal = principal_of(request)
    change(permissions.decision_or_404(principal, project, number), by=principal, **values)
    return Status(200, _decision(request, project, number))


def _decision(request: HttpRequest, project: str, number: int) -> DecisionOut:
    return DecisionOut.of(permissions.decision_or_404(principal_of(request), project, number))
