"""The page of a task, and the actions on it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST

from tasks_app.config.threshold import LEVELS, threshold_from_text
from tasks_app.models import SHOWN_WITH, Task
from tasks_app.models.task import Priority
from tasks_app.permissions import Principal, require_actor
from tasks_app.services.bulk import retry_from
from tasks_app.services.tasks import cancel_task, change_priority, change_threshold, resume_task, start_task
from tasks_app.web.access import may_act, principal_of, run_action, step_or_404, task_or_404
from tasks_app.web.publishing import publishing_details
from tasks_app.web.questions.cards import cards_of
from tasks_app.web.rendering.activity import activities
from tasks_app.web.tasks.details import TaskDetails
from tasks_app.web.tasks.log import Log, Only
from tasks_app.web.tasks.results import result_of


def task_page(request: HttpRequest, task_id: int) -> HttpResponse:
    task = task_or_404(request, task_id)
    open_questions = task.questions.open().select_related(*SHOWN_WITH)
    context = {
        **_timeline_context(request, task),
        "result": result_of(task),
        "activities": activities([task]),
        "cards": cards_of(request, open_questions),
        "questions": _asked(task),
        "log": Log(task).latest(),
        "kinds": list(Only),
    }
    return render(request, "tasks/page.html", context)


def task_header(request: HttpRequest, task_id: int) -> HttpResponse:
    task = task_or_404(request, task_id)
    context = {**_context(request, task), "activities": activities([task])}
    return render(request, "tasks/_header.html", context)


def task_activity(request: HttpRequest, task_id: int) -> HttpResponse:
    """Render what the agent does now; empty if the task is not running."""
    task = task_or_404(request, task_id)
    return render(request, "tasks/_activity_words.html", {"activity": activities([task]).get(task.pk)})


def task_timeline(request: HttpRequest, task_id: int) -> HttpResponse:
    return render(request, "tasks/_timeline.html", _timeline_context(request, task_or_404(request, task_id)))


def task_plan(request: HttpRequest, task_id: int) -> HttpResponse:
    return render(request, "tasks/_plan.html", _context(request, task_or_404(request, task_id)))


def task_history(request: HttpRequest, task_id: int) -> HttpResponse:
    """Render all questions of the task with answer, user, time and channel."""
    task = task_or_404(request, task_id)
    return render(
        request,
        "tasks/_history.html",
        {"task": task, "questions": _asked(task), "may_act": may_act(request, task.project)},
    )


def _context(request: HttpRequest, task: Task) -> dict[str, Any]:
    return {
        "task": task,
        "details": TaskDetails(task, principal_of(request)),
        "may_act": may_act(request, task.project),
    }


def _timeline_context(request: HttpRequest, task: Task) -> dict[str, Any]:
    publishing = publishing_details(task)
    return {
        **_context(request, task),
        "publishing": publishing,
        "levels": LEVELS.items(),
        "priorities": Priority,
    }


def _asked(task: Task) -> Any:
    return task.questions.select_related("step", "run", "answered_by", "applied", "taken_back_by").order_by(
        "number"
    )


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
