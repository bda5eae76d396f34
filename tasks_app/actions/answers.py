"""Answering a question: the first answer wins, once, and everybody learns who gave it."""

from __future__ import annotations

from dataclasses import dataclass, field

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from tasks_app.actions.access import require_actor
from tasks_app.actions.ringing import ring_on_commit
from tasks_app.errors import AnswerEmpty, AnswerTooLong, BadInput, NotOpen
from tasks_app.events.append import append_one
from tasks_app.models import Change, ChangeKind, Channel, EventKind, Question, QuestionState, Task, User
from tasks_app.state.phases import Phase
from tasks_app.stats import paused_until_now
from tasks_app.storable import storable_text
from tasks_app.transitions import move


@dataclass(frozen=True)
class Reply:
    """What a human replied: each item's question with its answer, and notes for all of them."""

    answers: dict[str, str] = field(default_factory=dict)
    notes: str = ""

    @classmethod
    def to(cls, question: Question, text: str) -> Reply:
        """One text as the answer to a question that has one item."""
        return cls(answers={question.headline: text})


@dataclass(frozen=True)
class Answered:
    """`repeated`: the same person had sent the same answer before, so nothing changed."""

    question: Question
    repeated: bool = False


def answer_question(question: Question, reply: Reply, *, by: User, via: Channel) -> Answered:
    """Store the answer and let the task go on once none of its questions is open.

    Raises NotAllowed, AnswerEmpty, AnswerTooLong, BadInput, or NotOpen when somebody was first.
    """
    require_actor(by, question.task.project)
    reply = _checked(question, reply)
    with transaction.atomic():
        # The task's row is the lock: of two last answers, the second must see the first.
        task = Task.objects.select_for_update().get(pk=question.task_id)
        if not _take(question, reply, by=by, via=via):
            return _repeated(question, reply, by=by)
        append_one(question.run, EventKind.ANSWER, _answer_payload(question))
        Change.objects.create(task=task, kind=ChangeKind.QUESTION)
        if not task.questions.open().exists():
            _go_on(question, task, by=by)
    return Answered(question)


def _checked(question: Question, reply: Reply) -> Reply:
    """The reply with line ends unified, or the reason why it cannot be taken."""
    answers = {}
    for item in question.items:
        answer = _clean(reply.answers.get(item["question"], ""))
        if not answer.strip():
            which = "" if len(question.items) == 1 else f" “{item['question']}” has no answer yet."
            raise AnswerEmpty(f"An answer needs some text or a choice.{which}")
        answers[item["question"]] = answer
    notes = _clean(reply.notes)
    size = sum(map(len, answers.values())) + len(notes)
    if size > settings.ENVIRONMENT.answer_limit:
        raise AnswerTooLong(size=size, limit=settings.ENVIRONMENT.answer_limit)
    return Reply(answers, notes if notes.strip() else "")


def _clean(text: str) -> str:
    text = text.replace("\r\n", "\n")
    if "\x00" in text:
        raise BadInput("the answer contains a NUL character, which cannot be stored", where="answer")
    return storable_text(text)


def _take(question: Question, reply: Reply, *, by: User, via: Channel) -> bool:
    """Whether this reply was the first: decided by one conditional UPDATE."""
    facts = {
        "state": QuestionState.ANSWERED,
        "answers": reply.answers,
        "notes": reply.notes,
        "answered_at": timezone.now(),
        "answered_by": by,
        "answered_via": via,
    }
    if not Question.objects.open().filter(pk=question.pk).update(**facts):
        question.refresh_from_db()
        return False
    for name, value in facts.items():
        setattr(question, name, value)
    return True


def _repeated(question: Question, reply: Reply, *, by: User) -> Answered:
    same = (question.answers, question.notes) == (reply.answers, reply.notes)
    if question.state == QuestionState.ANSWERED and same and question.answered_by_id == by.pk:
        return Answered(question, repeated=True)
    raise NotOpen(why_not_open(question))


def why_not_open(question: Question) -> str:
    """By whom, when and what: for people who come too late."""
    if question.state != QuestionState.ANSWERED or not question.answered_at:
        return "This question was withdrawn: the task was cancelled."
    who = question.answered_by.shown_name if question.answered_by else "somebody"
    when = timezone.localtime(question.answered_at).strftime("%Y-%m-%d %H:%M:%S")
    answer = question.answer_text
    shown = answer if len(answer) <= 500 else answer[:500] + " …"
    return f"Answered by {who} at {when}: {shown}"


def _answer_payload(question: Question) -> dict[str, object]:
    return {
        "question": question.headline,
        "text": question.answer_text,
        "by": question.answered_by.shown_name if question.answered_by else "",
        "via": question.answered_via,
        "number": question.number,
    }


def _go_on(question: Question, task: Task, *, by: User) -> None:
    reason = f"{by.shown_name} answered question {question.number}"
    move(question.step, Phase.PENDING, reason=reason, by=by)
    paused = paused_until_now(task)
    move(task, Phase.PENDING, reason=reason, by=by, paused_seconds=paused)
    ring_on_commit(task.pk)
