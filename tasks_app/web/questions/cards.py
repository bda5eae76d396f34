"""The cards of questions, plans and approvals, with their evidence."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from itertools import count, repeat
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone

from tasks_app.core.asked_items import QuestionParts, parts_of_question, without_recommended
from tasks_app.core.phases import Phase
from tasks_app.models import Decision, Question, QuestionKind
from tasks_app.services.decisions.answering import decided_by_answer
from tasks_app.services.decisions.citing import RelatedDecision, related_decisions_of_each
from tasks_app.services.questions.answers import may_take_back, undo_until
from tasks_app.services.questions.earlier_answers import EarlierAnswer, find_similar_answers
from tasks_app.web.access import actable_projects, current_user, render_part_or_page
from tasks_app.web.questions.answer_form import CardInput, ItemInput
from tasks_app.web.rendering.diff import DiffLine, LineKind

_KEEP = 60_000
_KEEP_LINES = 1_500
#: Lines of two plans together that are compared.
_MOST_COMPARED = 4_000
#: Lines that a pane on a card has room for.
_PANE = 24
_KINDS = ("command", "file", "diff", "markdown", "rule")

#: Only before a file's first hunk: inside one, `--- x` is the line `-- x`, taken away.
_HEADER = re.compile(r"(index|---|\+\+\+|(new|deleted) file|(old|new) mode|similarity|rename) ")
#: Of the first lines of a hunk. The diff of a text whose place in a file is not known has none.
_NUMBERS = re.compile(r"@@ -([0-9]+)\S* \+([0-9]+)")


@dataclass(frozen=True)
class EvidencePane:
    """One piece of evidence. `lines`: of a diff; `cut`: number of characters that are not shown."""

    kind: str
    title: str
    text: str
    lines: list[DiffLine] = field(default_factory=list)
    cut: int = 0

    @property
    def is_long(self) -> bool:
        """Return whether it does not fit into its box; a plan is shown without a box."""
        return self.kind != "markdown" and self.text.count("\n") > _PANE


def changed_since(earlier: Question, question: Question) -> list[DiffLine]:
    """Return the lines of a plan that differ from an earlier plan, with some around them."""
    old, new = (_plan_of(one).split("\n") for one in (earlier, question))
    if len(old) + len(new) > _MOST_COMPARED:  # difflib's time grows with the square of the length
        return []
    return diff_lines("\n".join(list(difflib.unified_diff(old, new, lineterm=""))[2:]))[:_KEEP_LINES]


def _plan_of(question: Question) -> str:
    return next((str(one.get("text", "")) for one in question.evidence if one.get("kind") == "markdown"), "")


def evidence_of(question: Question) -> list[EvidencePane]:
    return [_pane(one) for one in question.evidence if isinstance(one, dict)]


def _pane(given: dict[str, Any]) -> EvidencePane:
    kind, kept = str(given.get("kind", "")), str(given.get("text", ""))
    lines: list[DiffLine] = []
    cut = 0
    if kind not in _KINDS:
        kind = "text"
    if kind != "markdown":  # a plan is approved as a whole, so it is shown as a whole
        cut = max(0, len(kept) - _KEEP)
        kept = kept[:_KEEP]
    if kind == "diff":
        lines = diff_lines(kept)
        cut += sum(len(line.text) + 1 for line in lines[_KEEP_LINES:])
    return EvidencePane(kind, str(given.get("title", "")), kept, lines[:_KEEP_LINES], cut)


def diff_lines(text: str) -> list[DiffLine]:
    """Return the lines of a diff with kinds and, if its hunks have them, numbers; without file headers."""
    kinds: dict[str, LineKind] = {"+": "add", "-": "del"}
    lines = []
    in_header = True
    old: Iterator[int | None] = repeat(None)
    new: Iterator[int | None] = repeat(None)
    for line in text.splitlines():
        in_header = line.startswith("diff --git ") or (in_header and bool(_HEADER.match(line)))
        if in_header:
            continue
        kind = kinds.get(line[:1], "same")
        if line.startswith("@@"):
            lines.append(DiffLine("hunk", line.rpartition("@@")[2].strip()))
            begins = _NUMBERS.match(line)
            old, new = (
                (count(int(begins[1])), count(int(begins[2]))) if begins else (repeat(None), repeat(None))
            )
        else:
            numbers = next(old) if kind != "add" else None, next(new) if kind != "del" else None
            lines.append(DiffLine(kind, line[1:], *numbers))
    return lines


#: Columns and lines of a preview beside the options, in the narrowest card that has two columns.
_BESIDE, _LOW = 40, 9
#: Cards of a list that show earlier answers. The others show them on pages of their own.
_WITH_EARLIER = 2


@dataclass(frozen=True)
class OptionChoice:
    """One option, or “something else” if `own`; `ticked` if it was chosen before a refusal."""

    value: str
    description: str = ""
    preview: str = ""
    ticked: bool = False
    own: bool = False

    @property
    def plain_label(self) -> str:
        """The label without “(Recommended)”, for the statement of a decision."""
        return without_recommended(self.value).strip()


@dataclass(frozen=True)
class CardItem:
    """One item of a question. `name` is that of its fields."""

    question: str
    parts: QuestionParts
    header: str
    name: str
    several: bool
    choices: list[OptionChoice]
    other: str = ""
    #: Of the decision that its answer becomes, if the card has several items.
    statement: str = ""
    remembered: bool = False

    @property
    def classes(self) -> str:
        """CSS classes: previews beside the options if no line is cut, else below them."""
        lines = [choice.preview.expandtabs().splitlines() for choice in self.choices]
        widest = max((len(line) for preview in lines for line in preview), default=0)
        if not 0 < widest <= _BESIDE:
            return "item"
        return "item previews-beside" + " previews-tall" * (max(map(len, lines)) > _LOW)


@dataclass(frozen=True)
class EarlierEntry:
    """An earlier answer on the card. `entered`: what the button fills in, for the script, by item."""

    found: EarlierAnswer
    entered: str
    filled_in: bool = False


@dataclass(frozen=True)
class Card:
    """A question's card. `kept`: input that can no longer be sent.

    `message`: why an answer was refused; `place`: the field that it is about, or "" for the whole card.
    """

    question: Question
    may_act: bool
    may_undo: bool = False
    items: list[CardItem] = field(default_factory=list)
    evidence: list[EvidencePane] = field(default_factory=list)
    typed: CardInput = field(default_factory=lambda: CardInput([]))
    message: str = ""
    place: str = ""
    kept: str = ""
    repeated: bool = False
    not_undone: str = ""
    shows_earlier_answers: bool = True
    find_related_decisions: Callable[[], dict[int, list[RelatedDecision]]] = dict
    count_open: Callable[[], dict[int, int]] = dict

    @property
    def has_options(self) -> bool:
        return any(item.choices for item in self.items)

    @property
    def is_one_text(self) -> bool:
        """Return whether it is answered by one free text, beside which notes would be a second such field."""
        return len(self.items) == 1 and self.question.takes_answer and not self.has_options

    @cached_property
    def earlier(self) -> dict[str, list[EarlierEntry]]:
        """The nearest earlier answers by the item's question, looked up only when the card is rendered."""
        found: dict[str, list[EarlierEntry]] = {}
        if self.shows_earlier_answers and self.may_act and self.question.is_open:
            for one in find_similar_answers(self.question):
                for asked in one.answers:
                    found.setdefault(asked, []).append(_entry(self, one))
        return found

    @cached_property
    def more_open(self) -> int:
        """The number of other open questions of the task, for which its agent waits too."""
        question = self.question
        if not self.may_change or question.step.phase != Phase.WAITING_FOR_INPUT:
            return 0
        return self.count_open().get(question.task_id, 0) - question.is_open

    @cached_property
    def related_decisions(self) -> list[RelatedDecision]:
        """The decisions that the question concerns, those that must be judged first; looked up only when an
        open card is rendered."""
        if not _may_decide(self.question):
            return []
        found = self.find_related_decisions().get(self.question.pk, [])
        return sorted(found, key=lambda one: not one.must_be_judged)

    @cached_property
    def changed_lines(self) -> list[DiffLine]:
        """The lines in which a revised plan differs from the one that was sent back."""
        if self.question.revises is None:
            return []
        return changed_since(self.question.revises, self.question)

    @cached_property
    def decided(self) -> list[tuple[str, Decision]]:
        """The decisions that the answer made or changed, each with a label; looked up when it is rendered."""
        return decided_by_answer(self.question)

    @property
    def title_id(self) -> str:
        return f"question-{self.question.pk}-title"

    @property
    def undo_seconds(self) -> float:
        """Seconds for which the reader can still take the answer back."""
        if not self.may_undo or not (until := undo_until(self.question)):
            return 0.0
        return max(0.0, (until - timezone.now()).total_seconds())

    @property
    def may_take_back(self) -> bool:
        """Return whether a decision answered, and the reader may have a human asked instead."""
        return self.may_act and may_take_back(self.question)

    @property
    def may_change(self) -> bool:
        """Return whether it is fetched again: an outcome can be taken back until the agent has it."""
        question = self.question
        return not question.is_settled or not (question.delivered_at or question.task.is_ended)

    @property
    def shown(self) -> str:
        """A fingerprint of the card as shown: the page replaces a card only if it differs."""
        question = self.question
        if not question.is_settled or question.answered_at is None:
            return question.state
        words = [question.state, f"{question.answered_at.timestamp():.3f}"]
        words += ["taken-back"] * bool(question.taken_back_at)
        words += ["undo"] * (bool(self.undo_seconds) or self.may_take_back) + ["resuming"] * self.may_change
        words += [f"{self.more_open}-more"] * bool(self.more_open)
        return "-".join(words)


