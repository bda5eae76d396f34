"""Questions: looking at them and answering."""

from __future__ import annotations

from django.db.models import QuerySet
from django.http import HttpRequest
from ninja import Field, Query, Router, Schema, Status

from tasks_app import access
from tasks_app.actions.answers import answer_question as answer
from tasks_app.api.door import doors, person
from tasks_app.api.idempotency import once
from tasks_app.api.operation import responses
from tasks_app.api.paging import Paging, page_of
from tasks_app.api.problems import Kind, Refused
from tasks_app.api.schemas.base import Number, QuestionId, Storable
from tasks_app.api.schemas.questions import (
    Answered,
    AnswerIn,
    NotOpenProblem,
    QuestionFacts,
    QuestionPage,
)
from tasks_app.errors import NotOpen
from tasks_app.facts import question_facts
from tasks_app.forms.answer import reply_from
from tasks_app.models import Channel, Question, QuestionKind, QuestionState, Scope

router = Router(tags=["Questions"])


class QuestionFilters(Schema):
    state: QuestionState | None = Field(None, description="Only open, answered or withdrawn ones.")
    kind: QuestionKind | None = Field(None, description="Only questions of this kind.")
    project: Storable | None = Field(None, description="Only those of the project of that name.")
    task: Number | None = Field(None, description="Only those of the task with this number.")


@router.get("/questions", response=responses(QuestionPage), auth=doors(Scope.READ))
def list_questions(request: HttpRequest, only: Query[QuestionFilters], paging: Query[Paging]) -> QuestionPage:
    """Questions in the projects that you may see, in the order in which they were asked."""
    rows, following = page_of(request, _rows(request, only), paging, newest_first=False)
    return QuestionPage(items=[_said(question) for question in rows], next=following)


@router.get("/questions/{question_id}", response=responses(QuestionFacts, 404), auth=doors(Scope.READ))
def get_question(request: HttpRequest, question_id: QuestionId) -> QuestionFacts:
    """A question and, once it is answered, by whom, when and what."""
    return _said(access.question_for(person(request), question_id))


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
    question = access.question_for(person(request), question_id)
    reply = reply_from(question, body.model_dump(exclude_none=True))
    try:
        answered = answer(question, reply, by=person(request), via=Channel.API)
    except NotOpen as error:
        raise Refused(Kind.NOT_OPEN, str(error), question=question_facts(question)) from error
    return Status(200, Answered(question=_said(answered.question), repeated=answered.repeated))


def _rows(request: HttpRequest, only: QuestionFilters) -> QuerySet[Question]:
    named = {"state": "state", "kind": "kind", "project": "task__project__name", "task": "task"}
    wanted = {named[name]: value for name, value in only.model_dump(exclude_none=True).items()}
    rows = Question.objects.visible_to(person(request)).filter(**wanted)
    return rows.select_related("task__project", "step", "answered_by")


def _said(question: Question) -> QuestionFacts:
    return QuestionFacts.model_validate(question_facts(question))
