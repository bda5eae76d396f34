"""The card of a question: its form while it is open, else its outcome."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone

from tasks_app.models import Question, QuestionKind
from tasks_app.services.undo import undo_until
from tasks_app.web.forms.answer import CardInput, ItemInput
from tasks_app.web.pages.access import actable_projects, current_user, is_htmx
from tasks_app.web.rendering.evidence import EvidencePane, evidence_of
from tasks_app.web.rendering.words import context, headline

#: Columns and lines of a preview beside the options, in the narrowest card that has two columns.
_BESIDE, _LOW = 40, 9


@dataclass(frozen=True)
class OptionChoice:
    """One option, or “something else” if `own`; `ticked` if it was chosen before a refusal."""

    value: str
    description: str = ""
    preview: str = ""
    ticked: bool = False
    own: bool = False


@dataclass(frozen=True)
class CardItem:
    """One item of a question; its first paragraph is the headline. `name` is that of its fields."""

    question: str
    headline: str
    context: str
    header: str
    name: str
    several: bool
    choices: list[OptionChoice]
    other: str = ""

    @property
    def classes(self) -> str:
        """CSS classes: previews beside the options if no line is cut, else below them."""
        lines = [choice.preview.expandtabs().splitlines() for choice in self.choices]
        widest = max((len(line) for preview in lines for line in preview), default=0)
        if not 0 < widest <= _BESIDE:
            return "item"
        return "item previews-beside" + " previews-tall" * (max(map(len, lines)) > _LOW)


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

    @property
    def undo_seconds(self) -> float:
        """How long the reader can still take the answer back; 0 if not at all."""
        until = undo_until(self.question) if self.may_undo else None
        return max(0.0, (until - timezone.now()).total_seconds()) if until else 0.0

    @property
    def may_take_back(self) -> bool:
        """Whether a decision answered, and the reader may have a human asked instead."""
        return self.may_act and may_take_back(self.question)

    @property
    def may_change(self) -> bool:
        """Whether it is fetched again: an outcome can be taken back until the agent has it."""
        question = self.question
        return not question.is_settled or not (question.delivered_at or question.task.is_ended)

    @property
    def shown(self) -> str:
        """What a page that has the card shows, so that one in use is replaced only by something else."""
        question = self.question
        if not question.is_settled or question.answered_at is None:
            return question.state
        words = [question.state, f"{question.answered_at.timestamp():.3f}"]
        words += ["undo"] * bool(self.undo_seconds) + ["resuming"] * self.may_change
        return "-".join(words)


def card_of(request: HttpRequest, question: Question, **told: Any) -> Card:
    may_undo = question.answered_by_id == current_user(request).pk
    return _card(question, question.task.project_id in actable_projects(request), may_undo=may_undo, **told)


def cards_of(request: HttpRequest, questions: Iterable[Question]) -> list[Card]:
    """Return the cards of many questions, with one query for permissions."""
    actable = actable_projects(request)
    return [_card(question, question.task.project_id in actable) for question in questions]


def show(request: HttpRequest, card: Card, *, status: int = 200) -> HttpResponse:
    """Render the card alone for HTMX, else a page."""
    template = "questions/_card.html" if is_htmx(request) else "questions/page.html"
    return render(request, template, {"card": card}, status=status)


def unknown_cards(request: HttpRequest, cards: list[Card]) -> HttpResponse:
    """Render cards that are not among `?known=N`; 204 if there are none."""
    known = set(request.GET.getlist("known"))
    new = [card for card in cards if str(card.question.pk) not in known]
    if not new:
        return HttpResponse(status=204)
    return render(request, "questions/_cards.html", {"cards": new})


def _card(question: Question, may_act: bool, *, typed: CardInput | None = None, **told: Any) -> Card:
    typed = typed or CardInput.blank(question)
    pairs = zip(question.items, typed.items, strict=True)
    items = [_item(number, *pair) for number, pair in enumerate(pairs)]
    if question.is_open and question.kind == QuestionKind.APPROVAL:  # afterwards its evidence is folded
        items = [replace(item, headline=headline(question.headline_by_evidence)) for item in items]
    return Card(question, may_act, items=items, evidence=evidence_of(question), typed=typed, **told)


def _item(number: int, item: dict[str, Any], typed: ItemInput) -> CardItem:
    question = str(item["question"])
    return CardItem(
        question=question,
        headline=headline(question),
        context=context(question),
        header=str(item.get("header") or ""),
        name=f"item-{number}",
        several=bool(item.get("multiSelect")),
        choices=_choices(item, typed),
        other=typed.other,
    )


def _choices(item: dict[str, Any], typed: ItemInput) -> list[OptionChoice]:
    options = [
        OptionChoice(
            value=str(option.get("label", "")),
            description=str(option.get("description") or ""),
            preview=str(option.get("preview") or ""),
            ticked=str(option.get("label", "")) in typed.chosen,
        )
        for option in item.get("options") or []
    ]
    alone = bool(item.get("multiSelect")) or not typed.chosen
    own = OptionChoice("", ticked=bool(typed.other.strip()) and alone, own=True)
    return [*options, own] if options else []
