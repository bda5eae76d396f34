"""Operations on tasks: their steps, events, logs and diffs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from django.db import transaction
from django.db.models import Q
from django.http import HttpRequest, StreamingHttpResponse
from django.shortcuts import get_object_or_404
from ninja import Query, Router, Schema, Status
from pydantic import Field

from tasks_app import permissions
from tasks_app.api.auth import authenticators, principal_of
from tasks_app.api.base import (
    KINDS,
    LARGEST,
    AgentMessage,
    ExportFormat,
    Flag,
    Input,
    Name,
    Number,
    Paging,
    Position,
    SearchFilters,
    Storable,
    TaskId,
    Threshold,
    export_response,
    page_of,
    responses,
    sends,
    url_with,
)
from tasks_app.api.idempotency import once
from tasks_app.config.project_settings import SETTINGS
from tasks_app.config.task_file import NamesToAsk, PriorityName
from tasks_app.core.phases import Phase
from tasks_app.history.events.logs import LogKind, render_log
from tasks_app.history.events.reading import Events
from tasks_app.models import Scope, Step, Task, paths
from tasks_app.schemas.tasks import (
    ChangedFileOut,
    CreatedTask,
    Diff,
    EventOut,
    StepOut,
    TaskDetail,
    TaskOut,
    TaskPreview,
)
from tasks_app.schemas.usage import forecast_for, forecast_of
from tasks_app.schemas.workers import QueueOut
from tasks_app.services import tasks as actions
from tasks_app.services.bulk import retry_from
from tasks_app.services.difference import difference_of
from tasks_app.services.exports import (
    PATCH_TYPE,
    TASK_COLUMNS,
    download_patch,
    record_download,
    stream_text,
    task_rows,
)
from tasks_app.services.list_filters import ListFilters
from tasks_app.services.tasks import change_priority, change_threshold


class TaskPage(Schema):
    items: list[TaskOut] = Field(description="Tasks, the newest first.")
    next: str | None = Field(description="The URL of the next page; null on the last.")


class TaskDraft(Input):
    """A task's text, with options that override its front matter and the project's settings."""

    project: Annotated[Storable, Field(min_length=1, max_length=60)] = Field(
        description="The project's name.", examples=["sample"]
    )
    text: Annotated[Storable, Field(min_length=1, max_length=1_000_000)] = Field(
        description="Markdown with optional front matter; the first heading is the title.",
        examples=["# Round invoice totals to the cent\n\nRound them where they are computed."],
    )
    threshold: Threshold | None = Field(None, description=SETTINGS["threshold"].help)
    pipeline: Annotated[Storable, Field(min_length=1, max_length=100)] | None = Field(
        None, description="One of the project's pipelines."
    )
    ask: NamesToAsk = Field(
        (),
        description="Whom its questions are put to: user names, e-mail addresses, groups of members; left "
        "out, those in the front matter, else whom the project names.",
        examples=[["ann", "payments"]],
    )


class NewTask(TaskDraft):
    """The task to create."""

    start: Flag = Field(False, description="Start the task at once.")


def _left_out() -> Any:
    """Return what stands for a field that was left out: nobody reads it, see model_fields_set."""
    return None


class TaskPatch(Input):
    """The changes of a task. Fields that are left out stay as they are; none of them can be null."""

    threshold: Threshold = Field(
        default_factory=_left_out,
        description=f"{SETTINGS['threshold'].help} It applies from the next run on.",
    )
    priority: PriorityName = Field(
        default_factory=_left_out, description="How early it has its turn among the tasks that wait."
    )


class ResumeTask(Input):
    """How to resume."""

    message: AgentMessage = Field("", description="Read by the agent with its next prompt, as your words.")


PLAIN_RESUME = ResumeTask.model_validate({})


class Retry(Input):
    """How to retry a step."""

    put_back: Flag = Field(False, description="First restore the files as they were before the step.")
    message: AgentMessage = Field("", description="Read by the agents of these steps in their prompts.")


class Steps(Schema):
    items: list[StepOut] = Field(description="The steps in order.")


class EventPage(Schema):
    items: list[EventOut] = Field(description="Events, the oldest first.")
    next: str = Field(description="The URL of the events after these, now or later.")
    more: bool = Field(description="Whether there are more events now.")


router = Router(tags=["Tasks"])


class TaskFilters(SearchFilters):
    """The filters of the history page."""

    phase: list[Phase] = Field([], description="Only tasks in one of these phases.")
    person: Name = Field("", description="Only tasks that this user created.")
    pipeline: Name = Field("", description="Only tasks of this pipeline.")
    model: Name = Field("", description="Only tasks with a run of this model.")
    sequence: Number | None = Field(None, description="Only tasks of the sequence with this id.")
    questions: Literal["", "yes", "no"] = Field(
        "", description="`yes`: only tasks that asked; `no`: only tasks that did not."
    )
    sort: Literal["newest", "oldest"] = Field("newest", description="Which come first.")


class EventsAfter(Schema):
    after: int = Field(0, ge=0, le=LARGEST, description="The id of the last event that you have.")
    limit: int = Field(200, ge=1, le=1000, description="Maximum number of events, up to 1000.")


class StepChoice(Schema):
    step: int | None = Field(
        None, ge=1, le=32767, description="Only of this step; default: of the whole task."
    )


@router.get("/tasks", response=responses(TaskPage), auth=authenticators(Scope.READ))
def list_tasks(request: HttpRequest, only: Query[TaskFilters], paging: Query[Paging]) -> TaskPage:
    """List tasks in the projects that you may see, the newest first, with search and filters."""
    matching = _filters(only).matching_tasks(principal_of(request))
    matching = matching.select_related("project", "created_by").defer("text", "body")
    rows, following = page_of(request, matching, paging, newest_first=only.sort == "newest")
    return TaskPage(items=TaskOut.of_each(rows), next=following)


def _created(request: HttpRequest, task: Task, given: Mapping[str, Any] | None = None) -> Status[CreatedTask]:
    return Status(201, CreatedTask.from_row(task, text=task.text, **dict(forecast_of(task))))


@router.post(
    "/tasks",
    response=responses(CreatedTask, 404, 409, 413, 422, status=201),
    auth=authenticators(Scope.WRITE),
)
@once(again=_created)
def create_task(request: HttpRequest, body: NewTask) -> Status[CreatedTask]:
    """Create a task from its text, and start it if `start` is true. Says what it is likely to cost."""
    principal = principal_of(request)
    project = permissions.project_named_or_404(principal, body.project)
    task = actions.create_task(
        project,
        body.text,
        by=principal,
        where="task",
        threshold=body.threshold,
        pipeline=body.pipeline,
        ask=body.ask,
        start=body.start,
    )
    return _created(request, task)


@router.get(
    "/tasks/export", response=responses(str), auth=authenticators(Scope.READ), openapi_extra=sends(*KINDS)
)
def export_tasks(
    request: HttpRequest, only: Query[TaskFilters], which: Query[ExportFormat]
) -> StreamingHttpResponse:
    """Export all tasks that match, the newest first, as one table. The audit log records it."""
    rows = task_rows(_filters(only).matching_tasks(principal_of(request)))
    return export_response(request, TASK_COLUMNS, rows, name="tasks", which=which)


@router.post(
    "/tasks/preview", response=responses(TaskPreview, 404, 409, 413), auth=authenticators(Scope.READ)
)
def preview_task(request: HttpRequest, body: TaskDraft) -> TaskPreview:
    """Preview the task that a text would create, or its errors. Nothing is stored or fetched."""
    principal = principal_of(request)
    project = permissions.project_named_or_404(principal, body.project)
    commit = paths.repository(project).head(project.branch)
    plan = actions.plan_task(
        project, body.text, base=commit, where="task",
        threshold=body.threshold, pipeline=body.pipeline, ask=body.ask,
    )  # fmt: skip
    return TaskPreview(
        title=plan.definition.title,
        pipeline=plan.pipeline.name,
        steps=[step.name for _, step in plan.steps],
        threshold=plan.threshold,
        model=plan.definition.model or plan.config.model or "",
        resume=plan.definition.resume,
        ask=list(plan.definition.ask),
        body=plan.definition.body,
        commit=commit,
        **dict(forecast_for(project, pipeline=plan.pipeline.name, user=principal.user)),
    )


@router.get("/tasks/{task_id}", response=responses(TaskDetail, 404), auth=authenticators(Scope.READ))
def get_task(request: HttpRequest, task_id: TaskId) -> TaskDetail:
    """Return a task with its open questions and usage."""
    return _detail(permissions.task_or_404(principal_of(request), task_id))


@router.patch("/tasks/{task_id}", response=responses(TaskDetail, 404), auth=authenticators(Scope.WRITE))
def change_task(request: HttpRequest, task_id: TaskId, body: TaskPatch) -> TaskDetail:
    """Change a task's threshold, in any phase, or its priority, until it has ended."""
    principal = principal_of(request)
    task = permissions.task_or_404(principal, task_id)
    permissions.require_actor(principal, task.project)
    with transaction.atomic():
        if "threshold" in body.model_fields_set:
            change_threshold(task, body.threshold, by=principal)
        if "priority" in body.model_fields_set:
            change_priority(task, body.priority, by=principal)
    return _detail(permissions.task_or_404(principal_of(request), task_id))


