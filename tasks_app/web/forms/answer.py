"""An answer as it arrives, from the card's form or as JSON, turned into a Reply."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from django.http import QueryDict

from tasks_app.core.errors import BadInput
from tasks_app.models import Question
from tasks_app.services.answers import Reply


@dataclass(frozen=True)
class TypedItem:
    """What was entered for one item: the choices made and the free text beside them."""

    chosen: list[str] = field(default_factory=list)
    other: str = ""


@dataclass(frozen=True)
class Typed:
    """What was entered in a card, as it was entered, so that a refusal can show it again.

    `why` is the remark of somebody who gives no answer, `reason` that of somebody who denies or sends back.
    """

    items: list[TypedItem]
    notes: str = ""
    why: str = ""
    reason: str = ""

    @classmethod
    def blank(cls, question: Question) -> Typed:
        return cls([TypedItem() for _ in question.items])

    @classmethod
    def of(cls, question: Question, data: QueryDict) -> Typed:
        """Read from `item-0` (choices), `item-0-other` (free text), …, `notes`, `why` and `reason`."""
        return cls(
            [
                TypedItem(
                    [value for value in data.getlist(f"item-{place}") if value],
                    data.get(f"item-{place}-other", ""),
                )
                for place in range(len(question.items))
            ],
            *(data.get(name, "") for name in ("notes", "why", "reason")),
        )

    @property
    def text(self) -> str:
        """All of it as one text, to be copied."""
        parts = [part for item in self.items for part in (*item.chosen, item.other) if part.strip()]
        remarks = [text for text in (self.notes, self.why, self.reason) if text.strip()]
        return "\n".join([*parts, *remarks])

    def reply(self, question: Question) -> Reply:
        """Raises BadInput where a single choice and a text of one's own contradict each other."""
        answers = {}
        for item, typed in zip(question.items, self.items, strict=True):
            if len(typed.chosen) + bool(typed.other.strip()) > 1 and not item.get("multiSelect"):
                raise BadInput(
                    f"Only one answer is possible, but “{typed.chosen[0]}” is chosen and there is text under "
                    "“Something else”. Clear the text, choose “Something else”, or use the notes.",
                    where=str(item["question"]) if len(question.items) > 1 else "",
                )
            parts = [*typed.chosen, typed.other] if typed.other.strip() else typed.chosen
            answers[str(item["question"])] = ", ".join(parts)
        return Reply(answers, self.notes)


def reply_from_json(question: Question, body: bytes) -> Reply:
    """Read `{"answer": "text"}` or `{"answers": {question: text}, "notes": "text"}`.

    Raises BadInput that says which part cannot be read.
    """
    return reply_from(question, _read(body, where="answer"))


def reply_from(question: Question, data: Any) -> Reply:
    """The same from what the JSON stands for."""
    if not isinstance(data, dict) or ("answer" in data) == ("answers" in data):
        raise BadInput('send {"answer": "…"} or {"answers": {question: "…"}}', where="answer")
    notes = _text(data.get("notes", ""), where="notes")
    if "answer" in data:
        return Reply({question.headline: _text(data["answer"], where="answer")}, notes)
    return Reply(_answers(question, data["answers"]), notes)


def fields_from_json(body: bytes, *names: str) -> dict[str, str]:
    """Read an object with some of these texts; what is not there is empty. Raises BadInput."""
    data = _read(body, where=names[0]) if body.strip() else {}
    if not isinstance(data, dict):
        raise BadInput("send an object", where=names[0])
    if unknown := next((name for name in data if name not in names), None):
        raise BadInput(f"“{unknown}” is not known here; there is {', '.join(names)}", where=names[0])
    return {name: _text(data.get(name, ""), where=name) for name in names}


def _read(body: bytes, *, where: str) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"the body is not JSON ({error})", where=where) from error


def _answers(question: Question, given: Any) -> dict[str, str]:
    if not isinstance(given, dict):
        raise BadInput("must be an object of questions with their answers", where="answers")
    asked = {str(item["question"]) for item in question.items}
    if unknown := next((name for name in given if name not in asked), None):
        raise BadInput(f"question {question.number} does not ask “{unknown}”", where="answers")
    return {name: _text(value, where=f"answers: {name}") for name, value in given.items()}


def _text(value: Any, *, where: str) -> str:
    """A text, or a list of choices as the agent expects them: joined by commas."""
    if isinstance(value, list) and all(isinstance(part, str) for part in value):
        return ", ".join(value)
    if not isinstance(value, str):
        raise BadInput("must be a text", where=where)
    return value
