"""Answering a question, claiming it, and taking an answer back.

A claim is not audited: it changes nothing that anybody may do, and is renewed while its user writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from tasks_app.core.asked_items import Item, as_labels
from tasks_app.core.errors import AnswerEmpty, BadInput, NotAllowed, NotOpen, TooLateToUndo
from tasks_app.core.phases import Phase
from tasks_app.history.audit import record
from tasks_app.history.events.blocks import append_one, question_payload
from tasks_app.history.transitions import move, move_both
from tasks_app.models import (
    CLAIM_LASTS,
    VERDICTS,
    Action,
    Change,
    ChangeKind,
    Channel,
    DecisionEventKind,
    EventKind,
    Question,
    QuestionKind,
    QuestionState,
    Run,
    Task,
    Verdict,
)
from tasks_app.permissions import Principal, require_actor, require_human_word
from tasks_app.services.commands import question_url
from tasks_app.services.decisions.answering import (
    DecisionInput,
    prepare,
    store_with_answer,
    withdraw_with_answer,
)
from tasks_app.services.decisions.changes import record_event
from tasks_app.services.questions.earlier_answers import find_reused_answer, forget_answer
from tasks_app.services.questions.question_outcomes import (
    Answered,
    normalise,
    normalise_notes,
    require_size,
    store_outcome,
)
from tasks_app.services.usage.cost_limits import cost_answer_in


def claim_question(question: Question, *, by: Principal) -> bool:
    """Claim an open question or renew the claim. Return False if somebody else is answering it."""
    require_actor(by, question.task.project)
    now = timezone.now()
    free = Q(claimed_by=None) | Q(claimed_at__lte=now - CLAIM_LASTS) | Q(claimed_by=by.user)
    claimable = Question.objects.open().filter(free, pk=question.pk)
    return _change_claim(question, claimable.update, claimed_by=by.user, claimed_at=now)


def release_question(question: Question, *, by: Principal) -> bool:
    """End the user's own claim. Return False if they have none."""
    require_actor(by, question.task.project)
    own = Question.objects.open().filter(pk=question.pk, claimed_by=by.user)
    return _change_claim(question, own.update, claimed_by=None, claimed_at=None)


def _change_claim(question: Question, update: Callable[..., int], **values: Any) -> bool:
    with transaction.atomic():
        changed = update(**values) > 0
        if changed:
            Change.objects.create(task_id=question.task_id, kind=ChangeKind.QUESTION)
    return changed


def undo_until(question: Question) -> datetime | None:
    """Return until when the answer can be taken back; None if it cannot, or not any more."""
    seconds = settings.ENVIRONMENT.undo_seconds
    if not seconds or not question.is_settled or question.answered_at is None or question.handed_in_id:
        return None
    if question.is_settled_by_portal:  # it can be taken back without a time: see `may_take_back`
        return None
    task = question.task
    if task.phase != Phase.WAITING_FOR_INPUT and (task.phase != Phase.PENDING or task.undo_until is None):
        return None
    until = question.answered_at + timedelta(seconds=seconds)
    if until <= timezone.now():
        return None
    return until


def undo_answer(question: Question, *, by: Principal) -> Question:
    """Open the question again. Nothing changes if it is open already: the request was sent twice.

    What a decision answered or a rule ended may be taken back by everybody who may answer, until the task has
    ended. If the agent was told, the question that replaces it is returned.

    Raises NotAllowed for all but the user who answered, NotOpen if it was withdrawn, or TooLateToUndo.
    """
    require_actor(by, question.task.project)
    if question.is_settled_by_portal:
        return _take_back(question, by=by)
    with transaction.atomic():
        # Before the task is read: this decides between taking the answer back and a worker's claim.
        taken_back = Task.objects.end_undo(question.task_id)
        task = Task.objects.select_for_update().get(pk=question.task_id)
        question.refresh_from_db()
        if question.is_open:
            return question
        _require_own_outcome(question, by)
        if not taken_back:
            # The task may still wait for answers to other questions of the same run.
            others = task.questions.open().filter(run=question.run_id)
            if task.phase != Phase.WAITING_FOR_INPUT or question.handed_in_id or not others.exists():
                raise TooLateToUndo("It is too late: the agent has the answer.")
        reopen(question, task, by=by)
    return question


