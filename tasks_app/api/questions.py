"""Operations on questions: claim, answer, dismiss, decide, undo."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal, Self

from django.http import HttpRequest, StreamingHttpResponse
from ninja import Query, Router, Schema, Status
from pydantic import Field, model_validator

from tasks_app import permissions
from tasks_app.api.auth import authenticators, channel, principal_of
from tasks_app.api.base import (
    KINDS,
    ExportFormat,
    Input,
    Name,
    Number,
    Paging,
    Problem,
    QuestionId,
    SearchFilters,
    export_response,
    page_from,
    page_of,
    responses,
    sends,
)
from tasks_app.api.decisions import RememberIn, StanceIn
from tasks_app.api.idempotency import once
from tasks_app.api.problems import Kind, Refused
from tasks_app.core.errors import BadInput, NotOpen
from tasks_app.models import (
    Channel,
    Question,
    QuestionKind,
    QuestionState,
    Scope,
    Task,
    Verdict,
    asked_of,
    asked_of_groups_of,
    by_urgency,
)
from tasks_app.models.question import QuestionQuerySet
from tasks_app.schemas.questions import Answered, QuestionDetailOut, QuestionOut
from tasks_app.services.decisions.answering import DecisionInput, Remember
from tasks_app.services.exports import QUESTION_COLUMNS, question_rows
from tasks_app.services.questions import answers, asking, question_outcomes
from tasks_app.services.questions import answers as actions
from tasks_app.services.questions.answers import Reply, undo_answer
from tasks_app.services.questions.approvals import approve_equal_calls


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
        answers = self.answers
        if answers is None:
            answers = {question.headline: self.answer or ""}
        # Several choices are one text, as the agent expects them.
        texts = {asked: one if isinstance(one, str) else ", ".join(one) for asked, one in answers.items()}
        return Reply(texts, self.notes, taken_from=self.taken_from, decision_input=self._decision_input())

    def _decision_input(self) -> DecisionInput:
        remember, statements = Remember(), None
        if self.remember:
            remember, statements = self.remember.remember(), self.remember.statements
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
    rest: bool = Field(
        False,
        description="With `approved`: also approve the other open approvals of the task for exactly the same "
        "call (`equal_calls` of the question), each with an answer of its own.",
    )

    @model_validator(mode="after")
    def _rest_is_approved(self) -> Self:
        if self.rest and self.verdict != Verdict.APPROVED:
            raise ValueError("`rest` goes with the verdict `approved`")
        return self


class NotOpenProblem(Problem):
    """The question is not open; `question` has the answer, who gave it, and when."""

    question: QuestionOut | None = Field(None, description="The question as it is now.")


router = Router(tags=["Questions"])


class QuestionFilters(SearchFilters):
    """The filters of the inbox and the history page."""

    state: QuestionState | None = Field(None, description="Only questions in this state.")
    kind: QuestionKind | None = Field(None, description="Only questions of this kind.")
    task: Number | None = Field(None, description="Only questions of the task with this id.")
    person: Name = Field("", description="Only questions that this user answered.")
    via: Channel | None = Field(None, description="Only questions that were answered through this channel.")
    asked: Literal["me", "groups", "all"] = Field(
        "all",
        description="`me`: only questions that are asked of you, by name or because nobody is named; "
        "`groups`: of one of your groups.",
    )
    sort: Literal["urgent", "newest", "oldest"] | None = Field(
        None,
        description="Which come first. `urgent`: what blocks most, as in the inbox: questions of sequences, "
        "then the nearest rung, then the oldest. Default: `urgent` with `state=open`, else `oldest`.",
    )


@router.get("/questions", response=responses(QuestionPage), auth=authenticators(Scope.READ))
def list_questions(request: HttpRequest, only: Query[QuestionFilters], paging: Query[Paging]) -> QuestionPage:
    """List questions in the projects that you may see, with search and filters.

    The pages of `urgent` follow the order as it is when each is fetched.
    """
    questions = _filtered_questions(request, only)
    sort = only.sort or ("urgent" if only.state == QuestionState.OPEN else "oldest")
    if sort == "urgent":
        rows, following = page_from(request, by_urgency(questions, after=paging.cursor), paging)
    else:
        rows, following = page_of(request, questions, paging, newest_first=sort == "newest")
    return QuestionPage(items=[QuestionOut.from_row(question) for question in rows], next=following)


@router.get(
    "/questions/export", response=responses(str), auth=authenticators(Scope.READ), openapi_extra=sends(*KINDS)
)
def export_questions(
    request: HttpRequest, only: Query[QuestionFilters], which: Query[ExportFormat]
) -> StreamingHttpResponse:
    """Export all questions that match, the newest first, as one table. The audit log records it."""
    return export_response(
        request,
        QUESTION_COLUMNS,
        question_rows(_filtered_questions(request, only)),
        name="questions",
        which=which,
    )


@router.get(
    "/questions/{question_id}", response=responses(QuestionDetailOut, 404), auth=authenticators(Scope.READ)
)
def get_question(request: HttpRequest, question_id: QuestionId) -> QuestionDetailOut:
    """Return a question with its answer, who gave it, and when; an open one with earlier answers."""
    return QuestionDetailOut.from_row(permissions.question_or_404(principal_of(request), question_id))


@router.post(
    "/questions/{question_id}/claim", response=responses(QuestionOut, 404), auth=authenticators(Scope.ANSWER)
)
def claim_question(request: HttpRequest, question_id: QuestionId) -> QuestionOut:
    """Say that you are answering a question, so that others see it. It blocks nobody.

    The claim lasts three minutes, unless you claim the question again or give it up. `claimed_by` names
    another user if they were first; it is null if the question is not open.
    """
    question = permissions.question_or_404(principal_of(request), question_id)
    answers.claim_question(question, by=principal_of(request))
    return get_question(request, question_id)


@router.delete(
    "/questions/{question_id}/claim", response=responses(QuestionOut, 404), auth=authenticators(Scope.ANSWER)
)
def release_question(request: HttpRequest, question_id: QuestionId) -> QuestionOut:
    """Say that you are no longer answering a question. The claim of another user stays."""
    question = permissions.question_or_404(principal_of(request), question_id)
    answers.release_question(question, by=principal_of(request))
    return get_question(request, question_id)


def _as_it_is(request: HttpRequest, task: Task, given: Mapping[str, Any]) -> Status[Answered]:
    """Return the question after a lost response. What was taken back meanwhile is not done again."""
    question = permissions.question_or_404(principal_of(request), given["question_id"])
    if question.is_open:
        raise Refused(Kind.KEY_DONE, "This was done and has been taken back. It is not done again.")
    return Status(200, Answered(question=QuestionOut.from_row(question), repeated=True))


@router.post(
    "/questions/{question_id}/answer",
    response=responses(Answered, 404, 413, 422, s409=NotOpenProblem),
    auth=authenticators(Scope.ANSWER),
)
@once(again=_as_it_is)
def answer_question(request: HttpRequest, question_id: QuestionId, body: AnswerIn) -> Status[Answered]:
    """Answer a question. The task resumes when none of its questions is open.

    The first answer counts. A later one gets 409 with the answer that was given. The same answer again,
    from the same user, gets 200 and changes nothing. A question of the kind `cost` takes one of its
    options or an amount of dollars, such as `"2.50"`.
    """
    question = permissions.question_or_404(principal_of(request), question_id)
    act = partial(actions.answer_question, question, body.reply(question), by=principal_of(request))
    return _act_on_open(question, act)


@router.post(
    "/questions/{question_id}/dismiss",
    response=responses(Answered, 404, 413, 422, s409=NotOpenProblem),
    auth=authenticators(Scope.ANSWER),
)
@once(again=_as_it_is)
def dismiss_question(request: HttpRequest, question_id: QuestionId, body: Dismissal) -> Status[Answered]:
    """Let the agent decide by itself; it says what it assumed.

    Approvals, plans and questions about costs cannot be dismissed and get 400: decide about them, or answer.
    A question that is not open gets 409, as with answers.
    """
    question = permissions.question_or_404(principal_of(request), question_id)
    act = partial(actions.dismiss_question, question, by=principal_of(request), notes=body.notes)
    return _act_on_open(question, act)


@router.post(
    "/questions/{question_id}/decide",
    response=responses(Answered, 404, 413, 422, s409=NotOpenProblem),
    auth=authenticators(Scope.ANSWER),
)
@once(again=_as_it_is)
def decide_question(request: HttpRequest, question_id: QuestionId, body: VerdictIn) -> Status[Answered]:
    """Approve or deny a tool call; approve a plan or send it back.

    With `rest`, the equal calls of the task are approved, too; `approved_too` has their ids. A question that
    is not open gets 409, as with answers.
    """
    question = permissions.question_or_404(principal_of(request), question_id)
    act = partial(actions.decide, question, body.verdict, by=principal_of(request), notes=body.notes)
    if body.rest:
        act = partial(approve_equal_calls, question, by=principal_of(request), notes=body.notes)
    return _act_on_open(question, act)


@router.post(
    "/questions/{question_id}/undo",
    response=responses(QuestionOut, 404, 409),
    auth=authenticators(Scope.ANSWER),
)
@once
def undo_question(request: HttpRequest, question_id: QuestionId) -> Status[QuestionOut]:
    """Take your own answer, decision or dismissal back; the question is open again.

    This is possible until `undo_until`, and never after the agent has the answer: then it gets 409. What a
    decision answered (`applied`) can be taken back by everybody who may answer, until the task has ended. If
    the agent has the answer, its run is stopped, and the response is the question that is asked anew.
    """
    question = permissions.question_or_404(principal_of(request), question_id)
    return Status(200, QuestionOut.from_row(undo_answer(question, by=principal_of(request))))


class AskSomebodyIn(Input):
    """Somebody else who is to be asked."""

    to: Name = Field(description="The username of a member who may answer.", examples=["dana"])
    kind: Literal["hand_over", "opinion"] = Field(
        description="`hand_over`: instead of you; `opinion`: as well, for a second opinion."
    )
    note: str = Field("", description="What they should know.", examples=["I am away until Monday."])


@router.post(
    "/questions/{question_id}/asked",
    response=responses(QuestionOut, 404, 409, 413),
    auth=authenticators(Scope.ANSWER),
)
def ask_somebody(request: HttpRequest, question_id: QuestionId, body: AskSomebodyIn) -> QuestionOut:
    """Hand an open question over to somebody, or ask them for a second opinion.

    They are notified. The same request again changes nothing. `asked` of the question has who is asked now.
    """
    by = principal_of(request)
    question = permissions.question_or_404(by, question_id)
    permissions.require_actor(by, question.task.project)
    to = asking.find_user_to_ask(question.task.project, body.to, by=by)
    ask = asking.hand_over if body.kind == "hand_over" else asking.ask_opinion
    ask(question, to, by=by, note=body.note)
    return get_question(request, question_id)


@router.delete(
    "/questions/{question_id}/asked/{username}",
    response=responses(QuestionOut, 404, 409),
    auth=authenticators(Scope.ANSWER),
)
def take_back_asking(request: HttpRequest, question_id: QuestionId, username: Name) -> QuestionOut:
    """Take back that this user was asked by a person: who was asked before is asked again.

    Only who asked, or who was asked, can do it. Nothing changes if the user is not asked.
    """
    by = principal_of(request)
    question = permissions.question_or_404(by, question_id)
    permissions.require_actor(by, question.task.project)
    for row in question.asked.current().filter(user__username=username):
        asking.take_back(row, by=by)
    return get_question(request, question_id)


def _act_on_open(question: Question, act: Callable[..., question_outcomes.Answered]) -> Status[Answered]:
    """Act and return the outcome. If the question is not open, the problem says who answered it, and what."""
    try:
        done = act(via=channel())
    except NotOpen as error:
        raise Refused(
            Kind.NOT_OPEN, str(error), question=QuestionOut.from_row(question).model_dump(mode="json")
        ) from error
    answered = QuestionOut.from_row(done.question)
    return Status(
        200, Answered(question=answered, repeated=done.repeated, approved_too=list(done.approved_too))
    )


def _filtered_questions(request: HttpRequest, only: QuestionFilters) -> QuestionQuerySet:
    rows = only.filters(state=only.state or "", via=only.via or "").matching_questions(principal_of(request))
    wanted = only.model_dump(include={"kind", "task"}, exclude_none=True)
    if only.asked != "all":
        asked = asked_of if only.asked == "me" else asked_of_groups_of
        rows = rows.filter(asked(principal_of(request).user))
    return rows.filter(**wanted).shown()
