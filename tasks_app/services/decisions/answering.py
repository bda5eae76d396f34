"""What an answer means for decisions: those that hold already, and the one that it becomes (D2, D6).

Each item of a question is decided on its own. `storing.py` writes what is prepared here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from enum import StrEnum
from typing import Any

from tasks_app.config.decision_files import MAX_STATEMENT
from tasks_app.core.asked_items import without_recommended
from tasks_app.core.errors import BadInput
from tasks_app.models import Decision, DecisionScope, Question
from tasks_app.services.decisions.citing import cited_by
from tasks_app.services.decisions.content import DecisionContent, paths_from
from tasks_app.services.decisions.related import (
    Item,
    RelatedDecision,
    only,
    related_decisions,
    related_decisions_of_each,
)
from tasks_app.services.questions.answer_index import question_key

__all__ = [
    "DecisionInput",
    "PreparedDecisions",
    "PreparedItem",
    "RelatedDecision",
    "Remember",
    "Stance",
    "StanceChoice",
    "prepare",
    "related_decisions",
    "related_decisions_of_each",
    "statement_for",
]


class Stance(StrEnum):
    """What an answer means for a decision that it concerns."""

    AGREE = "agree"  # the decision is right
    SUPERSEDE = "supersede"  # the answer holds in its place
    NARROW = "narrow"  # the decision holds for fewer paths from now on
    EXCEPTION = "exception"  # the decision holds, but not here
    UNAFFECTED = "unaffected"  # the answer does not contradict the decision, and does not confirm it


@dataclass(frozen=True)
class Remember:
    """How far an answer holds: `task` (no decision), or a scope of DecisionScope.

    An empty `statement` is written from question and answer. `step` is for the scope `step`.
    """

    scope: str = "task"
    paths: Sequence[str] = ()
    statement: str = ""
    reason: str = ""
    step: str = ""
    review_after: date | None = None

    @property
    def makes_decision(self) -> bool:
        return self.scope != "task"


@dataclass(frozen=True)
class StanceChoice:
    """The stance on one decision. `paths` are for NARROW: where the decision holds from now on."""

    stance: str
    paths: Sequence[str] = ()


@dataclass(frozen=True)
class DecisionInput:
    """What a human says about decisions while answering; `stances` by the decision's number.

    Each item that is remembered becomes a decision of its own. `by_item` has, by the item's question, what is
    said of it alone; `remember` is for the others.
    """

    remember: Remember = field(default_factory=Remember)
    stances: Mapping[int, StanceChoice] = field(default_factory=dict)
    by_item: Mapping[str, Remember] = field(default_factory=dict)

    @classmethod
    def with_statements(
        cls, remember: Remember, statements: Mapping[str, str] | None, stances: Mapping[int, StanceChoice]
    ) -> DecisionInput:
        """Remember the items that have a statement, which may be empty, alike; None is all items."""
        if statements is None:
            return cls(remember, stances)
        if remember.statement:
            raise BadInput("send `statement` or `statements`, not both", where="remember.statements")
        by_item = {asked: replace(remember, statement=said) for asked, said in statements.items()}
        return cls(Remember(), stances, by_item)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is said: the answer is for this task only."""
        every = [self.remember, *self.by_item.values()]
        return not self.stances and not any(one.makes_decision for one in every)


Taken = tuple[RelatedDecision, StanceChoice]


@dataclass(frozen=True)
class PreparedItem:
    """What is written for an item: the new decision if there is one, and the stances of its answer."""

    content: DecisionContent | None
    values: Mapping[str, Any]
    stances: Sequence[tuple[Decision, StanceChoice]]


@dataclass(frozen=True)
class PreparedDecisions:
    """What is written with the answer; made before the transaction, because it runs git."""

    items: Sequence[PreparedItem]


def statement_for(item: Item, answer: str) -> str:
    """Return the statement that an item and its answer make, to be edited; "" without an answer."""
    asked = " ".join(str(item["question"]).split("\n\n")[0].split())
    said = " ".join(without_recommended(answer).split())
    return f"{asked} {said}"[:MAX_STATEMENT] if said else ""


def prepare(question: Question, answers: Mapping[str, str], given: DecisionInput) -> PreparedDecisions:
    """Check what a human says about decisions, and read what they cite.

    Raises BadInput that names the field.
    """
    _require_known_items(question, given)
    taken = _stances(related_decisions(question), answers, given.stances)
    return PreparedDecisions([_prepared(question, item, answers, given, taken) for item in question.items])


