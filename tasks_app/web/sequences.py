"""A sequence's page: tasks, usage and buttons."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST

from tasks_app.core.phases import CANCELLABLE, ENDED, RESUMABLE, Phase
from tasks_app.history.transitions import cancellation_of
from tasks_app.models import (
    Channel,
    Question,
    Sequence,
    Task,
    Transition,
)
from tasks_app.services.commands import fetch_command
from tasks_app.services.publishing.publications import publish
from tasks_app.services.publishing.pull_requests import let_agent_merge
from tasks_app.services.sequences import (
    NextTask,
    cancel_sequence,
    resume_sequence,
    start_sequence,
    task_to_publish,
    task_waiting_for_permission,
    upcoming_files,
)
from tasks_app.services.usage import statistics
from tasks_app.services.usage.statistics import Metrics
from tasks_app.web.access import may_act, run_action, sequence_or_404
from tasks_app.web.publishing import asked_options, publishing_details
from tasks_app.web.questions.cards import cards_of
from tasks_app.web.task_rows import of_rows, rows_of_tasks
from tasks_app.web.tasks.head import Arrival
from tasks_app.web.tasks.result import result_of


@dataclass(frozen=True)
class SequenceDetails:
    """Values of the page, each computed when a part of it first needs it."""

    sequence: Sequence

    @cached_property
    def tasks(self) -> list[Task]:
        return rows_of_tasks(list(self.sequence.tasks.order_by("pk").values_list("pk", flat=True)))

    @cached_property
    def spent(self) -> dict[int, Metrics]:
        """Usage and durations by task id."""
        return statistics.of_tasks(self.tasks)

    @cached_property
    def metrics(self) -> Metrics:
        return statistics.of_sequence(self.sequence)

    @cached_property
    def _upcoming_files(self) -> tuple[list[str], str]:
        return upcoming_files(self.sequence)

    @property
    def upcoming_files(self) -> list[str]:
        """Task files that are not created yet."""
        return self._upcoming_files[0]

    @property
    def trouble(self) -> str:
        """The reason why the upcoming task files are unknown."""
        return self._upcoming_files[1]

    @property
    def current(self) -> Task | None:
        return next((task for task in self.tasks if task.phase != Phase.DONE), None)

    @property
    def last(self) -> Task | None:
        """The newest task, whose result is that of the sequence."""
        return next(reversed(self.tasks), None)

    @property
    def done(self) -> int:
        return sum(task.phase == Phase.DONE for task in self.tasks)

    @property
    def total(self) -> int:
        return len(self.tasks) + len(self.upcoming_files)

    @property
    def can_start(self) -> bool:
        return bool(self.current and self.current.not_started)

    @property
    def can_cancel(self) -> bool:
        return bool(self.current and self.current.phase in CANCELLABLE and not self.current.not_started)

    @cached_property
    def waiting(self) -> NextTask | None:
        """The next task, if it waits until a person allows what it may do."""
        return task_waiting_for_permission(self.sequence)

    @property
    def can_resume(self) -> bool:
        if self.waiting:  # its own form resumes the sequence
            return False
        return (self.current or self.sequence).phase in RESUMABLE

    @cached_property
    def cancelled(self) -> Transition | None:
        """The transition that cancelled the current task, and with it the sequence."""
        return cancellation_of(self.current) if self.current else None

    @property
    def diff_url(self) -> str:
        """The changes of all tasks: the newest task compared with the beginning of the sequence."""
        changed = [task for task in self.tasks if task.head_commit]
        if not changed:
            return ""
        return f"{reverse('task_diff', args=[changed[-1].pk])}?from=sequence"

    @property
    def fetch(self) -> str:
        return fetch_command(self.sequence.project, self.sequence.branch)


#: Parts of the page that are fetched again, each by itself, so that a card with a draft stays as it is.
_PARTS = {
    "header": "sequences/_header.html",
    "result": "sequences/_result.html",
    "tasks": "sequences/_tasks.html",
    "details": "sequences/_details.html",
}


def sequence_page(request: HttpRequest, sequence_id: int) -> HttpResponse:
    """Show a sequence; `?part=header|result|tasks|details`: that part alone."""
    sequence = sequence_or_404(request, sequence_id)
    details, part = SequenceDetails(sequence), request.GET.get("part", "")
    if part not in _PARTS:
        part = ""
    context: dict[str, Any] = {"details": details, "may_act": may_act(request, sequence.project)}
    if part in ("result", "details", ""):
        context["publishing"] = publishing_details(details.last) if details.last else None
    if part in ("tasks", ""):
        context |= of_rows(request, details.tasks)
    if part in ("result", ""):
        context["result"] = result_of(sequence)
    if part in ("header", ""):
        questions = list(_open_questions(sequence))
        context["arrival"] = _arrival(request, sequence, questions)
    if not part:
        context["cards"] = cards_of(request, questions)
        context["arrival"] = None
    return render(request, _PARTS.get(part, "sequences/page.html"), context)


def _arrival(request: HttpRequest, sequence: Sequence, questions: list[Question]) -> Arrival | None:
    """Return what the page does not show yet: it has the questions `?known=N`, and with `?ended` the end."""
    url, known = f"{reverse('sequence', args=[sequence.pk])}?now", request.GET.getlist("known")
    new = [one for one in questions if str(one.pk) not in known]
    if new:
        return Arrival(f"The agent asks: {new[0].title.asked[:300]}", "Show", f"{url}#question-{new[0].pk}")
    if sequence.phase in ENDED and "ended" not in request.GET:
        return Arrival("The sequence has ended.", "Show result", url)
    return None


def _open_questions(sequence: Sequence) -> QuerySet[Question]:
    questions = Question.objects.open().filter(task__sequence=sequence)
    return questions.shown().order_by("asked_at", "pk")


@require_POST
def sequence_start(request: HttpRequest, sequence_id: int) -> HttpResponse:
    return _act(request, sequence_id, start_sequence)


@require_POST
def sequence_cancel(request: HttpRequest, sequence_id: int) -> HttpResponse:
    return _act(request, sequence_id, cancel_sequence)


@require_POST
def sequence_resume(request: HttpRequest, sequence_id: int) -> HttpResponse:
    allow, message = request.POST.get("allow", ""), request.POST.get("message", "")
    return _act(request, sequence_id, partial(resume_sequence, allow=allow, message=message))


@require_POST
def sequence_publish(request: HttpRequest, sequence_id: int) -> HttpResponse:
    """Publish the branch of the sequence: the result of its newest task."""
    options = asked_options(request)
    return _act(request, sequence_id, lambda one, by: publish(task_to_publish(one), by=by, **options))


@require_POST
def sequence_merge(request: HttpRequest, sequence_id: int) -> HttpResponse:
    """Let the agent of the newest task merge the project's branch, with which the result conflicts."""
    return _act(
        request, sequence_id, lambda one, by: let_agent_merge(task_to_publish(one), by=by, via=Channel.WEB)
    )


def _act(request: HttpRequest, sequence_id: int, action: Callable[..., object]) -> HttpResponse:
    run_action(request, sequence_or_404(request, sequence_id), action)
    return redirect("sequence", sequence_id)
