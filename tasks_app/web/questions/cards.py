"""The cards of questions, plans and approvals, with their evidence."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from itertools import count, repeat
from typing import Any

from django.db.models import prefetch_related_objects
from django.http import HttpRequest, HttpResponse
from django.utils import timezone

from tasks_app.core.asked_items import (
    QuestionParts,
    chosen_options,
    parts_of_question,
    sentence_asked,
    without_recommended,
    without_remarks,
)
from tasks_app.core.phases import Phase
from tasks_app.history.events.calls import failed_approvals
from tasks_app.models import Question, QuestionKind
from tasks_app.services.decisions.answering import DecidedByItem, decided_by_answers
from tasks_app.services.decisions.citing import RelatedDecision, related_decisions_of_each
from tasks_app.services.questions.answers import may_take_back, undo_until
from tasks_app.services.questions.approvals import changed_since, equal_calls, origin_of_rule
from tasks_app.services.questions.drafts import drafts_of
from tasks_app.services.questions.earlier_answers import EarlierAnswer, find_similar_answers
from tasks_app.services.working_hours import WITH_SCHEDULE
from tasks_app.web.access import actable_projects, current_user, render_part_or_page
from tasks_app.web.questions.answer_form import CardInput, ItemInput
from tasks_app.web.rendering.diff import DiffLine, LineKind

_KEEP = 60_000
_KEEP_LINES = 1_500
#: Lines that a pane on a card has room for.
_PANE = 24
_KINDS = ("command", "file", "diff", "markdown", "rule")

#: Related rows of who is asked, with the hours in which they work, and of the ladder.
WHO_IS_ASKED = (*(f"asked__user__{one}" for one in WITH_SCHEDULE), "asked__by", "rungs")
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

    @property
    def rule(self) -> str:
        """The description as it becomes part of that statement."""
        return without_remarks(self.description)


@dataclass(frozen=True)
class CardItem:
    """One item of a question. `name` is that of its fields."""

    question: str
    parts: QuestionParts
    header: str
    #: With what a statement begins whose answer says nothing alone.
    asked: str
    name: str
    several: bool
    choices: list[OptionChoice]
    other: str = ""
    #: The chosen options with what they mean.
    chosen: list[tuple[str, str]] = field(default_factory=list)
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
        if max(map(len, lines)) > _LOW:
            return "item previews-beside previews-tall"
        return "item previews-beside"


@dataclass(frozen=True)
class EarlierEntry:
    """An earlier answer on the card. The button fills in `entered`, for the script, by item, and `notes`."""

    found: EarlierAnswer
    entered: str
    notes: str
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
    #: Equal calls that were approved with it just now.
    approved_too: tuple[int, ...] = ()
    #: Whether its answer may have made or changed decisions.
    changes_decisions: bool = True
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
    def equal_calls(self) -> int:
        """The number of other open approvals of the task that are about the same call."""
        question = self.question
        if not (self.may_act and question.is_open and self.more_open):
            return 0
        return len(equal_calls(question))

    @cached_property
    def rule_origin(self) -> str:
        """Where the rule stands because of which it is asked."""
        return origin_of_rule(self.question)

    @property
    def takes_back_too(self) -> str:
        """The ids of the calls that were approved with it, with commas between them."""
        return ",".join(map(str, self.approved_too))

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
        """The lines in which a plan differs from the one that was decided before."""
        if self.question.revises is None:
            return []
        return diff_lines("\n".join(changed_since(self.question.revises, self.question)))[:_KEEP_LINES]

    @cached_property
    def decided(self) -> DecidedByItem:
        """The decisions that the answers made or changed, each with a label, by the item's question.

        Looked up when it is rendered.
        """
        if not self.changes_decisions:
            return {}
        return decided_by_answers([self.question]).get(self.question.pk, {})

    @cached_property
    def call_failed(self) -> bool:
        """Whether the approved call was made and failed; looked up when it is rendered."""
        return bool(failed_approvals([self.question]))

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
        words += ["handed-in"] * bool(question.handed_in_id and self.may_change)
        words += [f"{self.more_open}-more"] * bool(self.more_open)
        return "-".join(words)


def card_of(
    request: HttpRequest,
    question: Question,
    *,
    may_act: bool | None = None,
    typed: CardInput | None = None,
    **options: Any,
) -> Card:
    """Return the card of a question.

    `may_act`: of a user who has just answered it. `typed`: what its form shows; by default what the reader
    replied elsewhere.
    """
    may_undo = question.answered_by_id == current_user(request).pk
    if may_act is None:
        may_act = question.task.project_id in actable_projects(request)
    typed = typed or _drafts(request, [question]).get(question.pk)
    prefetch_related_objects([question], *WHO_IS_ASKED)
    return _card(question, may_act, may_undo=may_undo, typed=typed, **_finders([question]), **options)


def cards_of(request: HttpRequest, questions: Iterable[Question]) -> list[Card]:
    """Return the cards of many questions, with one query for permissions and one for decisions."""
    actable, questions = actable_projects(request), list(questions)
    prefetch_related_objects(questions, *WHO_IS_ASKED)
    finders, drafts = _finders(questions), _drafts(request, questions)
    return [
        _card(
            question,
            question.task.project_id in actable,
            typed=drafts.get(question.pk),
            shows_earlier_answers=place < _WITH_EARLIER,
            **finders,
        )
        for place, question in enumerate(questions)
    ]


def _drafts(request: HttpRequest, questions: list[Question]) -> dict[int, CardInput]:
    """Return what the reader replied to items of open questions in forms of their program."""
    asked = [question for question in questions if question.is_open and len(question.items) > 1]
    drafts = drafts_of(asked, current_user(request))
    return {question_id: CardInput.from_draft(draft) for question_id, draft in drafts.items()}


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
    entered = CardInput.from_earlier(card.question, earlier)
    places = {
        place: {"chosen": given.chosen, "other": given.other}
        for place, (item, given) in enumerate(zip(card.question.items, entered.items, strict=True))
        if str(item["question"]) in earlier.answers
    }
    filled_in = str(earlier.question.pk) == card.typed.taken_from
    return EarlierEntry(earlier, json.dumps(places), entered.notes, filled_in)


def show(request: HttpRequest, card: Card, *, status: int = 200) -> HttpResponse:
    """Render the card alone for HTMX, else a page."""
    part, page = "questions/_card.html", "questions/page.html"
    return render_part_or_page(request, part, page, {"card": card}, status=status)


def _card(question: Question, may_act: bool, *, typed: CardInput | None = None, **options: Any) -> Card:
    typed = typed or CardInput.blank(question)
    pairs = zip(question.items, typed.items, strict=True)
    items = [_item(question, number, *pair) for number, pair in enumerate(pairs)]
    if question.is_open and question.kind == QuestionKind.APPROVAL:  # afterwards its evidence is folded
        asked = parts_of_question(question.headline_by_evidence)
        items = [replace(item, parts=asked) for item in items]
    return Card(question, may_act, items=items, evidence=evidence_of(question), typed=typed, **options)


def _item(question: Question, number: int, item: dict[str, Any], typed: ItemInput) -> CardItem:
    asked = str(item["question"])
    return CardItem(
        question=asked,
        parts=parts_of_question(asked),
        header=str(item.get("header") or ""),
        asked=sentence_asked(item),
        name=f"item-{number}",
        several=bool(item.get("multiSelect")),
        choices=_choices(item, typed),
        other=typed.other,
        chosen=[one for one in chosen_options(item, question.answers.get(asked, "")) if one[1]],
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