@router.post("/tasks/{task_id}/start", response=responses(TaskDetail, 404), auth=authenticators(Scope.WRITE))
def start_task(request: HttpRequest, task_id: TaskId) -> TaskDetail:
    """Start a task that was not started; starting it twice changes nothing."""
    task = permissions.task_or_404(principal_of(request), task_id)
    actions.start_task(task, by=principal_of(request))
    return _detail(task)


@router.post(
    "/tasks/{task_id}/cancel", response=responses(TaskDetail, 404, 409), auth=authenticators(Scope.WRITE)
)
def cancel_task(request: HttpRequest, task_id: TaskId) -> TaskDetail:
    """Cancel a task: its agent is stopped, open questions are withdrawn, and the branch stays."""
    task = permissions.task_or_404(principal_of(request), task_id)
    actions.cancel_task(task, by=principal_of(request))
    return _detail(permissions.task_or_404(principal_of(request), task_id))


@router.put("/tasks/{task_id}/watch", response=responses(TaskDetail, 404), auth=authenticators(Scope.WRITE))
def watch_task(request: HttpRequest, task_id: TaskId) -> TaskDetail:
    """Watch a task: you are notified as if it were yours and its questions were asked of you."""
    return _watch(request, task_id)


@router.delete(
    "/tasks/{task_id}/watch", response=responses(TaskDetail, 404), auth=authenticators(Scope.WRITE)
)
def unwatch_task(request: HttpRequest, task_id: TaskId) -> TaskDetail:
    """End watching a task."""
    return _watch(request, task_id, undo=True)


