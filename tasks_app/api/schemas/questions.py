"""Questions and answers."""

from __future__ import annotations

from ninja import Schema
from pydantic import ConfigDict, Field

from tasks_app.api.schemas.base import AT, Input, Person, Problem
from tasks_app.models import QuestionKind, QuestionState, Verdict


class Option(Schema):
    """One choice that the agent offers."""

    model_config = ConfigDict(extra="allow")

    label: str = Field("", description="Its name; send this as the answer to choose it.")
    description: str | None = Field("", description="What it means.")
    preview: str | None = Field("", description="What it would look like, if the agent showed that.")


class Item(Schema):
    """One of the questions that are answered together."""

    model_config = ConfigDict(extra="allow")

    question: str = Field(description="The question itself, and its key in `answers`.")
    header: str | None = Field("", description="What it is about, in a word or two.")
    multiSelect: bool | None = Field(False, description="Whether several options may be chosen.")
    options: list[Option] | None = Field(
        [], description="None of them must be chosen: a free text is an answer too."
    )


class QuestionFacts(Schema):
    """What an agent wants to know, and what it was told."""

    id: int = Field(description="The question's number.")
    task: int = Field(description="The number of the task that waits for the answer.")
    project: str = Field(description="The name of its project.")
    number: int = Field(description="Counts the questions of the task from 1.")
    step: str = Field(description="The step in which it was asked.")
    kind: QuestionKind = Field(
        description="A clarification, an approval of a tool call, or a plan to review."
    )
    state: QuestionState = Field(
        description="Whether it is open, was answered or dismissed, or was withdrawn."
    )
    evidence: list[dict[str, str]] = Field(
        description="What to judge by: objects with kind (command, file, diff, text), title and text."
    )
    asked_at: str = Field(description=f"When it was asked. {AT}")
    items: list[Item] = Field(description="One question or several, answered together.")
    answered_at: str | None = Field(description=f"When it was answered. {AT}")
    answered_by: Person | None = Field(description="Who answered.")
    answered_via: str = Field(description="`web`, `terminal` or `api`; empty without an answer.")
    verdict: str = Field(description="Of an approval or a plan: approved, denied or sent_back; else empty.")
    answers: dict[str, str] = Field(description="Each item's question with its answer.")
    notes: str = Field(description="What was added to the answers.")
    answer_with: str = Field(description="The command that answers it on the portal's machine.")
    url: str = Field(description="Where it can be answered in a browser.")


class QuestionPage(Schema):
    items: list[QuestionFacts] = Field(description="Questions.")
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


class Answered(Schema):
    question: QuestionFacts = Field(description="The question with the answer, by whom and when.")
    repeated: bool = Field(
        description="Whether you had sent this very answer before, so that nothing changed."
    )


class NotOpenProblem(Problem):
    """Why there is no answer to be given; `question` has by whom, when and what."""

    question: QuestionFacts | None = Field(None, description="The question as it is now.")
