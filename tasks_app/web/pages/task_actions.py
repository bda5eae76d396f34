"""The buttons of a task: start, cancel, resume, retry from a step, change threshold and priority."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST

from tasks_app.config.threshold import threshold_from_text
from tasks_app.models import Task
from tasks_app.permissions import Principal, require_actor
from tasks_app.services.retries import retry_from
from tasks_app.services.tasks import cancel_task, change_priority, change_threshold, resume_task, start_task
from tasks_app.web.pages.access import step_or_404, task_or_404
from tasks_app.web.pages.actions import run_action


@require_POST
def task_start(request: HttpRequest, task_id: int) -> HttpResponse:
    return _act(request, task_id, start_task)


@require_POST
def task_cancel(request: HttpRequest, task_id: int) -> HttpResponse:
    return _act(request, task_id, cancel_task)


@require_POST
def task_resume(request: HttpRequest, task_id: int) -> HttpResponse:
    return _act(request, task_id, resume_task)


@require_POST
def task_retry(request: HttpRequest, task_id: int, position: int) -> HttpResponse:
    """Retry from a step; `files=before` resets the files to before the step."""
    step = step_or_404(request, task_id, position)
    put_back = request.POST.get("files") == "before"
    return _act(request, task_id, partial(retry_from, step=step, put_back=put_back))


@require_POST
def task_threshold(request: HttpRequest, task_id: int) -> HttpResponse:
    def change(task: Task, *, by: Principal) -> None:
        require_actor(by, task.project)
        change_threshold(
            task, threshold_from_text(request.POST.get("threshold", ""), where="threshold"), by=by
        )

    return _act(request, task_id, change)


@require_POST
def task_priority(request: HttpRequest, task_id: int) -> HttpResponse:
    """Change the priority, from the task's page or from the queue (`back=queue`)."""

    def change(task: Task, *, by: Principal) -> None:
        change_priority(task, request.POST.get("priority", ""), by=by)

    shown = _act(request, task_id, change)
    return redirect("queue") if request.POST.get("back") == "queue" else shown


def _act(request: HttpRequest, task_id: int, action: Callable[..., object]) -> HttpResponse:
    run_action(request, task_or_404(request, task_id), action)
    return redirect("task", task_id)
