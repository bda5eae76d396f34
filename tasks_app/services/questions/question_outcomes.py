"""Store the outcome of a question: the first one counts, and the task resumes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models.functions import Now
from django.utils import timezone

from tasks_app.core.amounts import moment_in_words
from tasks_app.core.asked_items import recommended_taken
from tasks_app.core.errors import AnswerTooLong, BadInput, NotOpen
from tasks_app.core.phases import Phase
from tasks_app.core.text import storable_text
from tasks_app.history.audit import current_origin, record
from tasks_app.history.events.blocks import append_one
from tasks_app.history.transitions import move_both
from tasks_app.models import (
    Action,
    Change,
    ChangeKind,
    Channel,
    EarlyEnd,
    EventKind,
    Question,
    QuestionKind,
    Task,
    User,
)
from tasks_app.permissions import Principal
from tasks_app.services.questions.earlier_answers import index_answer
from tasks_app.services.workers.worker_notifier import notify_on_commit


@dataclass(frozen=True)
class Answered:
    """A question with its outcome.

    `repeated`: the same user had sent the same before; nothing changed. `approved_too`: the ids of the equal
    calls that were approved with it. `changes_decisions`: whether the answer may have made or changed
    decisions.
    """

    question: Question
    repeated: bool = False
    approved_too: tuple[int, ...] = ()
    changes_decisions: bool = True


def store_outcome(
    question: Question, outcome: Mapping[str, Any], *, action: Action, by: Principal | None, via: Channel
) -> Answered:
    """Write `outcome` (state, answers, notes, verdict) to an open question, and resume its task once none of
    its questions is open. `by` is None if a decision answers, which `outcome` then has as `applied`, or if a
    rule ends it, whose name it has as `ended_by_rule`.

    Raises NotOpen if the question has another outcome.
    """
    user = by.user if by else None
    with transaction.atomic(savepoint=False):
        # Of two last answers, the second must see the first. Project and step are not read again.
        task = Task.objects.select_for_update().get(pk=question.task_id)
        if task.project_id == question.task.project_id:
            task.project = question.task.project
        if question.run.step_id == question.step_id:
            question.run.step = question.step
        stored = _store_if_open(question, outcome, by=user, via=via)
        if stored:
            _resume_after(question, task, action, by=user)
    if not stored:
        is_same = all(getattr(question, name) == value for name, value in outcome.items())
        if is_same and user and question.answered_by_id == user.pk:
            return Answered(question, repeated=True)
        raise NotOpen(why_not_open(question))
    return Answered(question)


def _resume_after(question: Question, task: Task, action: Action, *, by: User | None) -> None:
    """Record the stored outcome, and resume the task if none of its questions is open."""
    index_answer(question)
    taken: dict[str, Any] = {}
    if question.applied:
        taken = {"decision": question.applied.number}
    elif question.taken_from_id:
        taken = {"taken_from": question.taken_from_id}
    elif question.is_unanswered:
        taken = {"rule": question.ended_by_rule}
    record(
        action, by=by, actor_name=question.answerer, task=task,
        subject="" if question.kind == QuestionKind.PLAN else question.headline,
        question=question.pk, **taken,
    )  # fmt: skip
    append_one(question.run, EventKind.ANSWER, _payload(question))
    if task.questions.open().exists():
        Change.objects.create(task=task, kind=ChangeKind.QUESTION)
    else:
        _resume(question, task, by=by)  # with a change of its own


def _store_if_open(question: Question, outcome: Mapping[str, Any], *, by: User | None, via: Channel) -> bool:
    """Store the outcome by one conditional UPDATE. Return whether the question was open."""
    taken = recommended_taken(question.items, outcome.get("answers") or {}) if via != Channel.RULE else 0
    values = {
        **outcome, "recommended_taken": taken,
        "answered_at": timezone.now(), "answered_by": by, "answered_via": via,
        "answered_with": current_origin().program,
    }  # fmt: skip
    if not Question.objects.open().filter(pk=question.pk).update(**values):
        question.refresh_from_db()
        return False
    for name, value in values.items():
        setattr(question, name, value)
    return True


def why_not_open(question: Question) -> str:
    """Return who answered the question, when and what, for a message."""
    if not question.is_settled or not question.answered_at:
        return "This question was withdrawn: the task was cancelled."
    who = question.answerer or "somebody"
    if question.answered_with:
        who += f", {question.answered_through},"
    when = moment_in_words(question.answered_at)
    said = f"{question.outcome} by {who} at {when}"
    text = question.answer_text
    if question.verdict or question.is_dismissed:
        text = question.notes
    if question.is_unanswered and text:
        text = f"it took what the agent recommended, {text}"
    if not text:
        return f"{said}."
    if len(text) > 500:
        text = text[:500] + " …"
    return f"{said}: {text}"


def _payload(question: Question) -> dict[str, object]:
    payload: dict[str, object] = {}
    if question.applied:
        payload["decision"] = question.applied.number
    return payload | {
        "question_id": question.pk,
        "question": question.headline,
        "kind": question.kind,
        "outcome": question.outcome,
        "text": question.answer_text,
        "answers": question.asked_and_answered if len(question.answers) > 1 else [],
        "notes": question.notes,
        "by": question.answerer,
        "via": question.answered_via,
        "program": question.answered_with,
        "number": question.number,
        "taken_from": str(question.taken_from.task) if question.taken_from else "",
    }


def _resume(question: Question, task: Task, *, by: User | None) -> None:
    reason = f"{question.answerer} {_VERBS[question.outcome]} question {question.pk}"
    # The end by a decision or a rule can be taken back later as well, so the agent need not wait for that.
    seconds = settings.ENVIRONMENT.undo_seconds if by else 0
    # A temporary fault from before the question must not delay the answer.
    values: dict[str, Any] = {"retry_at": None}
    if seconds:
        values["undo_until"] = Now() + timedelta(seconds=seconds)
    if question.finishes:
        values["early_end"] = EarlyEnd.ASKED
    move_both(question.step, task, Phase.PENDING, reason=reason, by=by, **values)
    notify_on_commit(task.pk, seconds=seconds)


_VERBS = {
    "Answered": "answered",
    "Dismissed": "dismissed",
    "Ended without an answer": "ended, without an answer,",
    "Approved": "approved",
    "Denied": "denied",
    "Sent back": "sent back the plan of",
}


def normalise(text: str) -> str:
    """Normalise CRLF to LF and replace lone surrogates. Raises BadInput for NUL, which cannot be stored."""
    text = text.replace("\r\n", "\n")
    if "\x00" in text:
        raise BadInput("the answer contains a NUL character, which cannot be stored", where="answer")
    return storable_text(text)


def normalise_notes(text: str) -> str:
    """Return the normalised notes; "" if they are only blanks."""
    notes = normalise(text)
    if not notes.strip():
        return ""
    return notes


def require_size(*texts: str) -> None:
    """Raise AnswerTooLong if the texts together exceed the installation's limit."""
    size = sum(map(len, texts))
    if size > settings.ENVIRONMENT.answer_limit:
        raise AnswerTooLong(size=size, limit=settings.ENVIRONMENT.answer_limit)