def _require_own_outcome(question: Question, by: Principal) -> None:
    if not question.is_settled:
        raise NotOpen("This question was withdrawn: the task was cancelled.")
    if question.answered_by_id != by.user.pk:
        raise NotAllowed(f"Only {question.answerer or 'somebody else'} can take this answer back.")
    answered_at = question.answered_at
    seconds = settings.ENVIRONMENT.undo_seconds
    if not seconds:
        raise TooLateToUndo("Undo is switched off.")
    if answered_at is None or timezone.now() >= answered_at + timedelta(seconds=seconds):
        raise TooLateToUndo(f"It is too late: an answer can be taken back for {seconds} seconds.")


@dataclass(frozen=True)
class Reply:
    """A human's reply: the answers by the item's question, and notes for all of them.

    `taken_from` is the id of the earlier question whose answer is used. `decision_input` says whether the
    answer becomes a decision, and what it means for those that hold.
    """

    answers: dict[str, str] = field(default_factory=dict)
    notes: str = ""
    taken_from: int | None = None
    decision_input: DecisionInput = field(default_factory=DecisionInput)

    @classmethod
    def to(cls, question: Question, text: str) -> Reply:
        """Make one text the reply to a question with one item."""
        return cls(answers={question.headline: text})


def answer_question(question: Question, reply: Reply, *, by: Principal, via: Channel) -> Answered:
    """Store the answer and resume the task once none of its questions is open.

    In the same transaction it may become a decision. Raises NotAllowed, AnswerInvalid, AnswerTooLong,
    BadInput (also if it contradicts a decision and does not say what holds), or NotOpen if somebody answered
    before.
    """
    require_actor(by, question.task.project)
    if not question.takes_answer:
        raise BadInput(_not_what_is_expected(question))
    reply = check_reply(question, reply, question.items)
    outcome: dict[str, Any] = {
        "state": QuestionState.ANSWERED, "answers": reply.answers, "notes": reply.notes,
        "taken_from": find_reused_answer(question, reply.answers, reply.taken_from),
    }  # fmt: skip
    if question.is_about_cost:
        require_human_word(question.task.project, via, question_url(question))
        if not reply.decision_input.is_empty:
            raise BadInput(
                "an answer about costs holds for its task only: send neither remember nor decisions",
                where="remember",
            )
        chosen = cost_answer_in(question, reply.answers[question.headline])
        outcome["answers"] = {question.headline: chosen.answer}
        outcome |= {"allowed_usd": chosen.allowed_usd, "finishes": chosen.finishes}
        return store_outcome(question, outcome, action=Action.ANSWERED, by=by, via=via)
    if not question.is_open:  # before what is said about decisions is checked: they may have changed since
        return store_outcome(question, outcome, action=Action.ANSWERED, by=by, via=via)
    prepared = prepare(question, reply.answers, reply.decision_input)
    with transaction.atomic():
        answered = store_outcome(question, outcome, action=Action.ANSWERED, by=by, via=via)
        if answered.repeated:
            return answered
        store_with_answer(question, prepared, by=by.user)
    return replace(answered, changes_decisions=any(one.content or one.stances for one in prepared))


def dismiss_question(question: Question, *, by: Principal, via: Channel, notes: str = "") -> Answered:
    """Let the agent decide by itself and say what it assumed.

    Raises NotAllowed, BadInput for all other kinds, AnswerTooLong, or NotOpen if it has an outcome.
    """
    require_actor(by, question.task.project)
    if question.kind != QuestionKind.CLARIFICATION:
        raise BadInput(_not_what_is_expected(question))
    notes = normalise_notes(notes)
    require_size(notes)
    outcome = {"state": QuestionState.DISMISSED, "answers": {}, "notes": notes}
    return store_outcome(question, outcome, action=Action.DISMISSED, by=by, via=via)


