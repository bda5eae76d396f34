"""Read an answer from the card's form as a Reply."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any

from django.http import QueryDict

from tasks_app.core.errors import AnswerEmpty, BadAmount, BadInput, CatHerderError
from tasks_app.models import AnswerDraft, Decision, DecisionEventKind, Question
from tasks_app.services.decisions.answering import DecisionInput, Remember, Stance, StanceChoice
from tasks_app.services.decisions.content import joined_paths, split_paths
from tasks_app.services.questions.answers import Reply
from tasks_app.services.questions.earlier_answers import EarlierAnswer
from tasks_app.web.access import number_from

#: What an answer said of a decision, by what the decision's history tells. Paths of a limit are not kept.
_STANCE_OF: dict[str, str] = {
    DecisionEventKind.CONFIRMED: Stance.AGREE,
    DecisionEventKind.SUPERSEDED: Stance.SUPERSEDE,
    DecisionEventKind.EXCEPTION: Stance.EXCEPTION,
}
_STANCE = re.compile(r"stance-([0-9]{1,9})")


class TwoAnswers(BadInput):
    """One answer is possible, and an option and a free text were given. `item` counts from 0."""

    def __init__(self, message: str, *, where: str, item: int) -> None:
        super().__init__(message, where=where)
        self.item = item


@dataclass(frozen=True)
class ItemInput:
    """The input for one item: the chosen options and the free text.

    On a card with several items, `remembered` says whether the answer becomes a decision, and `statement` is
    its text.
    """

    chosen: list[str] = field(default_factory=list)
    other: str = ""
    statement: str = ""
    remembered: bool = False


@dataclass(frozen=True)
class CardInput:
    """The input of a card, unchanged, so that the card can show it again with an error.

    `notes` is also the reason of a denial, the comments on a plan and the remark of a skipped question.
    `verdict` is the value of the button. `remember` and `statement` make the answer a decision; `stances`
    has what it means for decisions that it concerns, each with the paths that were entered, by number.
    """

    items: list[ItemInput]
    notes: str = ""
    verdict: str = ""
    #: The id of the earlier question whose answer was filled in.
    taken_from: str = ""
    remember: str = "task"
    remember_paths: str = ""
    statement: str = ""
    stances: dict[int, tuple[str, str]] = field(default_factory=dict)

    @classmethod
    def blank(cls, question: Question) -> CardInput:
        return cls([ItemInput() for _ in question.items])

    @classmethod
    def from_post(cls, question: Question, data: QueryDict) -> CardInput:
        """Read `item-0` (options), `item-0-other` (free text), …, `notes` and `verdict`."""
        return cls(
            [
                ItemInput(
                    [value for value in data.getlist(f"item-{place}") if value],
                    data.get(f"item-{place}-other", ""),
                    data.get(f"statement-{place}", ""),
                    f"remember-item-{place}" in data,
                )
                for place in range(len(question.items))
            ],
            notes=data.get("notes", ""),
            verdict=data.get("verdict", ""),
            taken_from=data.get("taken_from", ""),
            remember=data.get("remember", "") or "task",
            remember_paths=data.get("remember-paths", ""),
            statement=data.get("statement", ""),
            stances={
                int(found[1]): (str(data[name]), data.get(f"{name}-paths", ""))
                for name in data
                if (found := _STANCE.fullmatch(name)) and data[name]
            },
        )

    @classmethod
    def from_outcome(cls, question: Question) -> CardInput:
        """Return what has to be entered to give the question's answer again, with what it decided."""
        made: dict[str, Decision] = {}
        for decision in Decision.objects.filter(question=question).order_by("number"):
            for asked in decision.answers:
                made.setdefault(asked, decision)
        items = []
        for item in question.items:
            entered = _entered(item, question.answers)
            if one := made.get(str(item["question"])):
                entered = replace(entered, statement=one.statement, remembered=True)
            items.append(entered)
        said = question.decision_events.filter(kind__in=list(_STANCE_OF)).select_related("decision")
        stances = {event.decision.number: (_STANCE_OF[event.kind], "") for event in said}
        card = cls(items, notes=question.notes, stances=stances)
        if not made:
            return card
        first = next(iter(made.values()))
        if len(items) == 1:
            card = replace(card, statement=first.statement)
        return replace(card, remember=first.scope, remember_paths=joined_paths(first.paths))

    @classmethod
    def from_earlier(cls, question: Question, *earlier: EarlierAnswer) -> CardInput:
        """Return what has to be entered to give earlier answers, of one question, to items of this one."""
        answers = {asked: answer for one in earlier for asked, answer in one.answers.items()}
        entered = [_entered(item, answers) for item in question.items]
        notes, source = earlier[0].notes_for(question), earlier[0].question
        return cls(entered, notes=notes, taken_from=str(source.pk))

    @classmethod
    def from_draft(cls, draft: AnswerDraft) -> CardInput:
        """Return what its user has replied to items of the question in forms of a program."""
        entered = [_entered(item, draft.answers) for item in draft.question.items]
        return cls(entered, notes=draft.notes)

    @property
    def text(self) -> str:
        """Everything that was entered as one text, to be copied."""
        parts = [part for item in self.items for part in (*item.chosen, item.other)]
        return "\n".join(part for part in (*parts, self.notes) if part.strip())

    def place_of(self, error: CatHerderError) -> str:
        """Return the field that the error is about: `notes`, `item-0`, …, or "" for the whole card."""
        if isinstance(error, TwoAnswers):
            return f"item-{error.item}"
        if isinstance(error, BadAmount):
            return "item-0"
        if isinstance(error, BadInput) and error.where.partition(".")[0] == "remember":
            return "remember"
        if isinstance(error, BadInput) and error.where.startswith("decisions"):
            return "decisions"
        if not isinstance(error, AnswerEmpty):
            return ""
        if error.where == "notes":
            return "notes"
        empty = (n for n, item in enumerate(self.items) if not item.chosen and not item.other.strip())
        return f"item-{next(empty, 0)}"

    def reply(self, question: Question) -> Reply:
        """Raises TwoAnswers if one answer is possible, and an option and a free text were given."""
        answers = {}
        for number, (item, given) in enumerate(zip(question.items, self.items, strict=True)):
            if len(given.chosen) + bool(given.other.strip()) > 1 and not item.get("multiSelect"):
                raise TwoAnswers(
                    f"Only one answer is possible, but “{given.chosen[0]}” is chosen and there is text under "
                    "“Something else”. Clear the text, choose “Something else”, or use the notes.",
                    where=str(item["question"]) if len(question.items) > 1 else "",
                    item=number,
                )
            parts = [*given.chosen]
            if given.other.strip():
                parts.append(given.other)
            answers[str(item["question"])] = ", ".join(parts)
        taken_from, said = number_from(self.taken_from), self._decision_input(question)
        return Reply(answers, self.notes, taken_from=taken_from, decision_input=said)

    def _decision_input(self, question: Question) -> DecisionInput:
        remember = Remember(self.remember, paths=split_paths(self.remember_paths))
        stances = {
            number: StanceChoice(said, split_paths(paths)) for number, (said, paths) in self.stances.items()
        }
        if len(question.items) == 1:
            return DecisionInput(replace(remember, statement=self.statement), stances)
        if remember.makes_decision and not any(given.remembered for given in self.items):
            raise BadInput("choose at least one answer that holds for later tasks", where="remember.items")
        by_item = {
            # Also of one that is not remembered: it may replace a decision.
            str(item["question"]): replace(
                remember if given.remembered else Remember(), statement=given.statement
            )
            for item, given in zip(question.items, self.items, strict=True)
        }
        return DecisionInput(stances=stances, by_item=by_item)


def _entered(item: dict[str, Any], answers: dict[str, str]) -> ItemInput:
    """Return the options and the free text of which an answer was made (see `CardInput.reply`)."""
    answer = answers.get(str(item["question"]), "")
    labels = [str(option.get("label", "")) for option in item.get("options") or []]
    if answer in labels:
        return ItemInput([answer])
    if not item.get("multiSelect"):
        return ItemInput([], answer)
    parts = answer.split(", ")
    chosen = [part for part in parts if part in labels]
    return ItemInput(chosen, ", ".join(part for part in parts if part not in labels))
