"""Downloads: the logs of a step, its plan, and patches."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from django.contrib import messages
from django.http import Http404, HttpRequest, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect
from django.urls import reverse

from tasks_app.core.errors import WorkspaceError
from tasks_app.history.events.logs import LogKind, render_log, render_setup_log
from tasks_app.reporting.downloads import download, download_difference, download_patch
from tasks_app.web.pages.access import principal_of, sequence_or_404, step_or_404, task_or_404
from tasks_app.web.pages.comparison import chosen_comparison


def step_log(request: HttpRequest, task_id: int, position: int, kind: str) -> StreamingHttpResponse:
    step = step_or_404(request, task_id, position)
    if kind not in set(LogKind):
        raise Http404(f"There is no log of kind “{kind}”.")
    name = f"task-{task_id}-step-{position}-{kind}.log"
    return download(render_log(step, LogKind(kind)), name=name, kind="text/plain")


def setup_log(request: HttpRequest, task_id: int) -> StreamingHttpResponse:
    task = task_or_404(request, task_id)
    return download(render_setup_log(task), name=f"task-{task_id}-setup.log", kind="text/plain")


def step_plan(request: HttpRequest, task_id: int, position: int) -> StreamingHttpResponse:
    step = step_or_404(request, task_id, position)
    if not step.plan:
        raise Http404("This step wrote no plan.")
    return download(iter([step.plan]), name=f"task-{task_id}-plan.md", kind="text/markdown")


def task_patch(request: HttpRequest, task_id: int) -> HttpResponseBase:
    """Download the changes that the diff page with the same parameters shows."""
    task = task_or_404(request, task_id)
    compared = chosen_comparison(request, task)
    send = partial(download_difference, compared.difference, name=compared.name, by=principal_of(request))
    return _patch_or_error(request, send, back=reverse("task", args=[task.pk]))


def sequence_patch(request: HttpRequest, sequence_id: int) -> HttpResponseBase:
    sequence = sequence_or_404(request, sequence_id)
    send = partial(download_patch, sequence, by=principal_of(request))
    return _patch_or_error(request, send, back=reverse("sequence", args=[sequence.pk]))


def _patch_or_error(
    request: HttpRequest, send: Callable[[], StreamingHttpResponse], *, back: str
) -> HttpResponseBase:
    """Return the patch, or the page with the reason why there is none."""
    try:
        return send()
    except WorkspaceError as error:
        messages.error(request, str(error))
        return redirect(back)
