"""Input schemas as an answer, and pages of questions."""

from __future__ import annotations

from ninja import Schema
from pydantic import Field

from tasks_app.api.schemas.base import Input, Number, Problem
from tasks_app.api.schemas.decisions import RememberIn, StanceIn
from tasks_app.core.errors import BadInput
from tasks_app.models import Question, Verdict
from tasks_app.reporting.schemas.questions import QuestionOut
from tasks_app.services.decisions.answering import DecisionInput, Remember
from tasks_app.services.questions.answers import Reply


class QuestionPage(Schema):
    items: list[QuestionOut] = Field(description="Questions.")
    next: str | None = Field(description="The URL of the next page; null on the last.")


class AnswerIn(Input):
    """Either `answer` or `answers`. Choices are named by their label; several of them as a list."""

    answer: str | list[str] | None = Field(
        None, description="The answer to a question with one item.", examples=["Half up"]
    )
    answers: dict[str, str | list[str]] | None = Field(
        None, description="The answers to all items, by the item's question."
    )
    notes: str = Field("", description="Notes for the agent.")
    taken_from: Number | None = Field(
        None,
        description="The id of the earlier question whose answer this is (`earlier` of the question). It is "
        "recorded if the answer equals that one.",
    )
    remember: RememberIn | None = Field(
        None,
        description="Makes the answer a decision of the project; left out, it is for this task only. Not for "
        "questions of the kind `cost`.",
    )
    decisions: list[StanceIn] = Field(
        [],
        max_length=50,
        description="What the answer means for decisions that it concerns (`decisions` of the question): "
        "needed for each that the agent names, and for each that the answer contradicts.",
    )

    def reply(self, question: Question) -> Reply:
        """Raise BadInput unless there is exactly one of `answer` and `answers`."""
        if (self.answer is None) == (self.answers is None):
            raise BadInput('send {"answer": "…"} or {"answers": {question: "…"}}', where="answer")
        answers = {question.headline: self.answer or ""} if self.answers is None else self.answers
        # Several choices are one text, as the agent expects them.
        texts = {asked: one if isinstance(one, str) else ", ".join(one) for asked, one in answers.items()}
        return Reply(texts, self.notes, taken_from=self.taken_from, decision_input=self._decision_input())

    def _decision_input(self) -> DecisionInput:
        remember = self.remember.remember() if self.remember else Remember()
        statements = self.remember.statements if self.remember else None
        stances = {one.decision: one.stance_on() for one in self.decisions}
        return DecisionInput.with_statements(remember, statements, stances)


class Dismissal(Input):
    """No answer: the agent decides by itself and says what it assumed."""

    notes: str = Field("", description="Notes for the agent.", examples=["Either is fine."])


class VerdictIn(Input):
    """A decision about a tool call or a plan."""

    verdict: Verdict = Field(
        description="`approved`; or `denied` for a tool call, `sent_back` for a plan.", examples=["denied"]
    )
    notes: str = Field(
        "",
        description="The reason for a denial, or comments on the plan; optional for an approval.",
        examples=["Not on the production database."],
    )


class NotOpenProblem(Problem):
    """The question is not open; `question` has the answer, who gave it, and when."""

    question: QuestionOut | None = Field(None, description="The question as it is now.")
