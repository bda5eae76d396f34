"""The overview of a task, its questions and details, and the actions on it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST

from tasks_app.config.threshold import LEVELS, threshold_from_text
from tasks_app.core.phases import Phase
from tasks_app.history.events.calls import failed_approvals
from tasks_app.models import (
    Task,
)
from tasks_app.models.task import Priority
from tasks_app.permissions import Principal, require_actor
from tasks_app.services.bulk import retry_from
from tasks_app.services.decisions.answering import decided_by_answers
from tasks_app.services.task_groups import FAILED
from tasks_app.services.tasks import (
    cancel_task,
    change_priority,
    change_threshold,
    dismiss_failure,
    resume_task,
    start_task,
    watch_task,
)
from tasks_app.web.access import (
    is_htmx,
    may_act,
    principal_of,
    render_part_or_page,
    run_action,
    step_or_404,
    task_or_404,
)
from tasks_app.web.questions.cards import cards_of
from tasks_app.web.rendering.activity import activities
from tasks_app.web.tasks.details import TaskDetails
from tasks_app.web.tasks.head import Head, Mode, Tab, asked_head, head_context, mode_of
from tasks_app.web.tasks.log import Log, Only
from tasks_app.web.tasks.result import result_of


def task_page(request: HttpRequest, task_id: int) -> HttpResponse:
    """Show what counts now: the open questions, the log while the agent works, or the result (Mode)."""
    task = task_or_404(request, task_id)
    questions = list(task.questions.open().shown().order_by("number"))
    mode = mode_of(task, questions)
    known = frozenset(one.pk for one in questions)
    context = head_context(request, task, Tab.OVERVIEW, questions=questions, shown=mode, known=known)
    if mode is Mode.WAITING:
        context["cards"] = cards_of(request, questions)
    if mode is Mode.ENDED:
        context |= _result_context(task, context["head"])
    if mode in (Mode.WAITING, Mode.WORKING) or (mode is Mode.ENDED and task.phase != Phase.DONE):
        context |= {"log": Log(task).latest(), "kinds": list(Only)}
    return render(request, "tasks/page.html", context)


def task_header(request: HttpRequest, task_id: int) -> HttpResponse:
    task = task_or_404(request, task_id)
    return render(request, "tasks/_header.html", asked_head(request, task))


def task_activity(request: HttpRequest, task_id: int) -> HttpResponse:
    """Render what the agent does now; empty if the task is not running."""
    task = task_or_404(request, task_id)
    return render(request, "tasks/_activity_words.html", {"activity": activities([task]).get(task.pk)})


def task_timeline(request: HttpRequest, task_id: int) -> HttpResponse:
    return render(request, "tasks/_timeline.html", _context(request, task_or_404(request, task_id)))


def task_plan(request: HttpRequest, task_id: int) -> HttpResponse:
    return render(request, "tasks/_plan.html", _context(request, task_or_404(request, task_id)))


def task_details(request: HttpRequest, task_id: int) -> HttpResponse:
    """Show the text of the task, its plan, its settings and figures."""
    task = task_or_404(request, task_id)
    chosen = {"levels": LEVELS.items(), "priorities": Priority}
    context = head_context(request, task, Tab.DETAILS) | chosen
    return render_part_or_page(request, "tasks/_facts.html", "tasks/details.html", context)


def task_questions(request: HttpRequest, task_id: int) -> HttpResponse:
    """Show all questions of the task with answer, user, time and channel."""
    task = task_or_404(request, task_id)
    asked = _asked(task)
    if is_htmx(request):
        context = {"task": task, **asked, "may_act": may_act(request, task.project)}
        return render(request, "tasks/_history.html", context)
    opened = [one for one in asked["questions"] if one.is_open]
    context = head_context(request, task, Tab.QUESTIONS, questions=opened) | asked
    return render(request, "tasks/questions.html", context)


def task_moved(request: HttpRequest, task_id: int) -> HttpResponse:
    """Lead from the former address of the questions to the tab."""
    return redirect("task_questions", task_or_404(request, task_id).pk)


def _context(request: HttpRequest, task: Task) -> dict[str, Any]:
    return {
        "task": task,
        "details": TaskDetails(task, principal_of(request)),
        "may_act": may_act(request, task.project),
    }


def _result_context(task: Task, head: Head) -> dict[str, Any]:
    return {"result": result_of(task), "publishing": head.publishing}


def _asked(task: Task) -> dict[str, Any]:
    questions = list(task.questions.shown().order_by("number"))
    made = decided_by_answers(questions)
    decided = {one.pk: made.get(one.pk, {}) for one in questions}
    return {"questions": questions, "failed_approvals": failed_approvals(questions), "decided": decided}


@require_POST
def task_start(request: HttpRequest, task_id: int) -> HttpResponse:
    return _act(request, task_id, start_task)


@require_POST
def task_cancel(request: HttpRequest, task_id: int) -> HttpResponse:
    return _act(request, task_id, cancel_task)


@require_POST
def task_dismiss(request: HttpRequest, task_id: int) -> HttpResponse:
    """Dismiss the failure, or put it back with `undo=yes`; return to the inbox, filtered as before."""
    task, undo = task_or_404(request, task_id), request.POST.get("undo") == "yes"
    run_action(request, task, partial(dismiss_failure, undo=undo))
    query = request.GET.copy()
    query["state"] = FAILED.key
    if not undo:
        query["dismissed"] = str(task_id)
    return redirect(f"{reverse('inbox')}?{query.urlencode()}")


@require_POST
def task_watch(request: HttpRequest, task_id: int) -> HttpResponse:
    """Watch the task, or with `undo=yes` no longer."""
    return _act(request, task_id, partial(watch_task, undo=request.POST.get("undo") == "yes"))


@require_POST
def task_resume(request: HttpRequest, task_id: int) -> HttpResponse:
    return _act(request, task_id, partial(resume_task, message=request.POST.get("message", "")))


@require_POST
def task_retry(request: HttpRequest, task_id: int, position: int) -> HttpResponse:
    """Retry from a step; `files=before` resets the files to before the step."""
    step = step_or_404(request, task_id, position)
    put_back, message = request.POST.get("files") == "before", request.POST.get("message", "")
    return _act(request, task_id, partial(retry_from, step=step, put_back=put_back, message=message))


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
    return redirect("tasks_queue") if request.POST.get("back") == "queue" else shown


def _act(request: HttpRequest, task_id: int, action: Callable[..., object]) -> HttpResponse:
    run_action(request, task_or_404(request, task_id), action)
    return redirect("task", task_id)


def task_result(request: HttpRequest, task_id: int) -> HttpResponse:
    task = task_or_404(request, task_id)
    context = head_context(request, task, Tab.OVERVIEW, shown=Mode.ENDED)
    return render(request, "tasks/_result.html", context | _result_context(task, context["head"]))
