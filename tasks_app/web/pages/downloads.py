"""Downloads: the logs of a step, its plan, and patches."""

from __future__ import annotations

from django.contrib import messages
from django.http import Http404, HttpRequest, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect
from django.urls import reverse

from tasks_app.core.errors import WorkspaceError
from tasks_app.history.events.logs import LogKind, render_log
from tasks_app.models import Sequence, Step, Task
from tasks_app.reporting.downloads import download, download_patch
from tasks_app.web.pages.access import principal_of, sequence_or_404, step_or_404, task_or_404
from tasks_app.web.pages.comparison import chosen_step


def step_log(request: HttpRequest, task_id: int, position: int, kind: str) -> StreamingHttpResponse:
    step = step_or_404(request, task_id, position)
    if kind not in set(LogKind):
        raise Http404(f"There is no log of kind “{kind}”.")
    name = f"task-{task_id}-step-{position}-{kind}.log"
    return download(render_log(step, LogKind(kind)), name=name, kind="text/plain")


def step_plan(request: HttpRequest, task_id: int, position: int) -> StreamingHttpResponse:
    step = step_or_404(request, task_id, position)
    if not step.plan:
        raise Http404("This step wrote no plan.")
    return download(iter([step.plan]), name=f"task-{task_id}-plan.md", kind="text/markdown")


def task_patch(request: HttpRequest, task_id: int) -> HttpResponseBase:
    """`?step=N`: the change of one step; else that of the whole task."""
    task = task_or_404(request, task_id)
    step = chosen_step(request, task)
    return _patch(request, step or task, back=reverse("task", args=[task.pk]))


def sequence_patch(request: HttpRequest, sequence_id: int) -> HttpResponseBase:
    sequence = sequence_or_404(request, sequence_id)
    return _patch(request, sequence, back=reverse("sequence", args=[sequence.pk]))


def _patch(request: HttpRequest, what: Task | Step | Sequence, *, back: str) -> HttpResponseBase:
    try:
        return download_patch(what, by=principal_of(request))
    except WorkspaceError as error:
        messages.error(request, str(error))
        return redirect(back)