def _watch(request: HttpRequest, task_id: int, *, undo: bool = False) -> TaskDetail:
    task = permissions.task_or_404(principal_of(request), task_id)
    actions.watch_task(task, by=principal_of(request), undo=undo)
    return _detail(task)


@router.post(
    "/tasks/{task_id}/resume", response=responses(TaskDetail, 404, 409), auth=authenticators(Scope.WRITE)
)
def resume_task(request: HttpRequest, task_id: TaskId, body: ResumeTask = PLAIN_RESUME) -> TaskDetail:
    """Resume a task that failed, was interrupted or cancelled, or waits for a usage limit to reset."""
    task = permissions.task_or_404(principal_of(request), task_id)
    actions.resume_task(task, by=principal_of(request), message=body.message)
    return _detail(permissions.task_or_404(principal_of(request), task_id))


@router.get("/tasks/{task_id}/steps", response=responses(Steps, 404), auth=authenticators(Scope.READ))
def list_steps(request: HttpRequest, task_id: TaskId) -> Steps:
    """List the steps of a task with their runs."""
    steps = permissions.task_or_404(principal_of(request), task_id).steps.prefetch_related("runs")
    return Steps(items=[StepOut.from_row(step) for step in steps])


@router.post(
    "/tasks/{task_id}/steps/{position}/retry",
    response=responses(TaskDetail, 404, 409, 422),
    auth=authenticators(Scope.WRITE),
)
@once
def retry_step(request: HttpRequest, task_id: TaskId, position: Position, body: Retry) -> Status[TaskDetail]:
    """Retry a step and all steps after it, in new sessions. The earlier runs stay in the history."""
    step = permissions.step_or_404(principal_of(request), task_id, position)
    retry_from(step.task, step, by=principal_of(request), put_back=body.put_back, message=body.message)
    return Status(200, _detail(permissions.task_or_404(principal_of(request), task_id)))