def _require_known_items(question: Question, given: DecisionInput) -> None:
    asked = {str(item["question"]) for item in question.items}
    if unknown := next((one for one in given.by_item if one not in asked), None):
        raise BadInput(
            f"question {question.number} does not ask “{unknown[:60]}”", where="remember.statements"
        )
    if given.remember.statement and len(asked) > 1:
        raise BadInput(
            "each question on the card becomes a decision of its own; name the one of each statement",
            where="remember.statement",
        )


def _prepared(
    question: Question, item: Item, answers: Mapping[str, str], given: DecisionInput, taken: Sequence[Taken]
) -> PreparedItem:
    """Return what is written for one item, with the stances on decisions that are about it first of all."""
    asked, alone = str(item["question"]), only(question, item)
    remember = given.by_item.get(asked, given.remember)
    here = [(one.decision, said) for one, said in taken if str(one.items[0]["question"]) == asked]
    content = _content(alone, item, answers[asked], remember, here)
    values: dict[str, Any] = {}
    if content:
        values = {
            "question": question,
            "question_key": question_key(alone),
            "answers": {asked: answers[asked]},
            "cites": cited_by(alone, content),
        }
    return PreparedItem(content, values, here)


def _stances(
    related: Sequence[RelatedDecision], answers: Mapping[str, str], given: Mapping[int, StanceChoice]
) -> list[Taken]:
    by_number = {one.decision.number: one for one in related}
    if unknown := sorted(given.keys() - by_number.keys()):
        raise BadInput(f"this question does not concern D-{unknown[0]}", where="decisions")
    said = ((one, _stance(one, answers, given.get(one.decision.number))) for one in related)
    return [(one, stance) for one, stance in said if stance]


def _stance(
    one: RelatedDecision, answers: Mapping[str, str], given: StanceChoice | None
) -> StanceChoice | None:
    """Return the stance on a decision; None if it holds elsewhere and nothing was said."""
    if given is None:
        return _stance_unsaid(one, one.agrees(answers))
    label = one.decision.label
    if given.stance not in list(Stance):
        raise BadInput(f"must be one of {', '.join(Stance)}", where=f"decisions {label}")
    if given.stance in (Stance.AGREE, Stance.UNAFFECTED) and one.agrees(answers) is False:
        if given.stance == Stance.AGREE:
            raise BadInput(f"the answer differs from {label}, so it cannot agree", where=f"decisions {label}")
        if one.must_be_judged:
            raise BadInput(f"the answer contradicts {label}, so it affects it", where=f"decisions {label}")
    if given.stance == Stance.NARROW:
        narrowed = paths_from(given.paths)
        if not narrowed:
            raise BadInput(f"name the paths for which {label} still holds", where=f"decisions {label}")
        return replace(given, paths=narrowed)
    return given


def _stance_unsaid(one: RelatedDecision, agrees: bool | None) -> StanceChoice | None:
    """Return the stance if nothing was said. Raises BadInput if something must be said."""
    if not one.must_be_judged:
        return None
    if agrees:
        return StanceChoice(Stance.AGREE)
    label = one.decision.label
    if agrees is False:
        raise BadInput(
            f"this answer contradicts {label}. Say what holds: the answer instead (supersede), {label} for "
            "fewer paths (narrow), or an exception.",
            where="decisions",
        )
    raise BadInput(
        f"say what this answer means for {label}: {label} is right (agree), the answer holds instead "
        "(supersede), it holds for fewer paths (narrow), an exception, or the answer does not affect it "
        "(unaffected).",
        where="decisions",
    )


def _content(
    question: Question,
    item: Item,
    answer: str,
    remember: Remember,
    stances: Sequence[tuple[Decision, StanceChoice]],
) -> DecisionContent | None:
    """Return the content of the new decision; None if the answer is for this task only."""
    if remember.scope not in ("task", *DecisionScope.values):
        raise BadInput(f"must be one of task, {', '.join(DecisionScope.values)}", where="remember.scope")
    superseded = next((old for old, said in stances if said.stance == Stance.SUPERSEDE), None)
    if not remember.makes_decision and superseded is None:
        return None
    statement = remember.statement.strip() or statement_for(item, answer)
    content = DecisionContent(
        statement,
        remember.reason,
        remember.scope,
        remember.paths,
        remember.step or question.step.name,
        remember.review_after,
    )
    if superseded is not None and not remember.makes_decision:  # it holds where the old one did
        content = replace(DecisionContent.of(superseded), statement=statement, reason=remember.reason)
    try:
        return content.checked()
    except BadInput as error:
        raise BadInput(error.message, where=f"remember.{error.where}") from None
