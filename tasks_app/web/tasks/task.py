"""The page of a task, its result, and the actions on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import quote, urlencode

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST

from tasks_app.config.threshold import LEVELS, threshold_from_text
from tasks_app.core.errors import WorkspaceError
from tasks_app.core.phases import Phase
from tasks_app.core.text import in_one_line
from tasks_app.git import ChangedFile
from tasks_app.models import SHOWN_WITH, DecisionEvent, Question, Review, ReviewThread, Sequence, Task
from tasks_app.models.task import Priority
from tasks_app.permissions import Principal, require_actor
from tasks_app.services.bulk import retry_from
from tasks_app.services.difference import difference_of
from tasks_app.services.results import (
    StepAccount,
    StepCheck,
    accounts_of,
    answered_items,
    building_account_first,
    checks_of,
)
from tasks_app.services.reviews import approvals_of
from tasks_app.services.tasks import cancel_task, change_priority, change_threshold, resume_task, start_task
from tasks_app.web.access import may_act, principal_of, run_action, step_or_404, task_or_404
from tasks_app.web.publishing import publishing_details
from tasks_app.web.questions.cards import cards_of
from tasks_app.web.rendering.activity import activities
from tasks_app.web.rendering.words import headline
from tasks_app.web.tasks.details import TaskDetails
from tasks_app.web.tasks.log import Log, Only


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


#: Files that are listed; the others are counted.
_FILES = 12


@dataclass(frozen=True)
class ShownChange:
    """A changed file, with its path as it is shown."""

    file: ChangedFile
    name: str

    @property
    def query(self) -> str:
        """The parameters of its place on the page of changes."""
        names = {"file": self.file.path, "was": self.file.old_path}
        return urlencode({key: name for key, name in names.items() if name}, quote_via=quote, safe="")


@dataclass(frozen=True)
class Decided:
    """One of a card's questions and what was decided, in one line each."""

    question: Question
    headline: str
    answer: str
    header: str


@dataclass(frozen=True)
class ShownAccount:
    """The account that a step's agents gave at their ends; folded unless it `is_open`."""

    title: str
    said: StepAccount
    is_open: bool


@dataclass(frozen=True)
class Result:
    """The result of a done task or sequence.

    `accounts` begin with that of the step which built the result; a sequence has one of each task.
    `decisions` are what people settled in it, `followed` the project's decisions that agents named. `files`
    are up to 12; `trouble` says why they cannot be listed. `approvals`: of the newest commit.
    """

    accounts: list[ShownAccount]
    files: list[ShownChange]
    file_count: int
    added: int
    removed: int
    checks: list[StepCheck]
    decisions: list[Decided]
    followed: list[DecisionEvent]
    approvals: list[Review]
    open_threads: int
    trouble: str = ""

    @property
    def may_have_changes(self) -> bool:
        """Return whether there is something to review and publish, or it is not known."""
        return self.file_count > 0 or bool(self.trouble)

    @property
    def more_files(self) -> int:
        return self.file_count - len(self.files)


def result_of(done: Task | Sequence) -> Result | None:
    """Return the result; None unless it is done."""
    if done.phase != Phase.DONE:
        return None
    tasks = [done] if isinstance(done, Task) else list(done.tasks.order_by("pk"))
    files, trouble = _changed_files(done)
    settled = (
        Question.objects.settled()
        .filter(task__in=tasks)
        .select_related("answered_by", "applied", "taken_back_by", "task")
    )
    return Result(
        accounts=_shown_accounts(done, tasks),
        files=[ShownChange(file, in_one_line(file.path)) for file in files[:_FILES]],
        file_count=len(files),
        added=sum(file.added for file in files),
        removed=sum(file.removed for file in files),
        checks=list(dict.fromkeys(checks_of(tasks))),
        decisions=[
            Decided(
                one,
                headline(item.asked) if one.takes_answer else one.title.sentence,
                item.answer,
                item.header,
            )
            for one in settled.order_by("task", "number")
            for item in answered_items(one)
        ],
        followed=_followed_or_unfit(tasks),
        approvals=approvals_of(tasks[-1]) if tasks else [],
        open_threads=ReviewThread.objects.open().filter(task__in=tasks).count(),
        trouble=trouble,
    )


def _shown_accounts(done: Task | Sequence, tasks: list[Task]) -> list[ShownAccount]:
    accounts = accounts_of(tasks)
    if isinstance(done, Task):
        ordered = building_account_first(accounts)
        return [ShownAccount(one.title(ordered[0]), one, one == ordered[0]) for one in ordered]
    shown = []
    for task in tasks:
        for built in building_account_first([one for one in accounts if one.step.task_id == task.pk])[:1]:
            shown.append(ShownAccount(task.title, built, task == tasks[-1]))
    return shown


def _followed_or_unfit(tasks: list[Task]) -> list[DecisionEvent]:
    """Return what agents said of decisions, each once: which they followed, and which do not fit."""
    said = DecisionEvent.objects.filter(task__in=tasks, kind__in=["followed", "unfit"])
    rows = said.select_related("decision").prefetch_related("decision__replaced_by")
    rows = rows.order_by("kind", "decision__number")
    return list({(row.kind, row.decision_id, row.note): row for row in rows}.values())


def task_result(request: HttpRequest, task_id: int) -> HttpResponse:
    task = task_or_404(request, task_id)
    context: dict[str, Any] = {
        "task": task,
        "result": result_of(task),
        "details": TaskDetails(task, principal_of(request)),
        "may_act": may_act(request, task.project),
    }
    return render(request, "tasks/_result.html", context)


def _changed_files(done: Task | Sequence) -> tuple[list[ChangedFile], str]:
    """Return the changed files, or why they cannot be listed."""
    difference = difference_of(done)
    if difference is None:
        return [], ""
    try:
        return list(difference.files()), ""
    except WorkspaceError as error:
        return [], str(error)
