"""M8: the question at a soft cost limit is answered wherever questions are answered."""

from __future__ import annotations

import io
import os
from typing import Any

import pytest
from django.urls import reverse

from tasks_app.cli.questions import Prompt
from tasks_app.cli.terminal import Keyboard, Screen
from tasks_app.core.errors import BadAmount
from tasks_app.core.phases import Phase
from tasks_app.models import Channel, EventType, Notice, Question, QuestionKind, Role, Transition
from tasks_app.notifications.notices import create_notifications
from tasks_app.services.usage.cost_limits import END, allow_more
from tests.api import Script
from tests.browser import signed_in
from tests.factories import MembershipFactory, QuestionFactory, UserFactory
from tests.integration.conftest import Manage

pytestmark = pytest.mark.django_db

TEXT = "The task has reached its soft limit of $2.00: it has cost $2.03.\n\n1 of 2 steps done."
HTMX = {"HX-Request": "true"}


@pytest.fixture
def asked() -> Question:
    options = [{"label": label, "description": "", "preview": ""} for label in (allow_more(2), END)]
    item = {"question": TEXT, "header": "Cost", "options": options, "multiSelect": False}
    return QuestionFactory.create(
        kind=QuestionKind.COST, way="portal", items=[item], deferred=False,
        tool_input={"spent_usd": 2.03, "most_usd": 3.0},
    )  # fmt: skip


def client_of(question: Question, role: Role = Role.MEMBER) -> Any:
    return signed_in(MembershipFactory.create(project=question.task.project, role=role).user)


def outcome(question: Question) -> tuple[str, float | None]:
    """The answer, and what the task may cost then, to the cent."""
    question.refresh_from_db()
    allowed = question.allowed_usd
    return question.answer_text, None if allowed is None else round(allowed, 2)


@pytest.mark.parametrize("page", ["task", "question", "inbox"])
def test_the_card_offers_to_go_on_an_amount_and_the_end(asked: Question, page: str) -> None:
    args = {"task": [asked.task_id], "question": [asked.pk], "inbox": []}[page]
    text = client_of(asked).get(reverse(page, args=args)).text
    for said in ("Soft cost limit reached", "Allow $2.00 more", END, "Another amount", "Send answer"):
        assert said in text
    assert "Let the agent decide" not in text and "Question from the agent" not in text


def test_who_may_not_answer_sees_it_without_a_form(asked: Question) -> None:
    text = client_of(asked, Role.VIEWER).get(reverse("question", args=[asked.pk])).text
    assert "Allow $2.00 more" in text and "does not allow you to answer" in text


def test_an_option_and_a_typed_amount_are_taken(asked: Question) -> None:
    page = client_of(asked).post(
        reverse("question_answer", args=[asked.pk]), {"item-0": "", "item-0-other": "$1.5", "notes": "Hurry."}
    )
    assert page.status_code == 200 and "Allow $1.50 more" in page.text and "resuming" in page.text
    assert outcome(asked) == ("Allow $1.50 more\n\nNotes: Hurry.", 3.53)
    assert asked.answered_via == Channel.WEB


def test_the_card_says_that_the_task_is_ended(asked: Question) -> None:
    page = client_of(asked).post(reverse("question_answer", args=[asked.pk]), {"item-0": END})
    assert "ending the task" in page.text and outcome(asked) == (END, None)


@pytest.mark.parametrize(
    ("typed", "said"), [("lots", "such as 2.50, not “lots”"), ("9", "at most 3.00 dollars"), ("", "Choose")]
)
def test_a_wrong_amount_is_said_at_its_field(asked: Question, typed: str, said: str) -> None:
    client, url = client_of(asked), reverse("question_answer", args=[asked.pk])
    part = client.post(url, {"item-0-other": typed}, headers=HTMX)
    assert (part.status_code, part["HX-Retarget"]) == (400, f"#question-{asked.pk}-refusal-item-0")
    assert said in part.text
    page = client.post(url, {"item-0-other": typed})
    assert page.status_code == 400 and said in page.text
    assert asked.answers == {}


def test_it_cannot_be_skipped_or_approved(asked: Question) -> None:
    client = client_of(asked)
    for name in ("question_dismiss", "question_decide"):
        page = client.post(reverse(name, args=[asked.pk]), {"verdict": "approved"})
        assert page.status_code == 400 and "soft cost limit" in page.text


