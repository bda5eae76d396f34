"""Opening a question again whose answer was taken back, also that of a decision (D5, H14)."""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.utils import timezone

from tasks_app.core.errors import NotOpen, TooLateToUndo
from tasks_app.core.phases import Phase
from tasks_app.history.audit import record
from tasks_app.history.events.append import append_one
from tasks_app.history.events.payloads import question_payload
from tasks_app.history.spans import begin_wait
from tasks_app.history.statistics import paused_until_now
from tasks_app.history.transitions import move
from tasks_app.models import (
    Action,
    Change,
    ChangeKind,
    DecisionEventKind,
    EventKind,
    Question,
    QuestionState,
    Run,
    Step,
    Task,
)
from tasks_app.permissions import Principal
from tasks_app.services.decisions.changes import record_event
from tasks_app.services.decisions.storing import withdraw_with_answer
from tasks_app.services.questions.answer_index import forget_answer

#: What a question has before anybody answers it.
_OPEN: dict[str, Any] = {
    "state": QuestionState.OPEN, "answers": {}, "notes": "", "verdict": "",
    "allowed_usd": None, "finishes": False, "recommended_taken": 0, "taken_from": None, "applied": None,
    "answered_at": None, "answered_by": None, "answered_via": "",
}  # fmt: skip
#: What a question keeps that is asked again because the answer of a decision was taken back.
_KEPT = ("kind", "items", "about_goal", "is_late", "recommended")
#: How it was asked: by no tool of an agent.
_WAY = "portal"


def reopen(question: Question, task: Task, *, by: Principal) -> None:
    """Open a question again whose answer the agent does not have. The task must be locked."""
    withdraw_with_answer(question, by=by.user)
    as_before: dict[str, Any] = {"early_end": ""} if question.finishes else {}
    for name, value in _OPEN.items():
        setattr(question, name, value)
    question.save(update_fields=list(_OPEN))
    forget_answer(question)
    reason = f"{by.user.shown_name} took back the answer to question {question.number}"
    record(
        Action.ANSWER_TAKEN_BACK, by=by.user, task=task, subject=question.headline, question=question.number
    )
    append_one(question.run, EventKind.NOTE, {"text": f"{reason}.", "taken_back": question.number})
    Change.objects.create(task=task, kind=ChangeKind.QUESTION)
    if task.phase == Phase.PENDING:
        question.step.refresh_from_db()
        move(question.step, Phase.WAITING_FOR_INPUT, reason=reason, by=by.user)
        move(task, Phase.WAITING_FOR_INPUT, reason=reason, by=by.user, **as_before)


def may_take_back(question: Question) -> bool:
    """Return whether a decision answered, and its answer can still be taken back."""
    return question.is_applied and question.taken_back_at is None and not question.task.is_ended


def take_back_applied(question: Question, *, by: Principal) -> Question:
    """Take back the answer of a decision, and return the question that is open then.

    It is the same question as long as the agent does not have the answer. Otherwise a run is stopped, and the
    question is asked anew; the agent reads what is answered to that, and that the first answer does not hold.
    Doing it twice changes nothing. Raises NotOpen if a human has answered meanwhile, or TooLateToUndo if the
    task has ended.
    """
    with transaction.atomic():
        task = Task.objects.select_for_update(of=("self",)).select_related("project").get(pk=question.task_id)
        question.refresh_from_db()
        if question.is_open:
            return question
        if not question.is_applied:
            raise NotOpen(f"A human has answered this question meanwhile: {question.answerer}.")
        if question.taken_back_at:
            return question.reopened_as.get()
        _require_working(task)
        _note_taken_back(question, by)
        if _agent_may_have_it(question, task):
            return _ask_again(question, task, by=by)
        reopen(question, task, by=by)
    return question


def _require_working(task: Task) -> None:
    if task.phase == Phase.CANCELLED:
        raise TooLateToUndo("The task was cancelled. Resume it first, then take the answer back.")
    if task.is_ended or not task.steps.exclude(phase=Phase.DONE).exists():
        raise TooLateToUndo(
            "The task has ended, so its agent cannot be asked any more. Request changes of its result, or "
            "retry it from a step, and say what holds instead."
        )


def _note_taken_back(question: Question, by: Principal) -> None:
    if question.applied:
        record_event(
            question.applied, DecisionEventKind.TAKEN_BACK, by=by.user, task=question.task, question=question
        )


def _agent_may_have_it(question: Question, task: Task) -> bool:
    """Return whether the answer was handed in, is about to be, or the session that waited for it is gone."""
    if question.handed_in_id or question.run.number < question.step.first_run:
        return True
    return task.phase not in (Phase.PENDING, Phase.WAITING_FOR_INPUT)


def _ask_again(question: Question, task: Task, *, by: Principal) -> Question:
    """Ask the question again, of the step that is under way, and stop its run."""
    reason = f"{by.user.shown_name} took back the answer of {question.answerer} to question {question.number}"
    question.taken_back_by, question.taken_back_at = by.user, timezone.now()
    question.save(update_fields=["taken_back_by", "taken_back_at"])
    step = task.steps.exclude(phase=Phase.DONE).order_by("position")[0]
    run = Run.objects.filter(step__task=task).latest("pk")
    number = task.questions.count() + 1
    anew = Question.objects.create(
        task=task,
        step=step,
        run=run,
        number=number,
        way=_WAY,
        tool_use_id=f"{_WAY}-{number}",
        deferred=False,
        reopens=question,
        asked_at=timezone.now(),
        **{name: getattr(question, name) for name in _KEPT},
    )
    record(
        Action.ANSWER_TAKEN_BACK, by=by.user, task=task, subject=question.headline, question=question.number
    )
    append_one(run, EventKind.NOTE, {"text": f"{reason}."})
    append_one(run, EventKind.QUESTION, question_payload(anew))
    _wait_for_input(task, step, reason=reason, by=by)
    begin_wait(anew)
    Change.objects.create(task=task, kind=ChangeKind.QUESTION)
    return anew


def _wait_for_input(task: Task, step: Step, *, reason: str, by: Principal) -> None:
    """Move task and step to `waiting_for_input`; a worker that works on them stops within seconds."""
    if task.phase == Phase.WAITING_FOR_INPUT:  # for the answer to another question
        return
    paused: dict[str, Any] = {"resets_at": None, "retry_at": None, "paused_seconds": paused_until_now(task)}
    for row, values in ((step, {}), (task, paused)):
        if row.phase not in (Phase.PENDING, Phase.RUNNING):
            move(row, Phase.PENDING, reason=reason, by=by.user, **values)
        move(row, Phase.WAITING_FOR_INPUT, reason=reason, by=by.user)
