"""Related decisions: which decisions a question concerns, and whether an answer agrees with them (D6)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import Any

from django.db.models import Q

from tasks_app.agent.gate.patterns import allowed
from tasks_app.core.asked_items import says_same
from tasks_app.core.named_paths import paths_named_in
from tasks_app.core.similar_questions import normalised_label, question_digest
from tasks_app.models import Decision, DecisionScope, Question
from tasks_app.models.decision import decisions_named_in
from tasks_app.services.decisions.citing import texts_of
from tasks_app.services.decisions.scope import files_of

Item = Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class RelatedDecision:
    """An active decision that a question concerns, and the `items` that it is about.

    `same`: it was the answer to these very items before; `named`: the agent names it in them.
    """

    decision: Decision
    question: Question
    items: Sequence[Item]
    same: bool
    named: bool
    #: Looks up the files of the task and the question; may run git.
    find_files: Callable[[], Collection[str]]

    def agrees(self, answers: Mapping[str, str]) -> bool | None:
        """Return whether the answers are those of the decision; None if they cannot be compared."""
        if not self.is_comparable:
            return None
        said = [self._agrees_on_item(item, answers.get(str(item["question"]), "")) for item in self.items]
        return False if False in said else None if None in said else True

    def _agrees_on_item(self, item: Item, answer: str) -> bool | None:
        decided = _decided_answer(item, self.decision)
        return says_same(item, decided, answer) if decided and answer else None

    @property
    def is_comparable(self) -> bool:
        """Whether it has an answer with which another one can be compared."""
        return self.same and bool(self.decision.answers)

    @cached_property
    def must_be_judged(self) -> bool:
        """Whether whoever answers must say what that means for it: the agent names it, or it holds here."""
        return self.named or self.holds_here

    @cached_property
    def holds_here(self) -> bool:
        """Whether it holds for this step and, if it is for paths, for a file of the task or the question."""
        if self.decision.scope == DecisionScope.STEP:
            return self.decision.step == self.question.step.name
        if self.decision.scope == DecisionScope.PATHS:
            return any(allowed(file, self.decision.paths) for file in self.find_files())
        return True


def _decided_answer(item: Item, decision: Decision) -> str:
    """Return the decision's answer to an item, whose spelling may differ; "" without one."""
    asked = str(item["question"])
    known = {normalised_label(one): answer for one, answer in decision.answers.items()}
    return (decision.answers.get(asked) or known.get(normalised_label(asked), "")).strip()


def related_decisions(question: Question) -> list[RelatedDecision]:
    """Return the active decisions that answered an item of the question before, or that the agent names.

    The newest come first, also those that hold elsewhere.
    """
    return related_decisions_of_each([question])[question.pk]


def related_decisions_of_each(questions: Collection[Question]) -> dict[int, list[RelatedDecision]]:
    """Return the same for many questions, by their ids, with one query."""
    asked = [_Asked.of(one) for one in questions]
    keys = {key for one in asked for key in one.items_by_key}
    numbers = {number for one in asked for number in one.items_by_number}
    rows = Decision.objects.active().filter(
        Q(question_key__in=keys) | Q(number__in=numbers),
        project__in={one.task.project_id for one in questions},
    )
    # Mostly there are none. To build the statement that joins five tables takes longer than the rest of this.
    active = list(rows.prefetch_related("project", "decided_by", "question__task").order_by("-number"))
    return {one.question.pk: [found for row in active if (found := one.related(row))] for one in asked}


@dataclass(frozen=True)
class _Asked:
    """The items of a question by their keys, and by the numbers of the decisions that they name."""

    question: Question
    items_by_key: Mapping[str, Sequence[Item]]
    items_by_number: Mapping[int, Sequence[Item]]
    find_files: Callable[[], Collection[str]]

    @classmethod
    def of(cls, question: Question) -> _Asked:
        items = question.items
        # A decision of an earlier version may have answered all items together.
        by_key = {question_digest(items): items, **{question_digest([item]): [item] for item in items}}
        by_number: dict[int, list[Item]] = {}
        for item in items:
            for number in _decisions_named_in_item(item):
                by_number.setdefault(number, []).append(item)
        return cls(question, by_key, by_number, cache(partial(_files_of, question)))

    def related(self, decision: Decision) -> RelatedDecision | None:
        if decision.project_id != self.question.task.project_id:
            return None
        same = self.items_by_key.get(decision.question_key) if decision.question_key else None
        named = self.items_by_number.get(decision.number)
        items = same or named
        if not items:
            return None
        return RelatedDecision(decision, self.question, items, bool(same), bool(named), self.find_files)


def _decisions_named_in_item(item: Item) -> set[int]:
    texts = [str(item["question"])]
    texts += [f"{one.get('label')} {one.get('description')}" for one in item.get("options") or []]
    return set().union(*map(decisions_named_in, texts))


def _files_of(question: Question) -> frozenset[str]:
    return files_of(question.task) | set(paths_named_in(texts_of(question)))


def only(question: Question, item: Item) -> Question:
    """Return the question as if it had asked this item alone; not to be saved."""
    alone = copy(question)
    alone.items = [dict(item)]
    return alone
