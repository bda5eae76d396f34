"""The buttons of a task: start, cancel, go on."""

from __future__ import annotations

from collections.abc import Callable

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST

from tasks_app.actions.tasks import cancel_task, go_on, start_task
from tasks_app.errors import CatHerderError, NotAllowed
from tasks_app.views.access import person, task_or_404


@require_POST
def task_start(request: HttpRequest, task_id: int) -> HttpResponse:
    return _act(request, task_id, start_task)


@require_POST
def task_cancel(request: HttpRequest, task_id: int) -> HttpResponse:
    return _act(request, task_id, cancel_task)


@require_POST
def task_go_on(request: HttpRequest, task_id: int) -> HttpResponse:
    return _act(request, task_id, go_on)


def _act(request: HttpRequest, task_id: int, action: Callable[..., object]) -> HttpResponse:
    """Do it and show the task. That somebody was first is no error: the page tells what holds now."""
    task = task_or_404(request, task_id)
    try:
        action(task, by=person(request))
    except NotAllowed as error:
        raise PermissionDenied(str(error)) from error
    except CatHerderError as error:
        messages.error(request, str(error))
    return redirect("task", task_id)
