"""JSON models of questions, answers and decisions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date, datetime
from typing import Literal

from django.db.models import prefetch_related_objects
from pydantic import ConfigDict, Field

from tasks_app.core.ladder import RungAction
from tasks_app.models import (
    AskedBy,
    Channel,
    Decision,
    DecisionEvent,
    DecisionEventKind,
    DecisionScope,
    DecisionState,
    Question,
    QuestionKind,
    QuestionState,
    Rung,
    RungOutcome,
    User,
    Verdict,
    next_rung,
)
from tasks_app.schemas.base import DateTime, Out, UserOut
from tasks_app.services.commands import answer_command, decision_url, question_url
from tasks_app.services.decisions.citing import RelatedDecision, related_decisions
from tasks_app.services.questions.answers import undo_until
from tasks_app.services.questions.approvals import equal_calls
from tasks_app.services.questions.earlier_answers import EarlierAnswer, find_similar_answers


class OptionOut(Out):
    """One choice that the agent offers."""

    model_config = ConfigDict(extra="allow")

    label: str = Field("", description="Its name; send this as the answer to choose it.")
    description: str | None = Field("", description="What it means.")
    preview: str | None = Field("", description="What it would look like, if the agent showed that.")


class AskedOut(Out):
    """Somebody of whom a question is asked."""

    id: int = Field(description="Its id; with it, a hand-over or a wish for an opinion is taken back.")
    user: UserOut = Field(description="Who is asked.")
    asked_by: AskedBy = Field(
        description="What put it to them: `task`, `rule`, `owner`, `on_call`, `starter`, `rung`; `hand_over` "
        "or `opinion` if a person did."
    )
    why: str = Field(description="The reason, for people.")
    group: str = Field(description="The group of members through which they are asked; else empty.")
    by: UserOut | None = Field(description="Who handed it over or wants an opinion.")
    note: str = Field(description="What they wrote with that.")
    at: DateTime = Field(description="Since when.")


class RungOut(Out):
    """A rung of the ladder: what happens if nobody answers."""

    position: int = Field(description="Its number; 0 is the moment in which the question was put to people.")
    action: RungAction = Field(
        description="`ask`, `remind` (those asked), `everybody` (asked from then on), or what ends it "
        "without an answer: `agent_decides`, or `recommended` (the agent goes on with what it recommends)."
    )
    due: DateTime = Field(description="When it is due, unless somebody answers before.")
    done_at: DateTime | None = Field(description="When it was done; null while it was not.")
    outcome: RungOutcome | Literal[""] = Field(
        description="`done`, `unreached` if none of its messages arrived (then the next comes at once), or "
        "`left` if it may not end this question."
    )
    failure: str = Field(description="Why nobody was reached, or why it is left to people.")


class ItemOut(Out):
    """One of the questions that are answered together."""

    model_config = ConfigDict(extra="allow")

    question: str = Field(description="The question itself, and its key in `answers`.")
    header: str | None = Field("", description="What it is about, in a word or two.")
    multiSelect: bool | None = Field(False, description="Whether several options may be chosen.")
    options: list[OptionOut] | None = Field([], description="Options; a free text is an answer, too.")


class QuestionOut(Out):
    """A question of an agent, with its answer."""

    id: int = Field(validation_alias="pk", description="The question's id.")
    task: int = Field(validation_alias="task_id", description="The id of the task that waits for the answer.")
    project: str = Field(validation_alias="task.project.name", description="The name of its project.")
    number: int = Field(description="Counts the questions of the task from 1.")
    step: str = Field(validation_alias="step.name", description="The step in which it was asked.")
    kind: QuestionKind = Field(
        description="A clarification, an approval of a tool call, a plan to review; or `cost`, which the "
        "portal asks at a soft cost limit: answer with one of the options (`Finish early`, `End the task`) "
        "or an amount of dollars."
    )
    about_goal: bool = Field(
        description="Whether it is about the goal of the task: the agent said so, or it was asked before the "
        "work."
    )
    late: bool = Field(
        validation_alias="is_late", description="Whether it is about the goal, but came after work had begun."
    )
    evidence: list[dict[str, str]] = Field(
        description="What to judge by: objects with kind (command, file, diff, text), title and text."
    )
    state: QuestionState = Field(
        description="Whether it is open, was answered or dismissed, was ended by a rule because nobody had "
        "answered (`unanswered`), or was withdrawn."
    )
    asked_at: DateTime = Field(description="When it was asked.")
    items: list[ItemOut] = Field(description="One question or several, answered together.")
    asked: list[AskedOut] = Field(
        validation_alias="asked_now",
        description="Of whom it is asked; empty if of all who may answer. Others may answer, too.",
    )
    next_rung: RungOut | None = Field(
        description="What happens next if nobody answers, and when; null if nothing does, and if it is not "
        "open."
    )
    claimed_by: UserOut | None = Field(
        description="Who is answering it just now; null if nobody is. This informs others and blocks nobody."
    )
    answered_at: DateTime | None = Field(description="When it was answered.")
    answered_by: UserOut | None = Field(description="Who answered.")
    answered_via: Channel | Literal[""] = Field(
        description="`web`, `terminal` or `api`; over MCP `mcp_form`, or `mcp` if the program wrote it; "
        "`decision` if a decision answered, without a human; `rule` if a rule ended it without an answer; "
        "else empty."
    )
    answered_with: str = Field(
        description="Over MCP, how the program calls itself through which it was answered; else empty."
    )
    applied: int | None = Field(
        validation_alias="applied.number",
        description="The number of the decision that answered it; null if none did. Undo opens it again.",
    )
    ended_by_rule: str = Field(
        description="The rung of the ladder that ended it because nobody had answered; else empty. `answers` "
        "are then what the agent recommended, if the rung takes that. Undo opens it again."
    )
    taken_back_by: UserOut | None = Field(
        description="Who took back what a decision or a rule did, after the agent had it; null if nobody did."
    )
    taken_back_at: DateTime | None = Field(description="When that was.")
    reopens: int | None = Field(
        validation_alias="reopens_id",
        description="The id of the question that this one asks again, because the answer of a decision was "
        "taken back, or a rule undone; null for others.",
    )
    verdict: Verdict | Literal[""] = Field(
        description="Of an approval or a plan: approved, denied or sent_back; else empty."
    )
    answers: dict[str, str] = Field(
        validation_alias="answers_in_order", description="Each item's question with its answer."
    )
    notes: str = Field(description="What was added to the answers.")
    taken_from: int | None = Field(
        validation_alias="taken_from_id",
        description="The id of the earlier question whose answer was used, unchanged; null if none was.",
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

    @staticmethod
    def resolve_next_rung(question: Question) -> Rung | None:
        return next_rung(question)

    @staticmethod
    def resolve_claimed_by(question: Question) -> User | None:
        if not question.is_claimed:
            return None
        return question.claimed_by

    @staticmethod
    def resolve_undo_until(question: Question) -> datetime | None:
        return undo_until(question)

    @staticmethod
    def resolve_answer_with(question: Question) -> str:
        return answer_command(question)

    @staticmethod
    def resolve_url(question: Question) -> str:
        return question_url(question)


class EarlierAnswerOut(Out):
    """An earlier answer in the same project to a question like an item of this one."""

    question: int = Field(
        validation_alias="question.pk",
        description="The earlier question's id; send it as `taken_from` to use its answer, if it is the "
        "same.",
    )
    task: int = Field(validation_alias="question.task_id", description="The id of its task.")
    step: str = Field(validation_alias="question.step.name", description="The step in which it was asked.")
    headline: str = Field(description="What was asked.")
    answers: dict[str, str] = Field(description="Its answer, by the item of this question.")
    notes: str = Field(validation_alias="question.notes", description="What was added to it.")
    answered_by: UserOut | None = Field(validation_alias="question.answered_by", description="Who answered.")
    answered_at: DateTime | None = Field(
        validation_alias="question.answered_at", description="When it was answered."
    )
    score: float = Field(description="How alike the questions are, from 0 to 1.")
    same: bool = Field(description="Whether it is the same question to the letter, apart from white space.")
    differences: list[str] = Field(description="What differs, for people.")
    times: int = Field(description="How often this very question was answered, up to 100.")
    taken: int = Field(description="How often this answer was used for another question.")


class RelatedDecisionOut(Out):
    """A decision that holds, and what it has to do with a question."""

    decision: int = Field(
        validation_alias="decision.number", description="Its number; send it in `decisions` of the answer."
    )
    statement: str = Field(validation_alias="decision.statement", description="What is decided.")
    asked: str = Field(
        validation_alias="decision.asked", description="The question that it answers; empty if nobody asked."
    )
    items: list[str] = Field(description="The items that it is about.")
    same: bool = Field(description="Whether it answered the same question: the same answer confirms it.")
    named: bool = Field(description="Whether the agent names it: the answer must say what it means for it.")
    holds_here: bool = Field(
        description="Whether it holds for this step and a file of the task. If not, and the agent does not "
        "name it, an answer need not say anything."
    )

    @staticmethod
    def resolve_items(one: RelatedDecision) -> list[str]:
        return [str(item["question"]) for item in one.items]


class QuestionDetailOut(QuestionOut):
    """A question with its ladder, earlier answers to questions like it, and decisions that it concerns."""

    rungs: list[RungOut] = Field(description="What happens, and happened, while nobody answers, in order.")

    earlier: list[EarlierAnswerOut] = Field(
        [],
        description="While it is open: the nearest earlier answers to each item, at most three.",
    )
    decisions: list[RelatedDecisionOut] = Field(
        [], description="While it is open: the active decisions that it concerns."
    )
    equal_calls: list[int] = Field(
        [],
        description="While it is open: the other open approvals of its task for exactly the same call; "
        "`rest` approves them with it.",
    )

    @staticmethod
    def resolve_rungs(question: Question) -> list[Rung]:
        return list(question.rungs.all())

    @staticmethod
    def resolve_earlier(question: Question) -> Sequence[EarlierAnswer]:
        if not _is_open_clarification(question):
            return []
        return find_similar_answers(question)

    @staticmethod
    def resolve_decisions(question: Question) -> Sequence[RelatedDecision]:
        if not _is_open_clarification(question):
            return []
        return related_decisions(question)

    @staticmethod
    def resolve_equal_calls(question: Question) -> list[int]:
        if not question.is_open:
            return []
        return [other.pk for other in equal_calls(question)]


def _is_open_clarification(question: Question) -> bool:
    return question.is_open and question.kind == QuestionKind.CLARIFICATION


class AnswerOutcome(Out):
    """Output of `cat-herder answer --json`."""

    question: int = Field(validation_alias="pk", description="The question's id.")
    task: int = Field(validation_alias="task_id", description="The task's id.")
    kind: QuestionKind = Field(description="A clarification, an approval, a plan or a soft cost limit.")
    state: QuestionState = Field(description="Whether it is answered or dismissed now.")
    verdict: Verdict | Literal[""] = Field(description="Of an approval or a plan; else empty.")
    answers: dict[str, str] = Field(description="Each item's question with its answer.")
    notes: str = Field(description="What was added to the answers.")
    by: str | None = Field(
        validation_alias="answered_by.username", description="The username of who answered."
    )
    at: DateTime | None = Field(validation_alias="answered_at", description="When it was answered.")
    via: Channel | Literal[""] = Field(
        validation_alias="answered_via", description="`web`, `terminal` or `api`."
    )
    repeated: bool = Field(description="Whether the very same answer was there before.")
    approved_too: list[int] = Field(
        [], description="The ids of the equal calls that `--rest` approved with it."
    )
    undo_until: DateTime | None = Field(description="Until when `--undo` takes the answer back.")
    exit_code: int = 0

    @staticmethod
    def resolve_undo_until(question: Question) -> datetime | None:
        return undo_until(question)


class Answered(Out):
    """The outcome of an answer."""

    question: QuestionOut = Field(description="The question with the answer, by whom and when.")
    repeated: bool = Field(
        description="Whether you had sent this very answer before, so that nothing changed."
    )
    approved_too: list[int] = Field(
        default=[], description="With `rest`, the ids of the equal calls that were approved with it."
    )


class CitationOut(Out):
    """A file that a decision refers to."""

    path: str = Field(description="Its path.")
    blob: str = Field(description="The id of its content when the decision was made.")


class DecisionOut(Out):
    """A decision of a project."""

    number: int = Field(description="Its number in the project.")
    label: str = Field(description="How people and agents cite it, such as D-17.")
    project: str = Field(validation_alias="project.name", description="The name of its project.")
    state: DecisionState = Field(description="Only active ones hold. Proposed ones wait for somebody.")
    statement: str = Field(description="What is decided.")
    reason: str = Field(description="Why.")
    scope: DecisionScope = Field(description="Where it holds.")
    paths: list[str] = Field(description="Globs, for the scope `paths`.")
    step: str = Field(description="The step's name, for the scope `step`.")
    decided_by: UserOut | None = Field(description="Who decided; null while it is proposed.")
    decided_at: DateTime | None = Field(description="When.")
    asked: str = Field(description="The question that it answers; empty if nobody asked.")
    question: int | None = Field(
        validation_alias="question_id", description="The id of the question whose answer it was made from."
    )
    task: int | None = Field(
        validation_alias="question.task_id", description="The id of the task that asked."
    )
    source: str = Field(description="The file from which it was imported; else empty.")
    cites: list[CitationOut] = Field(description="Files that it refers to.")
    review_after: date | None = Field(description="The day after which somebody should look again.")
    review: str = Field(
        validation_alias="why_review",
        description="Why somebody should look at it now; empty if nobody needs to.",
    )
    replaces: int | None = Field(
        validation_alias="replaces.number", description="The number of the decision that it replaced."
    )
    replaced_by: list[int] = Field(description="The numbers of the decisions that replaced it.")
    exception_to: int | None = Field(
        validation_alias="exception_to.number",
        description="The number of the decision to which it is an exception.",
    )
    exceptions: list[int] = Field(description="The numbers of the exceptions to it that are in force.")
    uses: int = Field(description="How often it was followed, applied or confirmed.")
    overrides: int = Field(description="How often somebody decided otherwise.")
    doubts: int = Field(description="How often an agent said that it does not fit.")
    url: str = Field(description="Its page.")

    @staticmethod
    def resolve_replaced_by(decision: Decision) -> list[int]:
        return [one.number for one in decision.replaced_by.all()]

    @staticmethod
    def resolve_exceptions(decision: Decision) -> list[int]:
        return [one.number for one in decision.exceptions.all() if one.is_active]

    @staticmethod
    def resolve_url(decision: Decision) -> str:
        return decision_url(decision)


class DecisionEventOut(Out):
    """One thing that happened to a decision."""

    kind: DecisionEventKind = Field(description="What happened.")
    at: DateTime = Field(description="When.")
    by: UserOut | None = Field(
        validation_alias="user", description="Who did it; null for agents and the portal."
    )
    task: int | None = Field(
        validation_alias="task_id", description="The id of the task in which it happened."
    )
    question: int | None = Field(
        validation_alias="question_id", description="The id of the question in whose answer it happened."
    )
    note: str = Field(description="The reason, in their words.")


class DecisionWithHistory(DecisionOut):
    """A decision with everything that happened to it."""

    history: list[DecisionEventOut] = Field(description="The oldest first.")

    @staticmethod
    def resolve_history(decision: Decision) -> Iterable[DecisionEvent]:
        prefetch_related_objects([decision], "events__user")  # a list has prefetched them for all
        return decision.events.all()