def decide(question: Question, verdict: str, *, by: Principal, via: Channel, notes: str = "") -> Answered:
    """Approve or deny a tool call; approve a plan or send it back. Only an approval needs no notes.

    Raises NotAllowed, BadInput for a verdict that the question's kind does not have, AnswerEmpty without a
    reason, AnswerTooLong, or NotOpen if somebody decided before.
    """
    require_actor(by, question.task.project)
    if verdict not in VERDICTS[question.kind]:
        raise BadInput(_not_what_is_expected(question), where="verdict")
    require_human_word(question.task.project, via, question_url(question))
    chosen = Verdict(verdict)
    notes = normalise_notes(notes)
    if chosen != Verdict.APPROVED and not notes:
        raise AnswerEmpty(_REASON_REQUIRED[chosen], where="notes")
    require_size(notes)
    answers = {question.headline: str(chosen.label)}
    outcome = {"state": QuestionState.ANSWERED, "answers": answers, "notes": notes, "verdict": chosen}
    return store_outcome(question, outcome, action=_ACTIONS[question.kind, chosen], by=by, via=via)


_REASON_REQUIRED = {
    Verdict.DENIED: "Enter a reason. The agent reads it and continues without the call.",
    Verdict.SENT_BACK: "Enter your comments. The agent reads them and revises the plan.",
}
_ACTIONS = {
    (str(QuestionKind.APPROVAL), Verdict.APPROVED): Action.APPROVED,
    (str(QuestionKind.APPROVAL), Verdict.DENIED): Action.DENIED,
    (str(QuestionKind.PLAN), Verdict.APPROVED): Action.PLAN_APPROVED,
    (str(QuestionKind.PLAN), Verdict.SENT_BACK): Action.PLAN_SENT_BACK,
}
#: How to settle a question of each kind, for messages about a wrong attempt.
_EXPECTED = {
    QuestionKind.CLARIFICATION: "a question: answer or dismiss it",
    QuestionKind.APPROVAL: "an approval: approve or deny it",
    QuestionKind.PLAN: "a plan: approve it or send it back",
    QuestionKind.COST: "about a soft cost limit: answer it with an amount of dollars, finish early, or "
    "end the task",
}


def _not_what_is_expected(question: Question) -> str:
    return f"Question {question.pk} is {_EXPECTED[QuestionKind(question.kind)]}."


def check_reply(question: Question, reply: Reply, items: Iterable[Item]) -> Reply:
    """Return the reply to these items with normalised line ends, and with options as they are labelled.

    Raises BadInput, AnswerEmpty or AnswerTooLong.
    """
    asked = {str(item["question"]) for item in question.items}
    if unknown := next((name for name in reply.answers if name not in asked), None):
        raise BadInput(f"question {question.pk} does not ask “{unknown}”", where="answers")
    answers = {}
    for item in items:
        answer = normalise(reply.answers.get(item["question"], ""))
        if not answer.strip():
            said = "Choose an option or type an answer."
            if len(question.items) > 1:
                said += f" “{item['question']}” has no answer yet."
            raise AnswerEmpty(said)
        answers[item["question"]] = as_labels(item, answer)
    notes = normalise_notes(reply.notes)
    require_size(*answers.values(), notes)
    return replace(reply, answers=answers, notes=notes)


#: What a question has before anybody answers it.
_OPEN: dict[str, Any] = {
    "state": QuestionState.OPEN, "answers": {}, "notes": "", "verdict": "",
    "allowed_usd": None, "finishes": False, "recommended_taken": 0, "taken_from": None, "applied": None,
    "answered_at": None, "answered_by": None, "answered_via": "", "answered_with": "", "ended_by_rule": "",
}  # fmt: skip
#: What a question keeps that is asked again because its answer, of a decision or a rule, was taken back.
_KEPT = ("kind", "items", "about_goal", "is_late", "recommended")
#: How it was asked: by no tool of an agent.
_WAY = "portal"


