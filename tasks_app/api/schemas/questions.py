"""What is taken as an answer, and pages of questions."""

from __future__ import annotations

from ninja import Schema
from pydantic import Field

from tasks_app.api.schemas.base import Input, Problem
from tasks_app.models import Verdict
from tasks_app.reporting.schemas.questions import QuestionOut


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
