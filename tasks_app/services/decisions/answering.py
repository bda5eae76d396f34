"""Decisions that come from answers: what a card prepares, and storing it with the answer (D2, D6).

Each item of a question is decided on its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from enum import StrEnum
from typing import Any

from django.db.models import QuerySet

from tasks_app.config.decision_records import MAX_STATEMENT
from tasks_app.core.asked_items import answer_in_full, is_terse, sentence_asked, without_remarks
from tasks_app.core.errors import BadInput
from tasks_app.core.text import lines_joined
from tasks_app.history.audit import record
from tasks_app.models import (
    Action,
    Citation,
    Decision,
    DecisionEvent,
    DecisionEventKind,
    DecisionScope,
    DecisionState,
    Question,
    QuestionKind,
    User,
)
from tasks_app.services.decisions.changes import (
    close,
    confirm_by,
    lock_decision,
    record_event,
    reopen_review,
    replace_by,
    settle_review,
    store,
    subject_of,
    supersede,
)
from tasks_app.services.decisions.citing import (
    Item,
    RelatedDecision,
    citations_now,
    cited_by,
    related_decisions,
    with_one_item,
)
from tasks_app.services.decisions.content import DecisionContent, paths_from
from tasks_app.services.questions.earlier_answers import question_key

#: What an answered question says of the decisions that its answer made, confirmed or changed.
_DECIDED: dict[str, str] = {
    DecisionEventKind.DECIDED: "Decided as",
    DecisionEventKind.CONFIRMED: "Confirmed",
    DecisionEventKind.EXCEPTION: "An exception to",
    DecisionEventKind.SUPERSEDED: "Replaced",
    DecisionEventKind.NARROWED: "Limited to paths",
}


DecidedByItem = dict[str, list[tuple[str, Decision]]]


def decided_by_answers(questions: Collection[Question]) -> dict[int, DecidedByItem]:
    """Return the decisions that the answers made or changed, each with a label.

    By the question's id, and then by the item whose answer did it. What an answer did that was taken back
    since is not among them.
    """
    asked = [one for one in questions if one.kind == QuestionKind.CLARIFICATION]
    answered_at = {one.pk: one.answered_at for one in asked if one.answered_at}
    found: dict[int, list[tuple[str, Decision]]] = {}
    if answered_at:
        events = DecisionEvent.objects.filter(kind__in=_DECIDED, question__in=list(answered_at))
        for event in events.select_related("decision").order_by("pk"):
            question = event.question_id or 0
            if event.at >= answered_at[question]:
                found.setdefault(question, []).append((_DECIDED[event.kind], event.decision))
    return {one.pk: _by_item(one, found[one.pk]) for one in asked if one.pk in found}


def _by_item(question: Question, of_card: Sequence[tuple[str, Decision]]) -> DecidedByItem:
    """Sort what the answers to a card decided by its items.

    A changed decision stands with the one that replaces it or is an exception to it, or else with the last
    item.
    """
    asked = [str(item["question"]) for item in question.items]
    found: DecidedByItem = {}
    for words, decision in of_card:
        made = [one for _, one in of_card if decision.pk in (one.pk, one.replaces_id, one.exception_to_id)]
        own = {text for one in made for text in one.answers}
        item = next((text for text in asked if text in own), asked[-1])
        found.setdefault(item, []).append((words, decision))
    return found


class Stance(StrEnum):
    """The meaning of an answer for a decision that it concerns."""

    AGREE = "agree"  # the decision is right
    SUPERSEDE = "supersede"  # the answer replaces it
    NARROW = "narrow"  # the decision holds for fewer paths from now on
    EXCEPTION = "exception"  # the decision holds, but not here
    UNAFFECTED = "unaffected"  # the answer does not contradict the decision, and does not confirm it


@dataclass(frozen=True)
class Remember:
    """How far an answer holds: `task` (no decision), or a scope of DecisionScope.

    An empty `statement` is made of the answer (`statement_for`). `step` is for the scope `step`.
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
    """The input about decisions that comes with an answer; `stances` by the decision's number.

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
    """The rows to write for an item: the new decision, if there is one, and the stances of its answer."""

    content: DecisionContent | None
    values: Mapping[str, Any]
    stances: Sequence[tuple[Decision, StanceChoice]]
    #: The files cited by decisions that are found right after a look, as they are now, by the decisions' ids.
    cites_kept: Mapping[int, list[Citation]]


def statement_for(item: Item, answer: str, *, of_several: bool) -> str:
    """Return the statement that an answer makes, to be edited: the chosen option with its description.

    The question is kept as the decision's source, so the statement repeats it only if the answer says nothing
    without it, such as “Yes”. A remark of the agent on itself is no rule. Of several questions on a card,
    which were read together, each statement begins with its header, unless that only cites another decision.
    """
    rules = [
        {**one, "description": without_remarks(str(one.get("description") or ""))}
        for one in item.get("options") or ()
    ]
    said = answer_in_full({**item, "options": rules}, lines_joined(answer))
    if said and is_terse(said):
        return f"{sentence_asked(item)} {said}".strip()[:MAX_STATEMENT]
    header = lines_joined(str(item.get("header") or ""))
    if said and header and of_several and not Decision.is_label(header):
        said = f"{header}: {said}"
    return said[:MAX_STATEMENT]


def prepare(question: Question, answers: Mapping[str, str], given: DecisionInput) -> list[PreparedItem]:
    """Check what a human says about decisions, and read what they cite, for each item of the question.

    Call it before the transaction of the answer: it runs git. Raises BadInput that names the field.
    """
    asked = {str(item["question"]) for item in question.items}
    if unknown := next((one for one in given.by_item if one not in asked), None):
        raise BadInput(f"question {question.pk} does not ask “{unknown[:60]}”", where="remember.statements")
    if given.remember.statement and len(asked) > 1:
        raise BadInput(
            "each question on the card becomes a decision of its own; name the one of each statement",
            where="remember.statement",
        )
    related = related_decisions(question)
    if others := given.stances.keys() - {one.decision.number for one in related}:
        raise BadInput(f"this question does not concern D-{min(others)}", where="decisions")
    taken = []
    for one in related:
        if stance := _stance(one, answers, given.stances.get(one.decision.number)):
            taken.append((one, stance))
    return [_prepared(question, item, answers, given, taken) for item in question.items]


def _prepared(
    question: Question, item: Item, answers: Mapping[str, str], given: DecisionInput, taken: Sequence[Taken]
) -> PreparedItem:
    """Return the rows to write for one item; stances on decisions about it come first."""
    asked, alone = str(item["question"]), with_one_item(question, item)
    remember = given.by_item.get(asked, given.remember)
    here = [(one.decision, said) for one, said in taken if str(one.items[0]["question"]) == asked]
    statement = remember.statement.strip()
    statement = statement or statement_for(item, answers[asked], of_several=len(question.items) > 1)
    content = _content(alone, replace(remember, statement=statement), here)
    values: dict[str, Any] = {}
    if content:
        values = {
            "question": question,
            "question_key": question_key(alone),
            "answers": {asked: answers[asked]},
            "cites": cited_by(alone, content),
        }
    reviewed = [one for one, said in here if said.stance == Stance.AGREE and one.why_review]
    return PreparedItem(content, values, here, {one.pk: citations_now(one) for one in reviewed})


def _stance(
    one: RelatedDecision, answers: Mapping[str, str], given: StanceChoice | None
) -> StanceChoice | None:
    """Return the stance on a decision; None if it holds elsewhere and nothing was said."""
    if given is None:
        return _stance_unsaid(one, one.agrees(answers))
    label = one.decision.label
    if given.stance not in list(Stance):
        raise BadInput(f"must be one of {', '.join(Stance)}", where=f"decisions {label}")
    agrees = one.agrees(answers)
    if given.stance == Stance.AGREE and one.is_comparable and not agrees:
        raise BadInput(
            f"the answer differs from {label}, so it does not confirm it; if it does not contradict {label} "
            "either, say that it does not affect it",
            where=f"decisions {label}",
        )
    if given.stance == Stance.EXCEPTION and agrees:
        raise BadInput(
            f"the answer is the one of {label}, so it is no exception to it", where=f"decisions {label}"
        )
    if given.stance == Stance.UNAFFECTED and agrees is False and one.must_be_judged:
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
            f"this answer contradicts {label}. Say what holds: your answer replaces {label}, {label} is "
            "limited to paths, or your answer is an exception.",
            where="decisions",
        )
    right = f"{label} is right, "
    if one.is_comparable:  # then the answer says so itself
        right = ""
    raise BadInput(
        f"say what this answer means for {label}: {right}your answer replaces it, {label} is limited to "
        "paths, your answer is an exception, or it does not affect it.",
        where="decisions",
    )


def _content(
    question: Question, remember: Remember, stances: Sequence[tuple[Decision, StanceChoice]]
) -> DecisionContent | None:
    """Return the content of the new decision; None if the answer is for this task only."""
    if remember.scope not in ("task", *DecisionScope.values):
        raise BadInput(f"must be one of task, {', '.join(DecisionScope.values)}", where="remember.scope")
    superseded = next((old for old, said in stances if said.stance == Stance.SUPERSEDE), None)
    if not remember.makes_decision and superseded is None:
        return None
    content = DecisionContent(
        remember.statement,
        remember.reason,
        remember.scope,
        remember.paths,
        remember.step or question.step.name,
        remember.review_after,
    )
    if superseded is not None and not remember.makes_decision:  # it holds where the old one did
        old = DecisionContent.from_decision(superseded)
        content = replace(old, statement=remember.statement, reason=remember.reason)
    try:
        return content.checked()
    except BadInput as error:
        raise BadInput(error.message, where=f"remember.{error.where}") from None


def store_with_answer(question: Question, prepared: Sequence[PreparedItem], *, by: User) -> list[Decision]:
    """Store what was prepared, and return the new decisions. Call it in the transaction of the answer.

    Raises BadInput if a decision that the answer is about was replaced or retired meanwhile.
    """
    now = _lock_decisions(decision for item in prepared for decision, _ in item.stances)
    for decision in now.values():
        if not decision.is_active:
            raise BadInput(
                f"{decision.label} is {decision.get_state_display()} by now; look at the question again",
                where="decisions",
            )
    made = []
    for item in prepared:
        writing = _AnswerRecorder(question, item, by)
        for decision, said in item.stances:
            writing.apply_stance(Stance(said.stance), now[decision.pk], said.paths)
        made.append(writing.made_decision())
    return [one for one in made if one]


def _lock_decisions(decisions: Iterable[Decision]) -> dict[int, Decision]:
    """Lock the decisions in the order of their ids, so that two answers cannot wait for each other."""
    by_id = {one.pk: one for one in decisions}
    return {pk: lock_decision(by_id[pk]) for pk in sorted(by_id)}


class _AnswerRecorder:
    """Writes the stances of one item, one by one, and then its new decision if none of them made it."""

    def __init__(self, question: Question, prepared: PreparedItem, by: User) -> None:
        self._question, self._prepared, self._by = question, prepared, by
        self._made: Decision | None = None
        self._exception_to: Decision | None = None

    def apply_stance(self, stance: Stance, decision: Decision, narrowed: Sequence[str]) -> None:
        """Write what the answer means for a locked decision."""
        if stance is Stance.NARROW:
            content = DecisionContent.from_decision(decision)
            content = replace(content, scope=DecisionScope.PATHS, paths=tuple(narrowed), step="")
            replace_by(
                decision, content, by=self._by, kind=DecisionEventKind.NARROWED, answered=self._question,
                cites=decision.cites, question=decision.question, question_key=decision.question_key,
                answers=decision.answers,
            )  # fmt: skip
        elif stance is Stance.EXCEPTION:
            self._exception_to = decision
            record_event(
                decision, DecisionEventKind.EXCEPTION, by=self._by, task=self._question.task,
                question=self._question,
            )  # fmt: skip
        elif stance is Stance.SUPERSEDE or (stance is Stance.AGREE and self._rewords(decision)):
            self._supersede(decision)
        elif stance is Stance.AGREE:
            confirm_by(decision, self._by, question=self._question)
            if decision.pk in self._prepared.cites_kept:
                settle_review(
                    decision, self._prepared.cites_kept[decision.pk], by=self._by, question=self._question
                )

    def made_decision(self) -> Decision | None:
        """Return the new decision; None if the answer is for this task only."""
        content, project = self._prepared.content, self._question.task.project
        if content and self._made is None:
            self._made = store(
                project, content, by=self._by, answered=self._question, exception_to=self._exception_to,
                **self._prepared.values,
            )  # fmt: skip
        return self._made

    def _rewords(self, decision: Decision) -> bool:
        """Return whether the answer agrees with the decision, but in other words or elsewhere."""
        content = self._prepared.content
        same = decision.question_key and decision.question_key == self._prepared.values.get("question_key")
        return bool(content and same and content != DecisionContent.from_decision(decision))

    def _supersede(self, decision: Decision) -> None:
        if self._made is None and self._prepared.content:
            self._made = replace_by(
                decision, self._prepared.content, by=self._by, answered=self._question,
                **self._prepared.values,
            )  # fmt: skip
        elif self._made is not None:
            supersede(
                decision, self._made, by=self._by, kind=DecisionEventKind.SUPERSEDED, answered=self._question
            )


def withdraw_with_answer(question: Question, *, by: User) -> None:
    """Retire the decisions that an undone answer made, and restore the decisions that it ended.

    What others have decided since stays: a decision that they replaced or retired, and its successors. Call
    it in the transaction that opens the question again.
    """
    events = DecisionEvent.objects.filter(question=question, at__gte=question.answered_at)
    made = Decision.objects.filter(pk__in=_decisions_of(events, DecisionEventKind.DECIDED))
    ended = Decision.objects.filter(
        pk__in=_decisions_of(events, DecisionEventKind.SUPERSEDED, DecisionEventKind.NARROWED)
    )
    kept = list(events.filter(kind=DecisionEventKind.KEPT).select_related("decision"))
    now = _lock_decisions([*made, *ended, *(event.decision for event in kept)])
    note = f"The answer to question {question.pk} was taken back."
    for one in made:
        decision = now[one.pk]
        if decision.is_active:
            close(decision, DecisionState.RETIRED)
            record_event(decision, DecisionEventKind.RETIRED, by=by, question=question, note=note)
            record(
                Action.DECISION_RETIRED, by=by, project=decision.project, task=question.task,
                subject=subject_of(decision), reason=note,
            )  # fmt: skip
    for one in ended:
        decision = now[one.pk]
        if decision.state == DecisionState.SUPERSEDED and not _has_successor(decision):
            decision.state = DecisionState.ACTIVE
            decision.save(update_fields=["state"])
            record_event(decision, DecisionEventKind.RESTORED, by=by, question=question)
            record(
                Action.DECISION_CHANGED, by=by, project=decision.project, task=question.task,
                subject=subject_of(decision),
            )  # fmt: skip
    for event in kept:
        reopen_review(now[event.decision_id], event)
    question.decision_events.filter(kind__in=["confirmed", "exception", "kept"]).delete()


def _decisions_of(events: QuerySet[DecisionEvent], *kinds: DecisionEventKind) -> list[int]:
    return sorted(events.filter(kind__in=kinds).order_by().values_list("decision", flat=True).distinct())


def _has_successor(decision: Decision) -> bool:
    """Return whether a decision that replaced it, or one that replaced that, is in force or proposed."""
    following = list(decision.replaced_by.all())
    return any(one.is_active or one.is_proposed or _has_successor(one) for one in following)