def reopen(question: Question, task: Task, *, by: Principal) -> None:
    """Open a question again whose answer the agent does not have. The task must be locked."""
    withdraw_with_answer(question, by=by.user)
    reason = _record_undo(question, task, by)
    as_before: dict[str, Any] = {}
    if question.finishes:
        as_before["early_end"] = ""
    for name, value in _OPEN.items():
        setattr(question, name, value)
    question.save(update_fields=list(_OPEN))
    forget_answer(question)
    append_one(question.run, EventKind.NOTE, {"text": f"{reason}.", "taken_back": question.number})
    Change.objects.create(task=task, kind=ChangeKind.QUESTION)
    if task.phase == Phase.PENDING:
        question.step.refresh_from_db()
        move_both(question.step, task, Phase.WAITING_FOR_INPUT, reason=reason, by=by.user, **as_before)


def _record_undo(question: Question, task: Task, by: Principal) -> str:
    """Record in the audit log that an outcome was undone, and return that in words."""
    detail: dict[str, Any] = {"question": question.pk}
    said = f"{by.user.shown_name} took back the answer to question {question.pk}"
    if question.is_unanswered:
        detail["rule"] = question.ended_by_rule
        said = f"{by.user.shown_name} undid {question.answerer} at question {question.pk}"
    elif question.is_applied:
        said = f"{by.user.shown_name} took back the answer of {question.answerer} to question {question.pk}"
    record(Action.ANSWER_TAKEN_BACK, by=by.user, task=task, subject=question.headline, **detail)
    return said


def may_take_back(question: Question) -> bool:
    """Return whether a decision answered or a rule ended it, and that can still be taken back."""
    return question.is_settled_by_portal and question.taken_back_at is None and not question.task.is_ended


def _take_back(question: Question, *, by: Principal) -> Question:
    """Take back what a decision or a rule did, and return the question that is open then.

    It is the same question as long as the agent was not told. Otherwise a run is stopped, and the question is
    asked anew; the agent reads what is answered to that, and that the first answer does not hold.
    Doing it twice changes nothing. Raises NotOpen if a human has answered meanwhile, or TooLateToUndo if the
    task has ended.
    """
    with transaction.atomic():
        task = Task.objects.select_for_update(of=("self",)).select_related("project").get(pk=question.task_id)
        question.refresh_from_db()
        if question.is_open:
            return question
        if not question.is_settled_by_portal:
            raise NotOpen(f"A human has answered this question meanwhile: {question.answerer}.")
        if question.taken_back_at:
            return question.reopened_as.get()
        _require_working(task)
        if question.applied:
            record_event(
                question.applied, DecisionEventKind.TAKEN_BACK, by=by.user, task=question.task,
                question=question,
            )  # fmt: skip
        was_handed_in = question.handed_in_id or question.run.number < question.step.first_run
        if was_handed_in or task.phase not in (Phase.PENDING, Phase.WAITING_FOR_INPUT):
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


def _ask_again(question: Question, task: Task, *, by: Principal) -> Question:
    """Ask the question again, of the step that is under way, and stop its run."""
    reason = _record_undo(question, task, by)
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
    append_one(run, EventKind.NOTE, {"text": f"{reason}."})
    append_one(run, EventKind.QUESTION, question_payload(anew))
    if task.phase != Phase.WAITING_FOR_INPUT:  # for the answer to another question
        # A worker that works on them stops within seconds.
        no_limit: dict[str, Any] = {"resets_at": None, "retry_at": None}
        for row, values in ((step, {}), (task, no_limit)):
            if row.phase not in (Phase.PENDING, Phase.RUNNING):
                move(row, Phase.PENDING, reason=reason, by=by.user, **values)
            move(row, Phase.WAITING_FOR_INPUT, reason=reason, by=by.user)
    Change.objects.create(task=task, kind=ChangeKind.QUESTION)
    return anew
