"""A task's page, and the parts that are updated."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from tasks_app.config.threshold import LEVELS
from tasks_app.models import SHOWN_WITH, Task
from tasks_app.models.task import Priority
from tasks_app.web.pages.access import may_act, principal_of, task_or_404
from tasks_app.web.pages.activity import activities
from tasks_app.web.pages.cards import cards_of
from tasks_app.web.pages.results import result_of
from tasks_app.web.pages.task_details import TaskDetails
from tasks_app.web.pages.task_log import Log, Only
from tasks_app.web.pages.task_publishing import publishing_details


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
