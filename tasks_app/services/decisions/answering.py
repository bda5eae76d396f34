"""Making an answer a decision, and what an answer means for the decisions that hold already (D2, D6)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from enum import StrEnum
from typing import Any

from django.db.models import Q

from tasks_app.config.decision_files import MAX_STATEMENT
from tasks_app.core.errors import BadInput
from tasks_app.models import (
    Decision,
    DecisionEventKind,
    DecisionScope,
    DecisionState,
    Question,
    User,
)
from tasks_app.models.decision import decisions_named_in
from tasks_app.services.answer_index import question_key
from tasks_app.services.decisions.changes import (
    confirm_by,
    end,
    locked,
    note_event,
    replace_by,
    store,
    supersede,
)
from tasks_app.services.decisions.citing import cited_by
from tasks_app.services.decisions.content import DecisionContent, paths_from


class Stance(StrEnum):
    """What an answer means for a decision that it concerns."""

    AGREE = "agree"  # the decision is right
    SUPERSEDE = "supersede"  # the answer holds in its place
    NARROW = "narrow"  # the decision holds for fewer paths from now on
    EXCEPTION = "exception"  # the decision holds, but not here


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
class StanceOn:
    """The stance on one decision. `paths` are for NARROW: where the decision holds from now on."""

    stance: str
    paths: Sequence[str] = ()


@dataclass(frozen=True)
class ForDecisions:
    """What a human says about decisions while answering; `stances` by the decision's number."""

    remember: Remember = field(default_factory=Remember)
    stances: Mapping[int, StanceOn] = field(default_factory=dict)


@dataclass(frozen=True)
class Concerned:
    """An active decision that a question concerns. `same`: it was the answer to the same question."""

    decision: Decision
    same: bool

    def agrees(self, answers: Mapping[str, str]) -> bool | None:
        """Return whether the answers are those of the decision; None if they cannot be compared."""
        if not self.same or not self.decision.answers:
            return None
        return _comparable(self.decision.answers) == _comparable(answers)


def decisions_concerning(question: Question) -> list[Concerned]:
    """Return the active decisions that answered the same question, or that the agent names, newest first."""
    return decisions_concerning_each([question])[question.pk]


def decisions_concerning_each(questions: Collection[Question]) -> dict[int, list[Concerned]]:
    """Return the same for many questions, by their ids, with one query."""
    keys = {one.pk: question_key(one) for one in questions}
    named = {one.pk: _decisions_named_in(one) for one in questions}
    concerning = Q(question_key__in=set(keys.values())) | Q(number__in=set().union(*named.values()))
    projects = {one.task.project_id for one in questions}
    rows = Decision.objects.active().filter(concerning, project__in=projects)
    active = list(rows.select_related("project", "decided_by", "question__task").order_by("-number"))
    return {
        one.pk: [
            Concerned(decision, same=decision.question_key == keys[one.pk])
            for decision in active
            if decision.project_id == one.task.project_id
            and (decision.question_key == keys[one.pk] or decision.number in named[one.pk])
        ]
        for one in questions
    }


def _decisions_named_in(question: Question) -> set[int]:
    texts = []
    for item in question.items:
        texts.append(str(item["question"]))
        texts += [f"{one.get('label')} {one.get('description')}" for one in item.get("options") or []]
    return set().union(*map(decisions_named_in, texts))


def _comparable(answers: Mapping[str, str]) -> list[str]:
    """Return the answers in the order of their questions, whose spelling may differ."""
    return [" ".join(answers[name].split()).casefold() for name in sorted(answers, key=str.casefold)]


@dataclass(frozen=True)
class Prepared:
    """What is written with the answer; made before the transaction, because it runs git."""

    content: DecisionContent | None
    values: Mapping[str, Any]
    stances: Sequence[tuple[Decision, StanceOn]]


def statement_for(question: Question, answers: Mapping[str, str]) -> str:
    """Return the statement that question and answer make, to be edited."""
    parts = []
    for item in question.items:
        asked = " ".join(str(item["question"]).split("\n\n")[0].split())
        if answer := " ".join(answers.get(str(item["question"]), "").split()):
            parts.append(f"{asked} {answer}")
    return "\n".join(parts)[:MAX_STATEMENT]


def prepare(question: Question, answers: Mapping[str, str], given: ForDecisions) -> Prepared:
    """Check what a human says about decisions, and read what they cite.

    Raises BadInput that names the field.
    """
    concerned = decisions_concerning(question)
    stances = _stances(concerned, answers, given.stances)
    content = _content(question, answers, given.remember, stances)
    values: dict[str, Any] = {}
    if content:
        values = {
            "question": question,
            "question_key": question_key(question),
            "answers": dict(answers),
            "cites": cited_by(question, content),
        }
    return Prepared(content, values, stances)


def _stances(
    concerned: Sequence[Concerned], answers: Mapping[str, str], given: Mapping[int, StanceOn]
) -> list[tuple[Decision, StanceOn]]:
    by_number = {one.decision.number: one for one in concerned}
    if unknown := sorted(given.keys() - by_number.keys()):
        raise BadInput(f"this question does not concern D-{unknown[0]}", where="decisions")
    said = ((one.decision, _stance(one, answers, given.get(one.decision.number))) for one in concerned)
    return [(decision, stance) for decision, stance in said if stance]


