"""Dismissing a question; deciding about tool calls and plans (H5, R1, W4): the first is taken, once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tasks_app.api.app import document
from tasks_app.core.errors import AnswerEmpty, AnswerTooLong, BadInput, NotAllowed, NotOpen
from tasks_app.core.phases import Phase
from tasks_app.history.events.lines import format_event
from tasks_app.management.commands.answer import Command as AnswerCommand
from tasks_app.models import (
    Action,
    AuditEntry,
    Channel,
    EventKind,
    Outcome,
    Question,
    QuestionKind,
    QuestionState,
    Role,
    User,
    Verdict,
)
from tasks_app.services.questions.answers import Reply, answer_question, decide, dismiss_question
from tasks_app.services.tasks import cancel_task, resume_task
from tests.factories import MembershipFactory, QuestionFactory
from tests.people import acting

pytestmark = pytest.mark.django_db

WEB = Channel.WEB
PUSH = {"question": "Allow this command?\n\n`git push`", "options": [{"label": "Approve"}, {"label": "Deny"}]}


def asked(kind: QuestionKind = QuestionKind.CLARIFICATION, **more: Any) -> Question:
    items = {} if kind == QuestionKind.CLARIFICATION else {"items": [PUSH]}
    question: Question = QuestionFactory.create(kind=kind, **items, **more)
    return question


def member_of(question: Question, role: Role = Role.MEMBER) -> User:
    user: User = MembershipFactory.create(project=question.task.project, role=role).user
    return user


def log_line(question: Question) -> str:
    return format_event(question.run.events.get(kind=EventKind.ANSWER)).split("] ", 1)[1].strip()


def test_a_dismissed_question_has_no_answer_and_says_who_dismissed_it() -> None:
    question = asked()
    ada = member_of(question)
    dismissed = dismiss_question(question, by=acting(ada), via=WEB, notes="Not mine to say.").question
    dismissed.refresh_from_db()
    assert (dismissed.state, dismissed.answers, dismissed.answered_by) == (QuestionState.DISMISSED, {}, ada)
    assert dismissed.answered_at is not None
    assert log_line(dismissed) == f'[USER_INPUT] Dismissed by {ada.shown_name}: "Not mine to say."'
    dismissed.task.refresh_from_db()
    assert dismissed.task.phase == Phase.PENDING
    assert AuditEntry.objects.get(action=Action.DISMISSED).actor == ada


@pytest.mark.parametrize(
    ("kind", "verdict", "notes", "action"),
    [
        (QuestionKind.APPROVAL, Verdict.APPROVED, "", Action.APPROVED),
        (QuestionKind.APPROVAL, Verdict.DENIED, "Not on Fridays.", Action.DENIED),
        (QuestionKind.PLAN, Verdict.APPROVED, "Good.", Action.PLAN_APPROVED),
        (QuestionKind.PLAN, Verdict.SENT_BACK, "Tests first.", Action.PLAN_SENT_BACK),
    ],
)
def test_a_verdict_is_kept_with_who_gave_it(
    kind: QuestionKind, verdict: Verdict, notes: str, action: Action
) -> None:
    question = asked(kind)
    ada = member_of(question)
    decide(question, verdict, by=acting(ada), via=WEB, notes=notes)
    question.refresh_from_db()
    assert (question.state, question.verdict, question.notes) == (QuestionState.ANSWERED, verdict, notes)
    said = f': "{notes}"' if notes else ""
    assert log_line(question) == f"[USER_INPUT] {verdict.label} by {ada.shown_name}{said}"
    entry = AuditEntry.objects.get(action=action)
    about = str(question.task) if kind == QuestionKind.PLAN else question.headline
    assert (entry.actor, entry.subject) == (ada, about)
    question.task.refresh_from_db()
    assert question.task.phase == Phase.PENDING


@pytest.mark.parametrize("notes", ["", "  \n"])
def test_denying_and_sending_back_want_a_reason(notes: str) -> None:
    for kind, verdict in ((QuestionKind.APPROVAL, "denied"), (QuestionKind.PLAN, "sent_back")):
        question = asked(kind)
        with pytest.raises(AnswerEmpty, match=r"Enter (a reason|your comments)"):
            decide(question, verdict, by=acting(member_of(question)), via=WEB, notes=notes)
        question.refresh_from_db()
        assert question.is_open


@pytest.mark.parametrize(
    ("kind", "verdict"),
    [
        (QuestionKind.CLARIFICATION, "approved"),
        (QuestionKind.APPROVAL, "sent_back"),
        (QuestionKind.APPROVAL, "nonsense"),
        (QuestionKind.PLAN, "denied"),
        (QuestionKind.PLAN, ""),
    ],
)
def test_a_verdict_must_fit_the_question(kind: QuestionKind, verdict: str) -> None:
    question = asked(kind)
    with pytest.raises(BadInput, match=f"Question {question.pk} is a"):
        decide(question, verdict, by=acting(member_of(question)), via=WEB, notes="why")


def test_the_docs_the_command_and_the_api_say_that_only_questions_can_be_dismissed() -> None:
    docs = (Path(__file__).parents[2] / "docs/approvals.md").read_text()
    shown = AnswerCommand().create_parser("manage.py", "answer").format_help()
    (described,) = [
        one["post"]["description"] for path, one in document()["paths"].items() if path.endswith("/dismiss")
    ]
    for text in (docs, shown, described):
        assert "Approvals, plans and questions about costs cannot be dismissed" in " ".join(text.split())


@pytest.mark.parametrize("kind", [QuestionKind.APPROVAL, QuestionKind.PLAN])
def test_approvals_and_plans_cannot_be_answered_or_dismissed(kind: QuestionKind) -> None:
    question = asked(kind)
    ada = member_of(question)
    with pytest.raises(BadInput, match="approve"):
        answer_question(question, Reply.to(question, "Approve"), by=acting(ada), via=WEB)
    with pytest.raises(BadInput, match="approve"):
        dismiss_question(question, by=acting(ada), via=WEB)
    question.refresh_from_db()
    assert question.is_open


def test_the_same_decision_by_the_same_person_changes_nothing_and_any_other_is_late() -> None:
    question = asked(QuestionKind.APPROVAL)
    ada, bob = member_of(question), member_of(question)
    decide(question, "denied", by=acting(ada), via=WEB, notes="No.")
    again = decide(Question.objects.get(pk=question.pk), "denied", by=acting(ada), via=WEB, notes="No.")
    assert again.repeated
    for who, verdict, notes in ((ada, "approved", ""), (bob, "denied", "No."), (ada, "denied", "Never.")):
        with pytest.raises(NotOpen, match=rf"^Denied by {ada.shown_name} at .*: No\.$"):
            decide(Question.objects.get(pk=question.pk), verdict, by=acting(who), via=WEB, notes=notes)
    assert AuditEntry.objects.filter(action=Action.DENIED).count() == 1


def test_an_answer_after_a_dismissal_is_told_of_it() -> None:
    question = asked()
    ada = member_of(question)
    dismiss_question(question, by=acting(ada), via=WEB)
    late = Question.objects.get(pk=question.pk)
    assert dismiss_question(late, by=acting(ada), via=WEB).repeated
    with pytest.raises(NotOpen, match=rf"^Dismissed by {ada.shown_name} at [-0-9: ]+ UTC\.$"):
        answer_question(late, Reply.to(late, "Half up"), by=acting(ada), via=WEB)


def test_viewers_and_outsiders_decide_nothing() -> None:
    question, approval = asked(), asked(QuestionKind.APPROVAL)
    for stranger in (member_of(question, Role.VIEWER), member_of(asked())):
        with pytest.raises(NotAllowed):
            dismiss_question(question, by=acting(stranger), via=WEB)
    for stranger in (member_of(approval, Role.VIEWER), member_of(asked())):
        with pytest.raises(NotAllowed):
            decide(approval, "approved", by=acting(stranger), via=WEB)


def test_bad_notes_are_refused(settings: Any) -> None:
    question = asked(QuestionKind.APPROVAL)
    ada = member_of(question)
    with pytest.raises(BadInput, match="NUL"):
        decide(question, "denied", by=acting(ada), via=WEB, notes="\x00")
    with pytest.raises(AnswerTooLong):
        decide(
            question, "denied", by=acting(ada), via=WEB, notes="x" * (settings.ENVIRONMENT.answer_limit + 1)
        )


def test_a_cancel_withdraws_an_approval_and_going_on_opens_it_again() -> None:
    question = asked(QuestionKind.APPROVAL)
    ada = member_of(question)
    question.run.outcome = Outcome.ASKED
    question.run.save()
    cancel_task(question.task, by=acting(ada))
    question.refresh_from_db()
    assert question.state == QuestionState.WITHDRAWN
    with pytest.raises(NotOpen, match="withdrawn"):
        decide(question, "approved", by=acting(ada), via=WEB)
    resume_task(question.task, by=acting(ada))
    question.refresh_from_db()
    assert question.is_open
    decide(question, "approved", by=acting(ada), via=WEB)


def test_two_questions_keep_the_task_waiting_until_both_are_settled() -> None:
    question = asked()
    beside = asked(QuestionKind.APPROVAL, task=question.task, run=question.run, number=2)
    ada = member_of(question)
    dismiss_question(question, by=acting(ada), via=WEB)
    question.task.refresh_from_db()
    assert question.task.phase == Phase.WAITING_FOR_INPUT
    decide(beside, "approved", by=acting(ada), via=WEB)
    question.task.refresh_from_db()
    assert question.task.phase == Phase.PENDING