def card_of(request: HttpRequest, question: Question, **options: Any) -> Card:
    may_undo = question.answered_by_id == current_user(request).pk
    may_act = question.task.project_id in actable_projects(request)
    return _card(question, may_act, may_undo=may_undo, **_finders([question]), **options)


def cards_of(request: HttpRequest, questions: Iterable[Question]) -> list[Card]:
    """Return the cards of many questions, with one query for permissions and one for decisions."""
    actable, questions = actable_projects(request), list(questions)
    finders = _finders(questions)
    return [
        _card(
            question,
            question.task.project_id in actable,
            shows_earlier_answers=place < _WITH_EARLIER,
            **finders,
        )
        for place, question in enumerate(questions)
    ]


def _finders(questions: list[Question]) -> dict[str, Any]:
    """Return functions that look up what cards need for all of the questions, once, when it is needed."""
    asked = [question for question in questions if _may_decide(question)]
    tasks = {question.task_id for question in questions}
    return {
        "find_related_decisions": cache(partial(related_decisions_of_each, asked)),
        "count_open": cache(partial(Question.objects.count_open_by_task, tasks)),
    }


def _may_decide(question: Question) -> bool:
    return question.is_open and question.kind == QuestionKind.CLARIFICATION


def filled_in(question: Question, earlier_id: str) -> CardInput | None:
    """Return the answer to the same question of an earlier one, if the card shows it."""
    if not earlier_id or not question.is_open:
        return None
    shown = find_similar_answers(question)
    found = [one for one in shown if one.same and str(one.question.pk) == earlier_id]
    return CardInput.from_earlier(question, *found) if found else None


