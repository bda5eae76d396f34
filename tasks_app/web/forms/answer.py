"""Read an answer from the card's form, or from JSON, as a Reply."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

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


def reply_from_json(question: Question, body: bytes) -> Reply:
    """Read `{"answer": "text"}` or `{"answers": {question: text}, "notes": "text"}`.

    Raises BadInput that names the part that cannot be read.
    """
    return reply_from_data(question, _parse_json(body, where="answer"))


def reply_from_data(question: Question, data: Any) -> Reply:
    """As `reply_from_json`, from parsed JSON."""
    if not isinstance(data, dict) or ("answer" in data) == ("answers" in data):
        raise BadInput('send {"answer": "…"} or {"answers": {question: "…"}}', where="answer")
    notes = _read_text(data.get("notes", ""), where="notes")
    if "answer" in data:
        return Reply({question.headline: _read_text(data["answer"], where="answer")}, notes)
    return Reply(_read_answers(question, data["answers"]), notes)


def fields_from_json(body: bytes, *names: str) -> dict[str, str]:
    """Read an object with these texts; missing ones are empty. Raises BadInput."""
    data = _parse_json(body, where=names[0]) if body.strip() else {}
    if not isinstance(data, dict):
        raise BadInput("send an object", where=names[0])
    if unknown := next((name for name in data if name not in names), None):
        raise BadInput(f"“{unknown}” is unknown; the known keys are {', '.join(names)}", where=names[0])
    return {name: _read_text(data.get(name, ""), where=name) for name in names}


def _parse_json(body: bytes, *, where: str) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"the body is not JSON ({error})", where=where) from error


def _read_answers(question: Question, given: Any) -> dict[str, str]:
    if not isinstance(given, dict):
        raise BadInput("must be an object of questions with their answers", where="answers")
    asked = {str(item["question"]) for item in question.items}
    if unknown := next((name for name in given if name not in asked), None):
        raise BadInput(f"question {question.number} does not ask “{unknown}”", where="answers")
    return {name: _read_text(value, where=f"answers: {name}") for name, value in given.items()}


def _read_text(value: Any, *, where: str) -> str:
    """Return a text, or a list of options joined by commas, as the agent expects them."""
    if isinstance(value, list) and all(isinstance(part, str) for part in value):
        return ", ".join(value)
    if not isinstance(value, str):
        raise BadInput("must be a text", where=where)
    return value