@router.get("/tasks/{task_id}/events", response=responses(EventPage, 404), auth=authenticators(Scope.READ))
def list_events(request: HttpRequest, task_id: TaskId, which: Query[EventsAfter]) -> EventPage:
    """List the events of a task after one that you have. Follow `next` to stay up to date."""
    task = permissions.task_or_404(principal_of(request), task_id)
    stored = Events(Q(run__step__task=task), related="run__step")
    found = stored.after(which.after, which.limit + 1)
    events = found[: which.limit]
    last = events[-1].pk if events else which.after
    return EventPage(
        items=[EventOut.from_row(event) for event in events],
        next=url_with(request, after=last),
        more=len(found) > len(events),
    )


@router.get("/tasks/{task_id}/diff", response=responses(Diff, 404, 409), auth=authenticators(Scope.READ))
def get_diff(request: HttpRequest, task_id: TaskId, which: Query[StepChoice]) -> Diff:
    """Return the diff of a task or a step, for reading; a long one is cut. The patch is complete."""
    changed = _task_or_step(request, task_id, which)
    difference = difference_of(changed)
    if difference is None:
        return Diff(base=changed.base_commit, head=changed.head_commit, diff="", files=[])
    files = [ChangedFileOut.from_row(file) for file in difference.files()]
    return Diff(base=difference.base, head=difference.head, diff=difference.diff(), files=files)


@router.get(
    "/tasks/{task_id}/patch",
    response=responses(str, 404, 409),
    auth=authenticators(Scope.READ),
    openapi_extra=sends(PATCH_TYPE),
)
def get_patch(request: HttpRequest, task_id: TaskId, which: Query[StepChoice]) -> StreamingHttpResponse:
    """Download the complete change of a task or a step, with binary files, for `git apply`."""
    return download_patch(_task_or_step(request, task_id, which), by=principal_of(request))


@router.get(
    "/tasks/{task_id}/steps/{position}/logs/{kind}",
    response=responses(str, 404),
    auth=authenticators(Scope.READ),
    openapi_extra=sends("text/plain"),
)
def get_log(
    request: HttpRequest, task_id: TaskId, position: Position, kind: LogKind
) -> StreamingHttpResponse:
    """Download a log of a step as plain text: `output`, `reasoning` or `raw`."""
    step = permissions.step_or_404(principal_of(request), task_id, position)
    record_download(f"task-{task_id}-step-{position}-{kind}.log", by=principal_of(request), of=step)
    return StreamingHttpResponse(
        stream_text(render_log(step, kind)), content_type="text/plain; charset=utf-8"
    )


def _filters(only: TaskFilters) -> ListFilters:
    return only.filters(sequence=str(only.sequence or ""), phase=tuple(only.phase))


def _detail(task: Task) -> TaskDetail:
    return TaskDetail.from_row(task, text=task.text)


def _task_or_step(request: HttpRequest, task_id: int, which: StepChoice) -> Task | Step:
    task = permissions.task_or_404(principal_of(request), task_id)
    if which.step:
        return get_object_or_404(task.steps, position=which.step)
    return task


@router.get("/queue", response=responses(QueueOut), auth=authenticators(Scope.READ))
def get_queue(request: HttpRequest) -> QueueOut:
    """Return the tasks that wait, in the order of their turns, and what each waits for."""
    return QueueOut.seen_by(principal_of(request))
