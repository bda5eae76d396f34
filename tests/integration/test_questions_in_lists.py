"""What lists, notifications and logs call a question (H3), and code in the words of agents (V2)."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.urls import reverse
from django.utils import timezone

from tasks_app.core.phases import Phase
from tasks_app.history.events.blocks import append_one, question_payload
from tasks_app.models import (
    Delivery,
    EventKind,
    Notice,
    Outcome,
    Question,
    QuestionKind,
    QuestionState,
    Reason,
    Run,
    Task,
    Transition,
    User,
    Verdict,
)
from tasks_app.notifications.mail import subject
from tasks_app.notifications.message import message_of
from tasks_app.notifications.notices import create_notifications
from tests.browser import signed_in
from tests.factories import DecisionFactory, MembershipFactory, QuestionFactory, RunFactory, UserFactory

pytestmark = pytest.mark.django_db

BACK = {"question": "The bank rounds up. Is this right for us?", "header": "Rounding", "options": []}
OTHER = {"question": "Which columns does the table have?", "header": "Columns", "options": []}


@pytest.fixture
def reader() -> User:
    return UserFactory.create(is_superuser=True, username="root")


def page(reader: User, name: str, *args: int, **query: Any) -> str:
    response = signed_in(reader).get(reverse(name, args=args), query)
    assert response.status_code == 200
    return str(response.text)


def words(page: str) -> str:
    """The words of a page, without those of its fields."""
    shown = re.sub(r"<(textarea|script|title)\b.*?</\1>", "", page, flags=re.DOTALL)
    return " ".join(re.sub(r"<[^>]*>", " ", shown).split())


def halted(question: Question, reader: User) -> None:
    MembershipFactory.create(project=question.task.project, user=reader)
    Transition.objects.create(task=question.task, source=Phase.RUNNING, target=Phase.WAITING_FOR_INPUT)
    create_notifications()


@pytest.mark.parametrize("place", ["tasks", "inbox", "notices", "quick_search"])
def test_h3_a_question_in_a_list_says_what_it_is_about(reader: User, place: str) -> None:
    halted(QuestionFactory.create(items=[BACK]), reader)
    halted(QuestionFactory.create(items=[BACK, OTHER]), reader)
    shown = words(page(reader, place))
    assert re.search("Rounding:? The bank rounds up[.] Is this right for us[?]", shown), shown
    assert re.search(r"Is this right for us[?] [(]?and 1 more: Columns", shown), shown


@pytest.mark.parametrize(
    ("kind", "name", "line"),
    [
        (QuestionKind.APPROVAL, "Approval", "needs an approval"),
        (QuestionKind.PLAN, "Plan", "waits for its review"),
        (QuestionKind.CLARIFICATION, "Question", "A question is open"),
    ],
)
def test_h5_a_plan_and_an_approval_are_called_by_their_kind(
    reader: User, kind: QuestionKind, name: str, line: str
) -> None:
    item = {"question": "Go?", "header": name, "options": []}
    question = QuestionFactory.create(kind=kind, items=[item], number=7_001)
    run = question.run
    append_one(run, EventKind.QUESTION, question_payload(question))
    Run.objects.filter(pk=run.pk).update(outcome=Outcome.ASKED, ended_at=timezone.now())
    reasons = {QuestionKind.APPROVAL: Reason.APPROVED, QuestionKind.PLAN: Reason.PLAN}
    RunFactory.create(
        step=question.step, number=2, reason=reasons.get(kind, Reason.ANSWER), task=question.task
    )
    halted(question, reader)
    task = words(page(reader, "task", question.task_id))
    assert line in task and task.count(f"{name} {question.pk} ") == 1, "in the log"
    assert "7001" not in task, "`answer` and the addresses of questions take their ids"
    assert ("resumed with an answer" in task) == ("asked and stopped" in task) == (name == "Question")
    assert f"{name} Go?" in words(page(reader, "tasks")) or name == "Question"
    assert re.search(rf"{name} +Go\?", words(page(reader, "notices"))), "its name is said once"
    told = message_of(Delivery(transition=Notice.objects.get().transition, event_type="question"))
    assert ("Question:" in subject([told])) == (name == "Question") and f"{name}: " in subject([told])


def test_v2_code_in_the_words_of_agents_is_code_wherever_they_are_shown(reader: User) -> None:
    item = {
        "question": "Use `round()` here?",
        "header": "`round`",
        "options": [
            {"label": "Keep `round()`", "description": "As `math` does."},
            {"label": "Drop it", "description": ""},
        ],
    }
    question = QuestionFactory.create(items=[item])
    member = MembershipFactory.create(project=question.task.project).user
    DecisionFactory.create(project=question.task.project, statement="`round()` is used here for the totals.")
    append_one(question.run, EventKind.QUESTION, question_payload(question))
    open_card = page(member, "question", question.pk)
    assert "<code>math</code>" in open_card and "`" not in words(open_card)
    Question.objects.filter(pk=question.pk).update(
        state=QuestionState.ANSWERED, answered_at=timezone.now(), answered_via="web", answered_by=member,
        answers={item["question"]: "Keep `round()`"}, notes="See `math`.",
    )  # fmt: skip
    said = {"text": "Keep `round()`", "by": "Ann", "via": "web", "number": 1, "question_id": question.pk}
    append_one(question.run, EventKind.ANSWER, said)
    Task.objects.update(phase=Phase.DONE)
    places = {"question": question.pk, "task": question.task_id, "task_log": question.task_id,
              "task_result": question.task_id, "decisions": question.task.project_id}  # fmt: skip
    for name, of in places.items():
        shown = page(reader, name, of)
        assert "`" not in words(shown) and "<code>round()</code>" in shown, name
    for query in ({"state": "answered"}, {"kind": "questions"}):
        assert "`" not in words(page(reader, "inbox" if "state" in query else "tasks_all", **query))


def test_h5_the_verdict_of_a_plan_is_no_answer(reader: User) -> None:
    """In the history its state is named beside its number."""
    question = QuestionFactory.create(
        kind=QuestionKind.PLAN, state=QuestionState.ANSWERED, verdict=Verdict.APPROVED, answered_by=reader,
        answered_at=timezone.now(), items=[{"question": "Is it good?", "header": "Plan", "options": []}],
    )  # fmt: skip
    assert f'title="Plan {question.pk} in the log"' in page(reader, "task_questions", question.task_id)
