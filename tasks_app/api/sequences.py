"""Operations on sequences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from django.db.models import Q
from django.http import HttpRequest, StreamingHttpResponse
from ninja import Field, Query, Router, Schema, Status

from tasks_app import permissions
from tasks_app.api.auth import authenticators, channel, principal_of
from tasks_app.api.base import (
    AgentMessage,
    Flag,
    Input,
    Paging,
    SequenceId,
    Storable,
    Threshold,
    page_of,
    responses,
    sends,
)
from tasks_app.api.idempotency import once
from tasks_app.api.publishing import WITHOUT_OPTIONS, Publish
from tasks_app.config.task_file import NamesToAsk
from tasks_app.core.phases import Phase
from tasks_app.models import Scope, Task
from tasks_app.models.phased import shown_in
from tasks_app.schemas.publishing import PublicationOut
from tasks_app.schemas.reviews import ReviewOut, review_out
from tasks_app.schemas.sequences import SequenceDetail, SequenceOut
from tasks_app.services import sequences as actions
from tasks_app.services.exports import PATCH_TYPE, download_patch
from tasks_app.services.publishing.publications import publish
from tasks_app.services.publishing.pull_requests import let_agent_merge
from tasks_app.services.usage import statistics


class SequencePage(Schema):
    items: list[SequenceOut] = Field(description="Sequences, the newest first.")
    next: str | None = Field(description="The URL of the next page; null on the last.")


class NewSequence(Input):
    """A folder of task files, as committed in the repository."""

    project: Annotated[Storable, Field(min_length=1, max_length=60)] = Field(
        description="The project's name."
    )
    folder: Annotated[Storable, Field(min_length=1, max_length=300)] = Field(
        description="The path of the folder in the repository.", examples=["tasks/new-prices"]
    )
    threshold: Threshold | None = Field(
        None, description="For all its tasks; default: the setting of each task."
    )
    pipeline: Annotated[Storable, Field(min_length=1, max_length=100)] | None = Field(
        None, description="For all its tasks; default: the setting of each task."
    )
    ask: NamesToAsk = Field(
        (),
        description="Whom the questions of all its tasks are put to: user names, e-mail addresses, groups of "
        "members; default: those in the front matter of each task, else whom the project names.",
        examples=[["ann", "payments"]],
    )
    start: Flag = Field(False, description="Start the first task at once.")


class Resume(Input):
    """How to resume."""

    allow: Annotated[Storable, Field(max_length=40)] = Field(
        "", description="The `allow_key` of a next task that may do more than the first one."
    )
    message: AgentMessage = Field("", description="Read by the agent of the current task, as your words.")


PLAIN_RESUME = Resume.model_validate({})

router = Router(tags=["Sequences"])


class SequenceFilters(Schema):
    phase: Phase | None = Field(None, description="Only sequences in this phase.")
    project: Storable | None = Field(None, description="Only sequences of the project with this name.")


@router.get("/sequences", response=responses(SequencePage), auth=authenticators(Scope.READ))
def list_sequences(request: HttpRequest, only: Query[SequenceFilters], paging: Query[Paging]) -> SequencePage:
    """Sequences in the projects that you may see, the newest first."""
    rows = permissions.sequences_visible_to(principal_of(request)).select_related("project", "created_by")
    if only.project is not None:
        rows = rows.filter(project__name=only.project)
    if only.phase is not None:
        lost = Q(phase=Phase.RUNNING, pk__in=Task.objects.without_worker().values("sequence"))
        rows = rows.filter(shown_in([only.phase], lost=lost))
    page, following = page_of(request, rows, paging)
    metrics = statistics.of_sequences(page)
    items = [SequenceOut.from_row(row, metrics=metrics[row.pk]) for row in page]
    return SequencePage(items=items, next=following)


def _created(request: HttpRequest, task: Task, given: Mapping[str, Any]) -> Status[SequenceDetail]:
    return Status(201, _detail(request, task.sequence_id or 0))


@router.post(
    "/sequences",
    response=responses(SequenceDetail, 404, 409, 422, status=201),
    auth=authenticators(Scope.WRITE),
)
@once(again=_created)
def create_sequence(request: HttpRequest, body: NewSequence) -> Status[SequenceDetail]:
    """Create a sequence from a folder of task files in the repository, and start it if you say so."""
    principal = principal_of(request)
    project = permissions.project_named_or_404(principal, body.project)
    sequence = actions.create_sequence(
        project,
        body.folder,
        by=principal,
        threshold=body.threshold,
        pipeline=body.pipeline,
        ask=body.ask,
        start=body.start,
    )
    return Status(201, _detail(request, sequence.pk))


@router.get(
    "/sequences/{sequence_id}", response=responses(SequenceDetail, 404), auth=authenticators(Scope.READ)
)
def get_sequence(request: HttpRequest, sequence_id: SequenceId) -> SequenceDetail:
    """A sequence with the tasks of it that were begun."""
    return _detail(request, sequence_id)


@router.post(
    "/sequences/{sequence_id}/start",
    response=responses(SequenceDetail, 404),
    auth=authenticators(Scope.WRITE),
)
def start_sequence(request: HttpRequest, sequence_id: SequenceId) -> SequenceDetail:
    """Start its first task; starting it twice changes nothing."""
    principal = principal_of(request)
    actions.start_sequence(permissions.sequence_or_404(principal, sequence_id), by=principal)
    return _detail(request, sequence_id)


@router.post(
    "/sequences/{sequence_id}/cancel",
    response=responses(SequenceDetail, 404, 409),
    auth=authenticators(Scope.WRITE),
)
def cancel_sequence(request: HttpRequest, sequence_id: SequenceId) -> SequenceDetail:
    """Cancel a sequence and its current task."""
    principal = principal_of(request)
    actions.cancel_sequence(permissions.sequence_or_404(principal, sequence_id), by=principal)
    return _detail(request, sequence_id)


@router.post(
    "/sequences/{sequence_id}/resume",
    response=responses(SequenceDetail, 404, 409, 422),
    auth=authenticators(Scope.WRITE),
)
def resume_sequence(
    request: HttpRequest, sequence_id: SequenceId, body: Resume = PLAIN_RESUME
) -> SequenceDetail:
    """Resume the current task; or, after an error in the folder, read the folder again.

    A next task that may do more than the first one begins only with `allow`.
    """
    principal = principal_of(request)
    sequence = permissions.sequence_or_404(principal, sequence_id)
    actions.resume_sequence(sequence, by=principal, allow=body.allow, message=body.message)
    return _detail(request, sequence_id)


@router.post(
    "/sequences/{sequence_id}/publish",
    response=responses(PublicationOut, 404, 409, 422, status=202),
    auth=authenticators(Scope.WRITE),
)
@once
def publish_sequence(
    request: HttpRequest, sequence_id: SequenceId, body: Publish = WITHOUT_OPTIONS
) -> Status[PublicationOut]:
    """Publish the branch of a sequence: the result of its newest task, which lists the publications."""
    principal = principal_of(request)
    task = actions.task_to_publish(permissions.sequence_or_404(principal, sequence_id))
    return Status(202, PublicationOut.from_row(publish(task, by=principal, **body.model_dump())))


@router.post(
    "/sequences/{sequence_id}/merge",
    response=responses(ReviewOut, 404, 409, 422, status=201),
    auth=authenticators(Scope.WRITE),
)
@once
def let_agent_merge_sequence(request: HttpRequest, sequence_id: SequenceId) -> Status[ReviewOut]:
    """Let the agent merge the project's branch, with which the result of a done sequence conflicts.

    In the newest task, the last step that wrote code and may write these files goes on in its session, with a
    request for changes.
    """
    principal = principal_of(request)
    task = actions.task_to_publish(permissions.sequence_or_404(principal, sequence_id))
    return Status(201, review_out(let_agent_merge(task, by=principal, via=channel())))


@router.get(
    "/sequences/{sequence_id}/patch",
    response=responses(str, 404, 409),
    auth=authenticators(Scope.READ),
    openapi_extra=sends(PATCH_TYPE),
)
def get_sequence_patch(request: HttpRequest, sequence_id: SequenceId) -> StreamingHttpResponse:
    """Download the complete change of all tasks so far, with binary files, for `git apply`."""
    principal = principal_of(request)
    return download_patch(permissions.sequence_or_404(principal, sequence_id), by=principal)


def _detail(request: HttpRequest, sequence_id: int) -> SequenceDetail:
    """Return the sequence as it is now: an action on one of its tasks may have changed it."""
    sequence = permissions.sequence_or_404(principal_of(request), sequence_id)
    to_come, trouble = actions.upcoming_files(sequence)
    waiting = actions.task_waiting_for_permission(sequence) or actions.NextTask()
    return SequenceDetail.from_row(
        sequence,
        to_come=to_come,
        trouble=trouble,
        more_open=list(waiting.more_open),
        allow_key=waiting.allow_key,
    )