def test_the_api_shows_and_answers_it(asked: Question) -> None:
    script = Script(MembershipFactory.create(project=asked.task.project).user)
    (listed,) = script.get("/questions?kind=cost").json()["items"]
    assert (listed["kind"], listed["allowed_usd"], listed["claimed_by"]) == ("cost", None, None)
    refused = script.post(f"/questions/{asked.pk}/answer", {"answer": "lots"})
    assert refused.status_code == 400
    assert refused.json()["errors"][0]["where"] == "answer"
    assert script.post(f"/questions/{asked.pk}/claim").status_code == 200
    answered = script.post(f"/questions/{asked.pk}/answer", {"answer": "0.50"})
    assert answered.json()["question"]["allowed_usd"] == pytest.approx(2.53)
    again = script.post(f"/questions/{asked.pk}/answer", {"answer": "$0.5"})
    assert (again.status_code, again.json()["repeated"]) == (200, True)
    other = Script(MembershipFactory.create(project=asked.task.project).user)
    assert other.post(f"/questions/{asked.pk}/answer", {"answer": END}).status_code == 409


def test_the_api_takes_an_answer_back(asked: Question, settings: Any) -> None:
    settings.ENVIRONMENT = settings.ENVIRONMENT.model_copy(update={"undo_seconds": 60})
    script = Script(MembershipFactory.create(project=asked.task.project).user)
    script.post(f"/questions/{asked.pk}/answer", {"answer": "0.50"})
    undone = script.post(f"/questions/{asked.pk}/undo")
    assert (undone.status_code, undone.json()["state"], undone.json()["allowed_usd"]) == (200, "open", None)


def test_the_card_of_an_answer_taken_back_has_what_was_entered(asked: Question, settings: Any) -> None:
    settings.ENVIRONMENT = settings.ENVIRONMENT.model_copy(update={"undo_seconds": 60})
    client = client_of(asked)
    client.post(reverse("question_answer", args=[asked.pk]), {"item-0-other": "1.5"})
    page = client.post(reverse("question_undo", args=[asked.pk]))
    assert page.status_code == 200 and ">Allow $1.50 more</textarea>" in page.text
    client.post(reverse("question_answer", args=[asked.pk]), {"item-0-other": "Allow $1.50 more"})
    assert outcome(asked) == ("Allow $1.50 more", 3.53)


def test_it_is_announced_like_every_question(asked: Question) -> None:
    member = MembershipFactory.create(project=asked.task.project).user
    Transition.objects.create(task=asked.task, source=Phase.RUNNING, target=Phase.WAITING_FOR_INPUT)
    create_notifications()
    notice = Notice.objects.get(user=member)
    assert notice.event_type == EventType.QUESTION and "it has cost $2.03" in notice.headline


@pytest.mark.parametrize(
    ("typed", "stored"),
    [
        ("1", (allow_more(2), 4.03)),
        ("2", (END, None)),
        ("$2", (allow_more(2), 4.03)),
        ("0.75", (allow_more(0.75), 2.78)),
    ],
)
def test_the_terminal_answers_it(
    asked: Question, manage: Manage, typed: str, stored: tuple[str, float | None]
) -> None:
    UserFactory.create(username="ann", is_superuser=True)
    assert manage("answer", "--as", "ann", asked.pk, typed)[0] == 0
    assert outcome(asked) == stored


@pytest.mark.parametrize(
    ("typed", "said"),
    [("3", "There is no option 3. Type an amount with its sign: $3."), ("$9", "at most 3.00 dollars")],
)
def test_the_terminal_refuses_what_is_no_amount(
    asked: Question, manage: Manage, typed: str, said: str
) -> None:
    UserFactory.create(username="ann", is_superuser=True)
    code, _, errors = manage("answer", "--as", "ann", asked.pk, typed)
    assert code == 2 and said in errors
    assert asked.is_open


def test_the_terminal_shows_it_and_how_to_answer(asked: Question, manage: Manage) -> None:
    UserFactory.create(username="ann", is_superuser=True)
    out = manage("status", asked.task_id)[1]
    assert "Allow $2.00 more" in out and f"answer {asked.pk}" in out


def test_the_prompt_of_the_terminal_takes_an_amount_with_its_sign(asked: Question) -> None:
    """A number alone chooses an option there, so “3” is refused instead of meaning three dollars."""
    reading, writing = os.pipe()
    os.write(writing, b"1.25\n2\n3\n")
    os.close(writing)
    shown = io.StringIO()
    prompt = Prompt(Screen(shown), Keyboard(reading), check_interrupt=lambda: None)
    assert prompt.reply_to(asked).answers == {asked.headline: "1.25"}
    assert prompt.reply_to(asked).answers == {asked.headline: END}
    with pytest.raises(BadAmount, match=r"There is no option 3\. Type an amount with its sign: \$3\."):
        prompt.reply_to(asked)
    assert "an amount of dollars with its sign, such as $2.50" in shown.getvalue()
    os.close(reading)
