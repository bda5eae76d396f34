"""Take an answer back before the agent has it."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from tasks_app.core.errors import NotAllowed, NotOpen, TooLateToUndo
from tasks_app.core.phases import Phase
from tasks_app.models import Question, Task
from tasks_app.permissions import Principal, require_actor
from tasks_app.services.questions.reopening import reopen, take_back_applied


def undo_until(question: Question) -> datetime | None:
    """Return until when the answer can be taken back; None if it cannot, or not any more."""
    seconds = settings.ENVIRONMENT.undo_seconds
    if not seconds or not question.is_settled or question.answered_at is None or question.handed_in_id:
        return None
    if question.is_applied:  # it can be taken back without a time: see `may_take_back`
        return None
    task = question.task
    if task.phase != Phase.WAITING_FOR_INPUT and (task.phase != Phase.PENDING or task.undo_until is None):
        return None
    until = question.answered_at + timedelta(seconds=seconds)
    return until if until > timezone.now() else None


def undo_answer(question: Question, *, by: Principal) -> Question:
    """Open the question again. Nothing changes if it is open already: the request was sent twice.

    The answer of a decision may be taken back by everybody who may answer, until the task has ended. If the
    agent has it, the question that is asked in its place is returned.

    Raises NotAllowed for all but the user who answered, NotOpen if it was withdrawn, or TooLateToUndo.
    """
    require_actor(by, question.task.project)
    if question.is_applied:
        return take_back_applied(question, by=by)
    with transaction.atomic():
        # Before the task is read: this decides between taking the answer back and a worker's claim.
        taken_back = Task.objects.end_undo(question.task_id)
        task = Task.objects.select_for_update().get(pk=question.task_id)
        question.refresh_from_db()
        if question.is_open:
            return question
        _require_own_outcome(question, by)
        if not (taken_back or _waits_for_other_answers(question, task)):
            raise TooLateToUndo("It is too late: the agent has the answer.")
        reopen(question, task, by=by)
    return question


def _require_own_outcome(question: Question, by: Principal) -> None:
    if not question.is_settled:
        raise NotOpen("This question was withdrawn: the task was cancelled.")
    if question.answered_by_id != by.user.pk:
        who = question.answered_by.shown_name if question.answered_by else "somebody else"
        raise NotAllowed(f"Only {who} can take this answer back.")
    answered_at = question.answered_at
    seconds = settings.ENVIRONMENT.undo_seconds
    if answered_at is None or timezone.now() >= answered_at + timedelta(seconds=seconds):
        raise TooLateToUndo(
            f"An answer can be taken back for {seconds} seconds." if seconds else "Undo is switched off."
        )


def _waits_for_other_answers(question: Question, task: Task) -> bool:
    """Return whether the task still waits for answers to other questions of the same run."""
    if task.phase != Phase.WAITING_FOR_INPUT or question.handed_in_id:
        return False
    return task.questions.open().filter(run=question.run_id).exists()