def _entry(card: Card, earlier: EarlierAnswer) -> EarlierEntry:
    entered = CardInput.from_earlier(card.question, earlier).items
    places = {
        place: {"chosen": given.chosen, "other": given.other}
        for place, (item, given) in enumerate(zip(card.question.items, entered, strict=True))
        if str(item["question"]) in earlier.answers
    }
    return EarlierEntry(earlier, json.dumps(places), str(earlier.question.pk) == card.typed.taken_from)


def show(request: HttpRequest, card: Card, *, status: int = 200) -> HttpResponse:
    """Render the card alone for HTMX, else a page."""
    part, page = "questions/_card.html", "questions/page.html"
    return render_part_or_page(request, part, page, {"card": card}, status=status)


def unknown_cards(request: HttpRequest, cards: list[Card]) -> HttpResponse:
    """Render cards that are not among `?known=N`; 204 if there are none."""
    known = set(request.GET.getlist("known"))
    new = [card for card in cards if str(card.question.pk) not in known]
    if not new:
        return HttpResponse(status=204)
    return render(request, "questions/_cards.html", {"cards": new})


def _card(question: Question, may_act: bool, *, typed: CardInput | None = None, **options: Any) -> Card:
    typed = typed or CardInput.blank(question)
    pairs = zip(question.items, typed.items, strict=True)
    items = [_item(number, *pair) for number, pair in enumerate(pairs)]
    if question.is_open and question.kind == QuestionKind.APPROVAL:  # afterwards its evidence is folded
        asked = parts_of_question(question.headline_by_evidence)
        items = [replace(item, parts=asked) for item in items]
    return Card(question, may_act, items=items, evidence=evidence_of(question), typed=typed, **options)


def _item(number: int, item: dict[str, Any], typed: ItemInput) -> CardItem:
    question = str(item["question"])
    return CardItem(
        question=question,
        parts=parts_of_question(question),
        header=str(item.get("header") or ""),
        name=f"item-{number}",
        several=bool(item.get("multiSelect")),
        choices=_choices(item, typed),
        other=typed.other,
        statement=typed.statement,
        remembered=typed.remembered,
    )


def _choices(item: dict[str, Any], typed: ItemInput) -> list[OptionChoice]:
    if not item.get("options"):
        return []
    options = [
        OptionChoice(
            value=str(option.get("label", "")),
            description=str(option.get("description") or ""),
            preview=str(option.get("preview") or ""),
            ticked=str(option.get("label", "")) in typed.chosen,
        )
        for option in item["options"]
    ]
    alone = bool(item.get("multiSelect")) or not typed.chosen
    own = OptionChoice("", ticked=bool(typed.other.strip()) and alone, own=True)
    return [*options, own]
