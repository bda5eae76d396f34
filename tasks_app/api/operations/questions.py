"""Questions: looking at them, answering, dismissing and deciding."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal

from django.db.models import QuerySet
from django.http import HttpRequest, StreamingHttpResponse
from ninja import Field, Query, Router, Status

from tasks_app import permissions
from tasks_app.api.auth import doors, principal_of
from tasks_app.api.declarations import responses, sends
from tasks_app.api.exports import KINDS, Taken, taken
from tasks_app.api.filters import Name, Searched
from tasks_app.api.idempotency import once
from tasks_app.api.paging import Paging, page_of
from tasks_app.api.problems import Kind, Refused
from tasks_app.api.schemas.base import Number, QuestionId
from tasks_app.api.schemas.questions import AnswerIn, Decision, Dismissal, NotOpenProblem, QuestionPage
from tasks_app.core.errors import NotOpen
from tasks_app.models import Channel, Question, QuestionKind, QuestionState, Scope
from tasks_app.reporting.exports import QUESTION_COLUMNS, question_rows
from tasks_app.reporting.schemas.questions import Answered, QuestionOut
from tasks_app.services import answers as actions

router = Router(tags=["Questions"])


class QuestionFilters(Searched):
    """As the inbox and the history page have them."""

    state: QuestionState | None = Field(None, description="Only open, answered, dismissed or withdrawn ones.")
    kind: QuestionKind | None = Field(None, description="Only questions of this kind.")
    task: Number | None = Field(None, description="Only those of the task with this number.")
    person: Name = Field("", description="Only those that the person with this username settled.")
    via: Channel | None = Field(None, description="Only those that were settled through this.")
    sort: Literal["newest", "oldest"] = Field("oldest", description="Which come first.")


@router.get("/questions", response=responses(QuestionPage), auth=doors(Scope.READ))
def list_questions(request: HttpRequest, only: Query[QuestionFilters], paging: Query[Paging]) -> QuestionPage:
    """Questions in the projects that you may see, searched and filtered, in the order in which they came."""
    newest_first = only.sort == "newest"
    rows, following = page_of(request, _rows(request, only), paging, newest_first=newest_first)
    return QuestionPage(items=[QuestionOut.of(question) for question in rows], next=following)


@router.get("/questions/export", response=responses(str), auth=doors(Scope.READ), openapi_extra=sends(*KINDS))
def export_questions(
    request: HttpRequest, only: Query[QuestionFilters], which: Query[Taken]
) -> StreamingHttpResponse:
    """All questions that the filters let through, the newest first, as one table. The audit notes it."""
    return taken(
        request, QUESTION_COLUMNS, question_rows(_rows(request, only)), name="questions", which=which
    )


@router.get("/questions/{question_id}", response=responses(QuestionOut, 404), auth=doors(Scope.READ))
def get_question(request: HttpRequest, question_id: QuestionId) -> QuestionOut:
    """A question and, once it is answered, by whom, when and what."""
    return QuestionOut.of(permissions.question_or_404(principal_of(request), question_id))


@router.post(
    "/questions/{question_id}/answer",
    response=responses(Answered, 404, 413, 422, s409=NotOpenProblem),
    auth=doors(Scope.ANSWER),
)
@once
def answer_question(request: HttpRequest, question_id: QuestionId, body: AnswerIn) -> Status[Answered]:
    """Answer a question; the task goes on when none of its questions is open.

    The first answer holds. Whoever comes later gets 409 with the answer that was given; the same answer sent
    again by the same person gets 200, and nothing changes.
    """
    question = permissions.question_or_404(principal_of(request), question_id)
    act = partial(actions.answer_question, question, body.reply(question), by=principal_of(request))
    return _settled(question, act)


@router.post(
    "/questions/{question_id}/dismiss",
    response=responses(Answered, 404, 413, 422, s409=NotOpenProblem),
    auth=doors(Scope.ANSWER),
)
@once
def dismiss_question(request: HttpRequest, question_id: QuestionId, body: Dismissal) -> Status[Answered]:
    """Decline to answer: the agent decides by itself and says what it assumed.

    Approvals and plans cannot be dismissed and get 400: decide about them. Whoever comes after somebody else
    gets 409 with what was settled, as with answers.
    """
    question = permissions.question_or_404(principal_of(request), question_id)
    act = partial(actions.dismiss_question, question, by=principal_of(request), notes=body.notes)
    return _settled(question, act)


@router.post(
    "/questions/{question_id}/decide",
    response=responses(Answered, 404, 413, 422, s409=NotOpenProblem),
    auth=doors(Scope.ANSWER),
)
@once
def decide_question(request: HttpRequest, question_id: QuestionId, body: Decision) -> Status[Answered]:
    """Approve or deny a tool call; approve a plan or send it back.

    Whoever comes after somebody else gets 409 with what was settled, as with answers.
    """
    question = permissions.question_or_404(principal_of(request), question_id)
    act = partial(actions.decide, question, body.verdict, by=principal_of(request), notes=body.notes)
    return _settled(question, act)


def _settled(question: Question, act: Callable[..., actions.Answered]) -> Status[Answered]:
    """Who comes too late is told what was settled, by whom and when."""
    try:
        done = act(via=Channel.API)
    except NotOpen as error:
        raise Refused(
            Kind.NOT_OPEN, str(error), question=QuestionOut.of(question).model_dump(mode="json")
        ) from error
    return Status(200, Answered(question=QuestionOut.of(done.question), repeated=done.repeated))


def _rows(request: HttpRequest, only: QuestionFilters) -> QuerySet[Question]:
    rows = only.filters(state=only.state or "", via=only.via or "").matching_questions(principal_of(request))
    wanted = only.model_dump(include={"kind", "task"}, exclude_none=True)
    return rows.filter(**wanted).select_related("task__project", "step", "answered_by")