def _stance(one: Concerned, answers: Mapping[str, str], given: StanceOn | None) -> StanceOn | None:
    """Return the stance on a decision; None if nothing was said and the answers cannot be compared."""
    agrees, label = one.agrees(answers), one.decision.label
    if given is None:
        if agrees is False:
            raise BadInput(
                f"this answer contradicts {label}. Say what holds: the answer instead (supersede), "
                f"{label} for fewer paths (narrow), or an exception.",
                where="decisions",
            )
        return StanceOn(Stance.AGREE) if agrees else None
    if given.stance not in list(Stance):
        raise BadInput(f"must be one of {', '.join(Stance)}", where=f"decisions {label}")
    if agrees is False and given.stance == Stance.AGREE:
        raise BadInput(f"the answer differs from {label}, so it cannot agree", where=f"decisions {label}")
    if given.stance == Stance.NARROW:
        narrowed = paths_from(given.paths)
        if not narrowed:
            raise BadInput(f"name the paths for which {label} still holds", where=f"decisions {label}")
        return replace(given, paths=narrowed)
    return given


def _content(
    question: Question,
    answers: Mapping[str, str],
    remember: Remember,
    stances: Sequence[tuple[Decision, StanceOn]],
) -> DecisionContent | None:
    """Return the content of the new decision; None if the answer is for this task only."""
    if remember.scope not in ("task", *DecisionScope.values):
        raise BadInput(f"must be one of task, {', '.join(DecisionScope.values)}", where="remember.scope")
    superseded = next((old for old, said in stances if said.stance == Stance.SUPERSEDE), None)
    if not remember.makes_decision and superseded is None:
        return None
    statement = remember.statement.strip() or statement_for(question, answers)
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


def store_with_answer(question: Question, prepared: Prepared, *, by: User) -> Decision | None:
    """Store what was prepared, and return the new decision. Call it in the transaction of the answer.

    Raises BadInput if a decision that the answer is about was replaced or retired meanwhile.
    """
    writing = _Writing(question, prepared, by)
    for decision, said in prepared.stances:
        now = locked(decision)
        if not now.is_active:
            raise BadInput(
                f"{now.label} is {now.get_state_display()} by now; look at the question again",
                where="decisions",
            )
        writing.take(Stance(said.stance), now, said.paths)
    return writing.made_decision()


class _Writing:
    """Writes the stances on decisions one by one, and then the new decision if none of them made it."""

    def __init__(self, question: Question, prepared: Prepared, by: User) -> None:
        self._question, self._prepared, self._by = question, prepared, by
        self._made: Decision | None = None
        self._exception_to: Decision | None = None

    def take(self, stance: Stance, decision: Decision, narrowed: Sequence[str]) -> None:
        """Write what the answer means for a locked decision."""
        if stance is Stance.NARROW:
            self._narrow(decision, narrowed)
        elif stance is Stance.EXCEPTION:
            self._exception_to = decision
            note_event(
                decision, DecisionEventKind.EXCEPTION, by=self._by, task=self._question.task,
                question=self._question,
            )  # fmt: skip
        elif stance is Stance.SUPERSEDE or self._says_it_anew(decision):
            self._supersede(decision)
        else:
            confirm_by(decision, self._by, question=self._question)

    def made_decision(self) -> Decision | None:
        """Return the new decision; None if the answer is for this task only."""
        content, project = self._prepared.content, self._question.task.project
        if content and self._made is None:
            self._made = store(
                project, content, by=self._by, exception_to=self._exception_to, **self._prepared.values
            )
        return self._made

    def _says_it_anew(self, decision: Decision) -> bool:
        """Return whether the answer agrees with the decision, but in other words or elsewhere."""
        content = self._prepared.content
        same = decision.question_key and decision.question_key == self._prepared.values.get("question_key")
        return bool(content and same and content != DecisionContent.of(decision))

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

    def _narrow(self, decision: Decision, narrowed: Sequence[str]) -> None:
        content = replace(
            DecisionContent.of(decision), scope=DecisionScope.PATHS, paths=tuple(narrowed), step=""
        )
        replace_by(
            decision, content, by=self._by, kind=DecisionEventKind.NARROWED, answered=self._question,
            cites=decision.cites, question=decision.question, question_key=decision.question_key,
            answers=decision.answers,
        )  # fmt: skip


def withdraw_with_answer(question: Question, *, by: User) -> None:
    """Retire the decisions that came from an answer which is taken back, and restore those that it ended.

    Call it in the transaction that opens the question again.
    """
    ended = question.decision_events.filter(kind__in=["superseded", "narrowed"]).select_related("decision")
    for event in ended:
        for new in event.decision.replaced_by.active():
            _retire(new, question, by=by)
        if event.decision.state == DecisionState.SUPERSEDED:
            event.decision.state = DecisionState.ACTIVE
            event.decision.save(update_fields=["state"])
            note_event(event.decision, DecisionEventKind.RESTORED, by=by, question=question)
    for made in Decision.objects.active().filter(question=question, made_at__gte=question.answered_at):
        _retire(made, question, by=by)
    question.decision_events.filter(kind__in=["confirmed", "exception"]).delete()


def _retire(decision: Decision, question: Question, *, by: User) -> None:
    end(decision, DecisionState.RETIRED)
    note = f"The answer to question {question.number} was taken back."
    note_event(decision, DecisionEventKind.RETIRED, by=by, question=question, note=note)
