"""Operations on questions: claim, answer, dismiss, decide, undo."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal

from django.db.models import QuerySet
from django.http import HttpRequest, StreamingHttpResponse
from ninja import Field, Query, Router, Status

from tasks_app import permissions
from tasks_app.api.auth import authenticators, principal_of
from tasks_app.api.declarations import responses, sends
from tasks_app.api.exports import KINDS, ExportFormat, export_response
from tasks_app.api.filters import Name, SearchFilters
from tasks_app.api.idempotency import once
from tasks_app.api.paging import Paging, page_of
from tasks_app.api.problems import Kind, Refused
from tasks_app.api.schemas.base import Number, QuestionId
from tasks_app.api.schemas.questions import AnswerIn, Dismissal, NotOpenProblem, QuestionPage, VerdictIn
from tasks_app.core.errors import NotOpen
from tasks_app.models import SHOWN_WITH, Channel, Question, QuestionKind, QuestionState, Scope
from tasks_app.reporting.exports import QUESTION_COLUMNS, question_rows
from tasks_app.reporting.schemas.questions import Answered, QuestionDetailOut, QuestionOut
from tasks_app.services.questions import answers as actions
from tasks_app.services.questions import claims
from tasks_app.services.questions.undo import undo_answer

router = Router(tags=["Questions"])


class QuestionFilters(SearchFilters):
    """The filters of the inbox and the history page."""

    state: QuestionState | None = Field(None, description="Only questions in this state.")
    kind: QuestionKind | None = Field(None, description="Only questions of this kind.")
    task: Number | None = Field(None, description="Only questions of the task with this id.")
    person: Name = Field("", description="Only questions that this user answered.")
    via: Channel | None = Field(None, description="Only questions that were answered through this channel.")
    sort: Literal["newest", "oldest"] = Field("oldest", description="Which come first.")


@router.get("/questions", response=responses(QuestionPage), auth=authenticators(Scope.READ))
def list_questions(request: HttpRequest, only: Query[QuestionFilters], paging: Query[Paging]) -> QuestionPage:
    """List questions in the projects that you may see, the oldest first, with search and filters."""
    newest_first = only.sort == "newest"
    rows, following = page_of(request, _filtered_questions(request, only), paging, newest_first=newest_first)
    return QuestionPage(items=[QuestionOut.of(question) for question in rows], next=following)


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
    return QuestionDetailOut.of(permissions.question_or_404(principal_of(request), question_id))


@router.post(
    "/questions/{question_id}/claim", response=responses(QuestionOut, 404), auth=authenticators(Scope.ANSWER)
)
def claim_question(request: HttpRequest, question_id: QuestionId) -> QuestionOut:
    """Say that you are answering a question, so that others see it. It blocks nobody.

    The claim lasts three minutes, unless you claim the question again or give it up. `claimed_by` names
    another user if they were first; it is null if the question is not open.
    """
    question = permissions.question_or_404(principal_of(request), question_id)
    claims.claim_question(question, by=principal_of(request))
    return get_question(request, question_id)


@router.delete(
    "/questions/{question_id}/claim", response=responses(QuestionOut, 404), auth=authenticators(Scope.ANSWER)
)
def release_question(request: HttpRequest, question_id: QuestionId) -> QuestionOut:
    """Say that you are no longer answering a question. The claim of another user stays."""
    question = permissions.question_or_404(principal_of(request), question_id)
    claims.release_question(question, by=principal_of(request))
    return get_question(request, question_id)


@router.post(
    "/questions/{question_id}/answer",
    response=responses(Answered, 404, 413, 422, s409=NotOpenProblem),
    auth=authenticators(Scope.ANSWER),
)
@once
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
@once
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
@once
def decide_question(request: HttpRequest, question_id: QuestionId, body: VerdictIn) -> Status[Answered]:
    """Approve or deny a tool call; approve a plan or send it back.

    A question that is not open gets 409, as with answers.
    """
    question = permissions.question_or_404(principal_of(request), question_id)
    act = partial(actions.decide, question, body.verdict, by=principal_of(request), notes=body.notes)
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
    return Status(200, QuestionOut.of(undo_answer(question, by=principal_of(request))))


def _act_on_open(question: Question, act: Callable[..., actions.Answered]) -> Status[Answered]:
    """Act and return the outcome. If the question is not open, the problem says who answered it, and what."""
    try:
        done = act(via=Channel.API)
    except NotOpen as error:
        raise Refused(
            Kind.NOT_OPEN, str(error), question=QuestionOut.of(question).model_dump(mode="json")
        ) from error
    return Status(200, Answered(question=QuestionOut.of(done.question), repeated=done.repeated))


def _filtered_questions(request: HttpRequest, only: QuestionFilters) -> QuerySet[Question]:
    rows = only.filters(state=only.state or "", via=only.via or "").matching_questions(principal_of(request))
    wanted = only.model_dump(include={"kind", "task"}, exclude_none=True)
    return rows.filter(**wanted).select_related(*SHOWN_WITH)
