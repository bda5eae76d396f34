"""JSON models of questions and answers."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import ConfigDict, Field

from tasks_app.models import Channel, Question, QuestionKind, QuestionState, Verdict
from tasks_app.reporting.commands import answer_command, question_url
from tasks_app.reporting.schemas.base import DateTime, Out, UserOut, user_or_none
from tasks_app.services.decisions.related import RelatedDecision, related_decisions
from tasks_app.services.questions.earlier_answers import EarlierAnswer, find_similar_answers
from tasks_app.services.questions.undo import undo_until


class OptionOut(Out):
    """One choice that the agent offers."""

    model_config = ConfigDict(extra="allow")

    label: str = Field("", description="Its name; send this as the answer to choose it.")
    description: str | None = Field("", description="What it means.")
    preview: str | None = Field("", description="What it would look like, if the agent showed that.")


class ItemOut(Out):
    """One of the questions that are answered together."""

    model_config = ConfigDict(extra="allow")

    question: str = Field(description="The question itself, and its key in `answers`.")
    header: str | None = Field("", description="What it is about, in a word or two.")
    multiSelect: bool | None = Field(False, description="Whether several options may be chosen.")
    options: list[OptionOut] | None = Field(
        [], description="None of them must be chosen: a free text is an answer too."
    )


class QuestionOut(Out):
    """A question of an agent, with its answer."""

    id: int = Field(description="The question's id.")
    task: int = Field(description="The id of the task that waits for the answer.")
    project: str = Field(description="The name of its project.")
    number: int = Field(description="Counts the questions of the task from 1.")
    step: str = Field(description="The step in which it was asked.")
    kind: QuestionKind = Field(
        description="A clarification, an approval of a tool call, a plan to review; or `cost`, which the "
        "portal asks at a soft cost limit: answer with one of the options (`Finish early`, `End the task`) "
        "or an amount of dollars."
    )
    about_goal: bool = Field(
        description="Whether it is about the goal of the task: the agent said so, or it was asked before the "
        "work."
    )
    late: bool = Field(description="Whether it is about the goal, but came after work had begun.")
    evidence: list[dict[str, str]] = Field(
        description="What to judge by: objects with kind (command, file, diff, text), title and text."
    )
    state: QuestionState = Field(
        description="Whether it is open, was answered or dismissed, or was withdrawn."
    )
    asked_at: DateTime = Field(description="When it was asked.")
    items: list[ItemOut] = Field(description="One question or several, answered together.")
    claimed_by: UserOut | None = Field(
        description="Who is answering it just now; null if nobody is. This informs others and blocks nobody."
    )
    answered_at: DateTime | None = Field(description="When it was answered.")
    answered_by: UserOut | None = Field(description="Who answered.")
    answered_via: Channel | Literal[""] = Field(
        description="`web`, `terminal` or `api`; `decision` if a decision answered, without a human; empty "
        "without an answer."
    )
    applied: int | None = Field(
        description="The number of the decision that answered it; null if none did. Undo opens it again."
    )
    taken_back_by: UserOut | None = Field(
        description="Who took back the decision’s answer after the agent had it; null if nobody did."
    )
    taken_back_at: DateTime | None = Field(description="When that was.")
    reopens: int | None = Field(
        description="The id of the question that this one asks again, because the answer of a decision was "
        "taken back; null for others."
    )
    verdict: Verdict | Literal[""] = Field(
        description="Of an approval or a plan: approved, denied or sent_back; else empty."
    )
    answers: dict[str, str] = Field(description="Each item's question with its answer.")
    notes: str = Field(description="What was added to the answers.")
    taken_from: int | None = Field(
        description="The id of the earlier question whose answer was used, unchanged; null if none was."
    )
    allowed_usd: float | None = Field(
        description="At a soft cost limit, what the task may cost before it asks again, or by when it has "
        "finished early; null if it is to end, and for all other questions."
    )
    cost_choice: Literal["", "raise", "finish", "stop"] = Field(
        description="What was chosen at a soft cost limit: it goes on, finishes early or ends; empty "
        "without an answer, and for all other questions."
    )
    undo_until: DateTime | None = Field(
        description="Until when the answer can be taken back; empty if it cannot, or not any more."
    )
    answer_with: str = Field(description="The command that answers it on the portal's machine.")
    url: str = Field(description="Where it can be answered in a browser.")

    @classmethod
    def of(cls, question: Question) -> Self:
        return cls(
            id=question.pk,
            task=question.task_id,
            project=question.task.project.name,
            number=question.number,
            step=question.step.name,
            kind=QuestionKind(question.kind),
            about_goal=question.about_goal,
            late=question.is_late,
            evidence=question.evidence,
            state=QuestionState(question.state),
            asked_at=question.asked_at,
            items=[ItemOut.model_validate(item) for item in question.items],
            claimed_by=user_or_none(question.claimed_by) if question.is_claimed else None,
            answered_at=question.answered_at,
            answered_by=user_or_none(question.answered_by),
            answered_via=Channel(question.answered_via) if question.answered_via else "",
            applied=question.applied.number if question.applied else None,
            taken_back_by=user_or_none(question.taken_back_by),
            taken_back_at=question.taken_back_at,
            reopens=question.reopens_id,
            verdict=Verdict(question.verdict) if question.verdict else "",
            answers=question.answers_in_order,
            notes=question.notes,
            taken_from=question.taken_from_id,
            allowed_usd=question.allowed_usd,
            cost_choice=question.cost_choice,
            undo_until=undo_until(question),
            answer_with=answer_command(question),
            url=question_url(question),
        )


class EarlierAnswerOut(Out):
    """An earlier answer in the same project to a question like an item of this one."""

    question: int = Field(description="The earlier question's id; send it as `taken_from` to use its answer.")
    task: int = Field(description="The id of its task.")
    step: str = Field(description="The step in which it was asked.")
    headline: str = Field(description="What was asked.")
    answers: dict[str, str] = Field(description="Its answer, by the item of this question.")
    notes: str = Field(description="What was added to it.")
    answered_by: UserOut | None = Field(description="Who answered.")
    answered_at: DateTime | None = Field(description="When it was answered.")
    score: float = Field(description="How alike the questions are, from 0 to 1.")
    same: bool = Field(description="Whether it is the same question, apart from case and punctuation.")
    differences: list[str] = Field(description="What differs, for people.")
    times: int = Field(description="How often this very question was answered, up to 100.")
    taken: int = Field(description="How often this answer was used for another question.")

    @classmethod
    def of(cls, earlier: EarlierAnswer) -> Self:
        question = earlier.question
        return cls(
            question=question.pk,
            task=question.task_id,
            step=question.step.name,
            headline=earlier.headline,
            answers=dict(earlier.answers),
            notes=question.notes,
            answered_by=user_or_none(question.answered_by),
            answered_at=question.answered_at,
            score=earlier.score,
            same=earlier.same,
            differences=list(earlier.differences),
            times=earlier.times,
            taken=earlier.taken,
        )


class RelatedDecisionOut(Out):
    """A decision that holds, and what it has to do with a question."""

    decision: int = Field(description="Its number; send it in `decisions` of the answer.")
    statement: str = Field(description="What is decided.")
    items: list[str] = Field(description="The items that it is about.")
    same: bool = Field(description="Whether it answered the same question: the same answer confirms it.")
    named: bool = Field(description="Whether the agent names it: the answer must say what it means for it.")
    holds_here: bool = Field(
        description="Whether it holds for this step and a file of the task. If not, and the agent does not "
        "name it, an answer need not say anything."
    )

    @classmethod
    def of(cls, one: RelatedDecision) -> Self:
        return cls(
            decision=one.decision.number,
            statement=one.decision.statement,
            items=[str(item["question"]) for item in one.items],
            same=one.same,
            named=one.named,
            holds_here=one.holds_here,
        )


class QuestionDetailOut(QuestionOut):
    """A question with the earlier answers to questions like it, and the decisions that it concerns."""

    earlier: list[EarlierAnswerOut] = Field(
        [],
        description="While it is open: the nearest earlier answers to each item, at most three.",
    )
    decisions: list[RelatedDecisionOut] = Field(
        [], description="While it is open: the active decisions that it concerns."
    )

    @classmethod
    def of(cls, question: Question) -> Self:
        shown = super().of(question)
        if not question.is_open or question.kind != QuestionKind.CLARIFICATION:
            return shown
        earlier = [EarlierAnswerOut.of(one) for one in find_similar_answers(question)]
        related = [RelatedDecisionOut.of(one) for one in related_decisions(question)]
        return shown.model_copy(update={"earlier": earlier, "decisions": related})


class AnswerOutcome(Out):
    """Output of `manage.py answer --json`."""

    question: int = Field(description="The question's id.")
    task: int = Field(description="The task's id.")
    kind: QuestionKind = Field(description="A clarification, an approval, a plan or a soft cost limit.")
    state: QuestionState = Field(description="Whether it is answered or dismissed now.")
    verdict: Verdict | Literal[""] = Field(description="Of an approval or a plan; else empty.")
    answers: dict[str, str] = Field(description="Each item's question with its answer.")
    notes: str = Field(description="What was added to the answers.")
    by: str | None = Field(description="The username of who answered.")
    at: DateTime | None = Field(description="When it was answered.")
    via: Channel | Literal[""] = Field(description="`web`, `terminal` or `api`.")
    repeated: bool = Field(description="Whether the very same answer was there before.")
    undo_until: DateTime | None = Field(description="Until when `--undo` takes the answer back.")
    exit_code: int = 0

    @classmethod
    def of(cls, question: Question, *, repeated: bool) -> Self:
        return cls(
            question=question.pk,
            task=question.task_id,
            kind=QuestionKind(question.kind),
            state=QuestionState(question.state),
            verdict=Verdict(question.verdict) if question.verdict else "",
            answers=question.answers,
            notes=question.notes,
            by=question.answered_by.get_username() if question.answered_by else None,
            at=question.answered_at,
            via=Channel(question.answered_via) if question.answered_via else "",
            repeated=repeated,
            undo_until=undo_until(question),
        )


class Answered(Out):
    """The outcome of an answer."""

    question: QuestionOut = Field(description="The question with the answer, by whom and when.")
    repeated: bool = Field(
        description="Whether you had sent this very answer before, so that nothing changed."
    )
