"""Read an answer from the card's form as a Reply."""

from __future__ import annotations

from dataclasses import dataclass, field

from django.http import QueryDict

from tasks_app.core.errors import BadInput
from tasks_app.models import Question
from tasks_app.services.answers import Reply


@dataclass(frozen=True)
class ItemInput:
    """What was entered for one item: the chosen options and the free text."""

    chosen: list[str] = field(default_factory=list)
    other: str = ""


@dataclass(frozen=True)
class CardInput:
    """What was entered in a card, unchanged, so that the card can show it again with an error.

    `remark` belongs to a skipped question, `reason` to a denied call or a plan that is sent back.
    """

    items: list[ItemInput]
    notes: str = ""
    remark: str = ""
    reason: str = ""

    @classmethod
    def blank(cls, question: Question) -> CardInput:
        return cls([ItemInput() for _ in question.items])

    @classmethod
    def from_post(cls, question: Question, data: QueryDict) -> CardInput:
        """Read `item-0` (options), `item-0-other` (free text), …, `notes`, `remark` and `reason`."""
        return cls(
            [
                ItemInput(
                    [value for value in data.getlist(f"item-{place}") if value],
                    data.get(f"item-{place}-other", ""),
                )
                for place in range(len(question.items))
            ],
            *(data.get(name, "") for name in ("notes", "remark", "reason")),
        )

    @property
    def text(self) -> str:
        """Everything that was entered as one text, to be copied."""
        parts = [part for item in self.items for part in (*item.chosen, item.other) if part.strip()]
        comments = [text for text in (self.notes, self.remark, self.reason) if text.strip()]
        return "\n".join([*parts, *comments])

    def reply(self, question: Question) -> Reply:
        """Raises BadInput if one answer is possible, and an option and a free text were given."""
        answers = {}
        for item, given in zip(question.items, self.items, strict=True):
            if len(given.chosen) + bool(given.other.strip()) > 1 and not item.get("multiSelect"):
                raise BadInput(
                    f"Only one answer is possible, but “{given.chosen[0]}” is chosen and there is text under "
                    "“Something else”. Clear the text, choose “Something else”, or use the notes.",
                    where=str(item["question"]) if len(question.items) > 1 else "",
                )
            parts = [*given.chosen, given.other] if given.other.strip() else given.chosen
            answers[str(item["question"])] = ", ".join(parts)
        return Reply(answers, self.notes)
