"""What answering, dismissing and deciding have in common: the first is taken, once, and the task goes on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from tasks_app.core.errors import AnswerTooLong, BadInput, NotOpen
from tasks_app.core.phases import Phase
from tasks_app.core.storable import storable_text
from tasks_app.history.audit import record
from tasks_app.history.events.append import append_one
from tasks_app.history.statistics import paused_until_now
from tasks_app.history.transitions import move
from tasks_app.models import Action, Change, ChangeKind, Channel, EventKind, Question, Task, User
from tasks_app.permissions import Principal
from tasks_app.services.worker_notifier import ring_on_commit


@dataclass(frozen=True)
class Answered:
    """`repeated`: the same person had sent the very same before, so nothing changed."""

    question: Question
    repeated: bool = False


def settle(
    question: Question, said: Mapping[str, Any], *, action: Action, by: Principal, via: Channel
) -> Answered:
    """Write `said` (state, answers, notes, verdict) to an open question, and let its task go on once none
    of its questions is open. Raises NotOpen when somebody was first.
    """
    with transaction.atomic():
        # The task's row is the lock: of two last answers, the second must see the first.
        task = Task.objects.select_for_update().get(pk=question.task_id)
        if not _take(question, said, by=by.user, via=via):
            return _repeated(question, said, by=by.user)
        record(action, by=by.user, task=task, subject=question.headline, question=question.number)
        append_one(question.run, EventKind.ANSWER, _payload(question))
        Change.objects.create(task=task, kind=ChangeKind.QUESTION)
        if not task.questions.open().exists():
            _go_on(question, task, by=by.user)
    return Answered(question)


def _take(question: Question, said: Mapping[str, Any], *, by: User, via: Channel) -> bool:
    """Whether this was the first: decided by one conditional UPDATE."""
    facts = {**said, "answered_at": timezone.now(), "answered_by": by, "answered_via": via}
    if not Question.objects.open().filter(pk=question.pk).update(**facts):
        question.refresh_from_db()
        return False
    for name, value in facts.items():
        setattr(question, name, value)
    return True


def _repeated(question: Question, said: Mapping[str, Any], *, by: User) -> Answered:
    same = all(getattr(question, name) == value for name, value in said.items())
    if same and question.answered_by_id == by.pk:
        return Answered(question, repeated=True)
    raise NotOpen(why_not_open(question))


def why_not_open(question: Question) -> str:
    """By whom, when and what: for people who come too late."""
    if not question.is_settled or not question.answered_at:
        return "This question was withdrawn: the task was cancelled."
    who = question.answered_by.shown_name if question.answered_by else "somebody"
    when = timezone.localtime(question.answered_at).strftime("%Y-%m-%d %H:%M:%S")
    told = question.notes if question.verdict or question.is_dismissed else question.answer_text
    shown = told if len(told) <= 500 else told[:500] + " …"
    return f"{question.outcome} by {who} at {when}" + (f": {shown}" if shown else ".")


def _payload(question: Question) -> dict[str, object]:
    return {
        "question": question.headline,
        "kind": question.kind,
        "outcome": question.outcome,
        "text": question.answer_text,
        "notes": question.notes,
        "by": question.answered_by.shown_name if question.answered_by else "",
        "via": question.answered_via,
        "number": question.number,
    }


def _go_on(question: Question, task: Task, *, by: User) -> None:
    reason = f"{by.shown_name} {_DID[question.outcome]} question {question.number}"
    move(question.step, Phase.PENDING, reason=reason, by=by)
    paused = paused_until_now(task)
    # What was in the way when the agent had asked must not make the answer wait.
    move(task, Phase.PENDING, reason=reason, by=by, paused_seconds=paused, retry_at=None)
    ring_on_commit(task.pk)


_DID = {
    "Answered": "answered",
    "Dismissed": "dismissed",
    "Approved": "approved",
    "Denied": "denied",
    "Sent back": "sent back the plan of",
}


def clean(text: str) -> str:
    """The text with line ends unified. Raises BadInput for what no database can hold."""
    text = text.replace("\r\n", "\n")
    if "\x00" in text:
        raise BadInput("the answer contains a NUL character, which cannot be stored", where="answer")
    return storable_text(text)


def clean_notes(text: str) -> str:
    """Notes of nothing but blanks are none."""
    return notes if (notes := clean(text)).strip() else ""


def require_size(*texts: str) -> None:
    """Raises AnswerTooLong for texts that together are longer than the installation takes."""
    size = sum(map(len, texts))
    if size > settings.ENVIRONMENT.answer_limit:
        raise AnswerTooLong(size=size, limit=settings.ENVIRONMENT.answer_limit)
