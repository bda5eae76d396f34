"""The result of a done task or sequence: what a reader wants to know before the log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from tasks_app.core.errors import WorkspaceError
from tasks_app.core.phases import Phase
from tasks_app.git import ChangedFile, changed_files
from tasks_app.models import Event, EventKind, Outcome, Question, Review, ReviewThread, Run, Sequence, Task
from tasks_app.services.difference import difference_of
from tasks_app.services.reviews import approvals_of
from tasks_app.web.pages.access import may_act, task_or_404
from tasks_app.web.pages.task_details import task_details
from tasks_app.web.rendering.diff import in_one_line
from tasks_app.web.rendering.words import headline

#: Files that are listed; the others are counted.
_FILES = 12
_CLOSING_CHARACTERS = 20_000


@dataclass(frozen=True)
class ShownChange:
    """A changed file, with its path as it is shown."""

    file: ChangedFile
    name: str


@dataclass(frozen=True)
class PassedCheck:
    """A check that the newest run of a step passed."""

    step: str
    check: str


@dataclass(frozen=True)
class Decided:
    """A question and what was decided, in one line each."""

    question: Question
    headline: str


@dataclass(frozen=True)
class Result:
    """What came of a done task or sequence.

    `files` are up to 12; `trouble` says why they cannot be listed. `approvals`: of the newest commit.
    """

    closing: str
    files: list[ShownChange]
    file_count: int
    added: int
    removed: int
    checks: list[PassedCheck]
    decisions: list[Decided]
    approvals: list[Review]
    open_threads: int
    trouble: str = ""

    @property
    def more_files(self) -> int:
        return self.file_count - len(self.files)


def result_of(done: Task | Sequence) -> Result | None:
    """Return the result; None unless it is done."""
    if done.phase != Phase.DONE:
        return None
    tasks = [done] if isinstance(done, Task) else list(done.tasks.order_by("pk"))
    files, trouble = _changed_files(done)
    settled = Question.objects.settled().filter(task__in=tasks).select_related("answered_by")
    return Result(
        closing=_closing_message(tasks),
        files=[ShownChange(file, in_one_line(file.path)) for file in files[:_FILES]],
        file_count=len(files),
        added=sum(file.added for file in files),
        removed=sum(file.removed for file in files),
        checks=_passed_checks(tasks),
        decisions=[Decided(one, headline(one.headline)) for one in settled.order_by("task", "number")],
        approvals=approvals_of(tasks[-1]) if tasks else [],
        open_threads=ReviewThread.objects.open().filter(task__in=tasks).count(),
        trouble=trouble,
    )


def task_result(request: HttpRequest, task_id: int) -> HttpResponse:
    task = task_or_404(request, task_id)
    context: dict[str, Any] = {
        "task": task,
        "result": result_of(task),
        "details": task_details(task),
        "may_act": may_act(request, task.project),
    }
    return render(request, "tasks/_result.html", context)


def _closing_message(tasks: list[Task]) -> str:
    """Return what the agent of the last run said at its end."""
    ends = Event.objects.filter(run__step__task__in=tasks[-1:], kind=EventKind.RESULT)
    payload = ends.order_by("-pk").values_list("payload", flat=True).first() or {}
    return str(payload.get("text", ""))[:_CLOSING_CHARACTERS]


def _changed_files(done: Task | Sequence) -> tuple[list[ChangedFile], str]:
    """Return the changed files, or why they cannot be listed."""
    difference = difference_of(done)
    if difference is None:
        return [], ""
    try:
        files = changed_files(difference.repository, base=difference.base, head=difference.head)
    except WorkspaceError as error:
        return [], str(error)
    return list(files), ""


def _passed_checks(tasks: list[Task]) -> list[PassedCheck]:
    """Return the checks that the newest finished run of each step passed, in the order of the steps."""
    newest: dict[int, Run] = {}
    finished = Run.objects.filter(step__task__in=tasks, outcome=Outcome.FINISHED).exclude(checks=None)
    for run in (
        finished.select_related("step").defer("prompt").order_by("step__task", "step__position", "number")
    ):
        newest[run.step_id] = run
    return [
        PassedCheck(run.step.name, str(report.get("check", "")))
        for run in newest.values()
        for report in run.checks or []
        if report.get("passed") and report.get("check")
    ]
