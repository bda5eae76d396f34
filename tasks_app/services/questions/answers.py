"""Answer or dismiss a question, decide about a tool call or a plan. The first answer counts."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from django.db import transaction

from tasks_app.core.errors import AnswerEmpty, BadInput
from tasks_app.models import VERDICTS, Action, Channel, Question, QuestionKind, QuestionState, Verdict
from tasks_app.permissions import Principal, require_actor
from tasks_app.services.costs.soft_limit import cost_answer_in
from tasks_app.services.decisions.answering import DecisionInput, prepare
from tasks_app.services.decisions.storing import store_with_answer
from tasks_app.services.questions.earlier_answers import find_reused_answer
from tasks_app.services.questions.question_outcomes import (
    Answered,
    normalise,
    normalise_notes,
    require_size,
    store_outcome,
    why_not_open,
)

__all__ = ["Answered", "Reply", "answer_question", "decide", "dismiss_question", "why_not_open"]


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
    reply = _check_reply(question, reply)
    outcome: dict[str, Any] = {
        "state": QuestionState.ANSWERED, "answers": reply.answers, "notes": reply.notes,
        "taken_from": find_reused_answer(question, reply.answers, reply.taken_from),
    }  # fmt: skip
    if question.is_about_cost:
        _require_no_decision(reply)
        chosen = cost_answer_in(question, reply.answers[question.headline])
        outcome["answers"] = {question.headline: chosen.answer}
        outcome |= {"allowed_usd": chosen.allowed_usd, "finishes": chosen.finishes}
        return store_outcome(question, outcome, action=Action.ANSWERED, by=by, via=via)
    if not question.is_open:  # before what is said about decisions is checked: they may have changed since
        return store_outcome(question, outcome, action=Action.ANSWERED, by=by, via=via)
    prepared = prepare(question, reply.answers, reply.decision_input)
    with transaction.atomic():
        answered = store_outcome(question, outcome, action=Action.ANSWERED, by=by, via=via)
        if not answered.repeated:
            store_with_answer(question, prepared, by=by.user)
    return answered


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
#: What to do with a question of each kind, for the message to those who try something else.
_EXPECTED = {
    QuestionKind.CLARIFICATION: "a question: answer or dismiss it",
    QuestionKind.APPROVAL: "an approval: approve or deny it",
    QuestionKind.PLAN: "a plan: approve it or send it back",
    QuestionKind.COST: "about a soft cost limit: answer it with an amount of dollars, finish early, or "
    "end the task",
}


def _not_what_is_expected(question: Question) -> str:
    return f"Question {question.number} is {_EXPECTED[QuestionKind(question.kind)]}."


def _require_no_decision(reply: Reply) -> None:
    if not reply.decision_input.is_empty:
        raise BadInput(
            "an answer about costs holds for its task only: send neither remember nor decisions",
            where="remember",
        )


def _check_reply(question: Question, reply: Reply) -> Reply:
    """Return the reply with normalised line ends. Raise BadInput, AnswerEmpty or AnswerTooLong."""
    asked = {str(item["question"]) for item in question.items}
    if unknown := next((name for name in reply.answers if name not in asked), None):
        raise BadInput(f"question {question.number} does not ask “{unknown}”", where="answers")
    answers = {}
    for item in question.items:
        answer = normalise(reply.answers.get(item["question"], ""))
        if not answer.strip():
            which = "" if len(question.items) == 1 else f" “{item['question']}” has no answer yet."
            raise AnswerEmpty(f"Choose an option or type an answer.{which}")
        answers[item["question"]] = answer
    notes = normalise_notes(reply.notes)
    require_size(*answers.values(), notes)
    return replace(reply, answers=answers, notes=notes)
