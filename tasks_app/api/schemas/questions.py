"""What is taken as an answer, and pages of questions."""

from __future__ import annotations

from ninja import Schema
from pydantic import Field

from tasks_app.api.schemas.base import Input, Problem
from tasks_app.core.errors import BadInput
from tasks_app.models import Question, Verdict
from tasks_app.reporting.schemas.questions import QuestionOut
from tasks_app.services.answers import Reply


class QuestionPage(Schema):
    items: list[QuestionOut] = Field(description="Questions.")
    next: str | None = Field(description="The address of the next page; null on the last.")


class AnswerIn(Input):
    """Either `answer` or `answers`. Choices are named by their label; several of them as a list."""

    answer: str | list[str] | None = Field(
        None, description="The answer to a question that has one item.", examples=["Half up"]
    )
    answers: dict[str, str | list[str]] | None = Field(
        None, description="The answers to all items: each item's question with its answer."
    )
    notes: str = Field("", description="What the agent should know besides.")

    def reply(self, question: Question) -> Reply:
        """Raise BadInput unless there is exactly one of `answer` and `answers`."""
        if (self.answer is None) == (self.answers is None):
            raise BadInput('send {"answer": "…"} or {"answers": {question: "…"}}', where="answer")
        answers = {question.headline: self.answer or ""} if self.answers is None else self.answers
        return Reply({asked: _joined(given) for asked, given in answers.items()}, self.notes)


def _joined(given: str | list[str]) -> str:
    """Return several choices as one text, as the agent expects them."""
    return given if isinstance(given, str) else ", ".join(given)


class Dismissal(Input):
    """No answer: the agent is to decide by itself and to say what it assumed."""

    notes: str = Field("", description="What the agent should know besides.", examples=["Either is fine."])


class Decision(Input):
    """What is decided about a tool call or a plan."""

    verdict: Verdict = Field(
        description="`approved`; or `denied` for a tool call, `sent_back` for a plan.", examples=["denied"]
    )
    notes: str = Field(
        "",
        description="Why it is denied, or what is to change in the plan; may be empty if it is approved.",
        examples=["Not on the production database."],
    )


class NotOpenProblem(Problem):
    """Why there is no answer to be given; `question` has by whom, when and what."""

    question: QuestionOut | None = Field(None, description="The question as it is now.")
