"""Sequences: creating, looking at and moving them."""

from __future__ import annotations

from django.db.models import QuerySet
from django.http import HttpRequest, StreamingHttpResponse
from ninja import Field, Query, Router, Schema, Status

from tasks_app import permissions
from tasks_app.api.auth import doors, principal_of
from tasks_app.api.declarations import responses, sends
from tasks_app.api.idempotency import once
from tasks_app.api.paging import Paging, page_of
from tasks_app.api.schemas.base import SequenceId, Storable
from tasks_app.api.schemas.sequences import NewSequence, SequencePage
from tasks_app.core.phases import Phase
from tasks_app.history import statistics
from tasks_app.models import Scope, Sequence
from tasks_app.reporting.downloads import PATCH_TYPE, download_patch
from tasks_app.reporting.schemas.sequences import SequenceDetail, SequenceOut
from tasks_app.services import sequences as actions

router = Router(tags=["Sequences"])


class SequenceFilters(Schema):
    phase: Phase | None = Field(None, description="Only sequences in this phase.")
    project: Storable | None = Field(None, description="Only those of the project of that name.")


@router.get("/sequences", response=responses(SequencePage), auth=doors(Scope.READ))
def list_sequences(request: HttpRequest, only: Query[SequenceFilters], paging: Query[Paging]) -> SequencePage:
    """Sequences in the projects that you may see, the newest first."""
    rows, following = page_of(request, _rows(request, only), paging)
    metrics = statistics.of_sequences(rows)
    items = [SequenceOut.of(row, metrics=metrics[row.pk]) for row in rows]
    return SequencePage(items=items, next=following)


@router.post(
    "/sequences", response=responses(SequenceDetail, 404, 409, 422, status=201), auth=doors(Scope.WRITE)
)
@once
def create_sequence(request: HttpRequest, body: NewSequence) -> Status[SequenceDetail]:
    """Create a sequence from a folder of task files in the repository, and start it if you say so."""
    principal = principal_of(request)
    project = permissions.project_named_or_404(principal, body.project)
    sequence = actions.create_sequence(
        project, body.folder, by=principal, threshold=body.threshold, pipeline=body.pipeline
    )
    if body.start:
        actions.start_sequence(sequence, by=principal)
    return Status(201, _whole(request, sequence.pk))


@router.get("/sequences/{sequence_id}", response=responses(SequenceDetail, 404), auth=doors(Scope.READ))
def get_sequence(request: HttpRequest, sequence_id: SequenceId) -> SequenceDetail:
    """A sequence with the tasks of it that were begun."""
    return _whole(request, sequence_id)


@router.post(
    "/sequences/{sequence_id}/start", response=responses(SequenceDetail, 404), auth=doors(Scope.WRITE)
)
def start_sequence(request: HttpRequest, sequence_id: SequenceId) -> SequenceDetail:
    """Start its first task; starting it twice changes nothing."""
    principal = principal_of(request)
    actions.start_sequence(permissions.sequence_or_404(principal, sequence_id), by=principal)
    return _whole(request, sequence_id)


@router.post(
    "/sequences/{sequence_id}/cancel", response=responses(SequenceDetail, 404, 409), auth=doors(Scope.WRITE)
)
def cancel_sequence(request: HttpRequest, sequence_id: SequenceId) -> SequenceDetail:
    """Call off the task at hand, and with it the sequence."""
    principal = principal_of(request)
    actions.cancel_sequence(permissions.sequence_or_404(principal, sequence_id), by=principal)
    return _whole(request, sequence_id)


@router.post(
    "/sequences/{sequence_id}/go-on", response=responses(SequenceDetail, 404, 409), auth=doors(Scope.WRITE)
)
def go_on_with_sequence(request: HttpRequest, sequence_id: SequenceId) -> SequenceDetail:
    """Go on with the task at hand; or, if the folder was at fault, look into it again."""
    principal = principal_of(request)
    actions.go_on_sequence(permissions.sequence_or_404(principal, sequence_id), by=principal)
    return _whole(request, sequence_id)


@router.get(
    "/sequences/{sequence_id}/patch",
    response=responses(str, 404, 409),
    auth=doors(Scope.READ),
    openapi_extra=sends(PATCH_TYPE),
)
def get_sequence_patch(request: HttpRequest, sequence_id: SequenceId) -> StreamingHttpResponse:
    """What all tasks of a sequence changed so far, whole and with binary files: for `git apply`."""
    principal = principal_of(request)
    return download_patch(permissions.sequence_or_404(principal, sequence_id), by=principal)


def _rows(request: HttpRequest, only: SequenceFilters) -> QuerySet[Sequence]:
    named = {"project": "project__name"}
    wanted = {named.get(name, name): value for name, value in only.model_dump(exclude_none=True).items()}
    rows = permissions.sequences_visible_to(principal_of(request)).filter(**wanted)
    return rows.select_related("project", "created_by")


def _whole(request: HttpRequest, sequence_id: int) -> SequenceDetail:
    """As it is now: what was done to one of its tasks may have moved it."""
    sequence = permissions.sequence_or_404(principal_of(request), sequence_id)
    to_come, trouble = actions.files_to_come(sequence)
    return SequenceDetail.of(sequence, to_come=to_come, trouble=trouble)
