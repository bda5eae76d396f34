"""Answering in the browser (H5, R1, R5): each status, as a page and as part of a page."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest
from django.conf import settings
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from tasks_app.core.phases import Phase
from tasks_app.history.events.blocks import NewEvent, append
from tasks_app.models import Channel, EventKind, Question, Role, User
from tasks_app.services.tasks import cancel_task
from tests.browser import signed_in
from tests.factories import COLUMNS, FILE_NAME, ROUNDING, MembershipFactory, QuestionFactory, UserFactory
from tests.markup import tidy
from tests.people import acting

pytestmark = pytest.mark.django_db

HTMX = {"HX-Request": "true"}
JSON = "application/json"


@pytest.fixture
def member(question: Question) -> User:
    return MembershipFactory.create(project=question.task.project, user__first_name="Ada").user


@pytest.fixture
def browser(member: User) -> Client:
    return signed_in(member)


def send(client: Client, question: Question, **fields: Any) -> Any:
    headers = fields.pop("headers", {})
    return client.post(
        address(question), {key.replace("_", "-"): v for key, v in fields.items()}, headers=headers
    )


def send_json(client: Client, question: Question, body: Any) -> Any:
    return client.post(address(question), body, content_type=JSON)


def address(question: Question) -> str:
    return reverse("question_answer", args=[question.pk])


def stored(question: Question) -> dict[str, str]:
    question.refresh_from_db()
    return question.answers


def test_of_two_questions_the_first_answer_does_not_resume_the_agent(
    browser: Client, question: Question
) -> None:
    other = QuestionFactory.create(
        task=question.task, run=question.run, number=question.number + 1, items=question.items
    )
    task = reverse("task", args=[question.task_id])
    page = tidy(browser.get(task).text)
    assert page.count(">Answer</button>") == 2 and "Answer and resume" not in page
    assert "2 questions are open. The task waits for the answers." in page
    page = tidy(send(browser, question, item_0="Half up").text)
    assert "1 more question before the agent resumes" in page and ", resuming" not in page
    assert "Answer and resume" in tidy(browser.get(reverse("question", args=[other.pk])).text)
    assert f"answered question {question.pk}" in tidy(browser.get(task).text)
    send(browser, other, item_0="Half up")
    assert ", resuming" in tidy(browser.get(reverse("question", args=[question.pk])).text)


def test_a_choice_is_stored_and_the_card_says_who_answered(browser: Client, question: Question) -> None:
    page = send(browser, question, item_0="Half up", notes="as in reports")
    assert page.status_code == 200
    assert "Answered by <strong>Ada</strong>" in page.text and "resuming" in page.text
    assert "<html" in page.text
    assert "As at school." in page.text and "As banks do." not in page.text, "what the chosen option means"
    assert stored(question) == {ROUNDING["question"]: "Half up"}
    assert (question.notes, question.answered_via) == ("as in reports", Channel.WEB)
    question.task.refresh_from_db()
    assert question.task.phase == Phase.PENDING


def test_htmx_gets_the_card_alone(browser: Client, question: Question) -> None:
    page = send(browser, question, item_0="Half up", headers=HTMX)
    assert page.text.strip().startswith("<article") and "<html" not in page.text


@pytest.mark.parametrize(
    ("previews", "classes"),
    [
        (["Tea 2.40", ""], "item previews-beside"),
        (["Tea 2.40\n" * 12, ""], "item previews-beside previews-tall"),
        (["Tea" + " " * 60 + "2.40", "Tea 2.40"], "item"),
        (["", ""], "item"),
    ],
)
def test_previews_stand_beside_the_options_where_they_fit(
    browser: Client, question: Question, previews: list[str], classes: str
) -> None:
    options = [{"label": str(number), "preview": text} for number, text in enumerate(previews)]
    Question.objects.filter(pk=question.pk).update(items=[{**ROUNDING, "options": options}])
    page = browser.get(reverse("question", args=[question.pk]), headers=HTMX).text
    assert f'<fieldset class="{classes}"' in page


def test_only_keys_that_there_are_stand_beside_options(browser: Client, question: Question) -> None:
    options = [{"label": f"Country {number}"} for number in range(20)]
    Question.objects.filter(pk=question.pk).update(items=[{**ROUNDING, "options": options}])
    page = browser.get(reverse("question", args=[question.pk]), headers=HTMX).text
    assert '<kbd aria-hidden="true">9</kbd>' in page and '<kbd aria-hidden="true">10</kbd>' not in page


def test_something_else_is_an_answer(browser: Client, question: Question) -> None:
    send(browser, question, item_0="", item_0_other="Never round")
    assert stored(question) == {ROUNDING["question"]: "Never round"}


def test_text_of_ones_own_counts_though_nothing_was_ticked(browser: Client, question: Question) -> None:
    send(browser, question, item_0_other="Never round")
    assert stored(question) == {ROUNDING["question"]: "Never round"}


def test_several_choices_and_a_text_become_one_answer(browser: Client, member: User) -> None:
    question = QuestionFactory.create(
        task__project=member.memberships.get().project, items=[COLUMNS, FILE_NAME]
    )
    send(
        browser, question, item_0=["Name", "E-mail", ""], item_0_other="VAT id", item_1_other="customers.csv"
    )
    assert stored(question) == {
        COLUMNS["question"]: "Name, E-mail, VAT id",
        FILE_NAME["question"]: "customers.csv",
    }


@pytest.mark.parametrize("text", ["", "   \r\n  "])
def test_an_empty_answer_is_400_and_says_what_is_missing(
    browser: Client, question: Question, text: str
) -> None:
    page = send(browser, question, item_0_other=text, notes="only a note")
    assert page.status_code == 400
    assert "Choose an option or type an answer." in page.text
    assert ">only a note</textarea>" in page.text
    assert stored(question) == {} and question.is_open


def test_one_of_several_left_out_is_400_names_it_and_keeps_the_rest(browser: Client, member: User) -> None:
    question = QuestionFactory.create(
        task__project=member.memberships.get().project, items=[COLUMNS, FILE_NAME]
    )
    page = send(browser, question, item_0=["E-mail"], item_0_other="VAT <id>")
    assert page.status_code == 400
    assert "What should the file be called?” has no answer yet" in page.text
    assert page.text.count("checked") == 3  # E-mail, "something else", and "this task"
    assert "VAT &lt;id&gt;</textarea>" in page.text


def test_a_choice_and_a_text_that_contradict_are_400(browser: Client, question: Question) -> None:
    page = send(browser, question, item_0="Half up", item_0_other="or rather not at all")
    assert page.status_code == 400
    assert "“Half up” is chosen and there is text under “Something else”" in page.text
    assert "or rather not at all</textarea>" in page.text
    assert stored(question) == {}


def test_htmx_gets_the_refusal_beside_the_input(browser: Client, question: Question) -> None:
    page = send(browser, question, headers=HTMX)
    assert page.status_code == 400
    assert page["HX-Retarget"] == f"#question-{question.pk}-refusal-item-0"
    assert "<form" not in page.text


def test_the_same_answer_again_is_200_and_changes_nothing(browser: Client, question: Question) -> None:
    send(browser, question, item_0="Half up")
    first = Question.objects.get(pk=question.pk)
    page = send(browser, question, item_0="Half up")
    assert page.status_code == 200 and "Answered by" in page.text
    assert Question.objects.get(pk=question.pk).answered_at == first.answered_at


def test_a_late_answer_is_409_says_who_and_what_and_gives_the_text_back(
    browser: Client, question: Question
) -> None:
    send(browser, question, item_0="Half up")
    other = signed_in(MembershipFactory.create(project=question.task.project).user)
    page = send(other, question, item_0_other="Too late, alas", notes="with a note")
    assert page.status_code == 409
    assert "<strong>Ada</strong>" in page.text and "Half up" in page.text
    assert "Your answer was not accepted" in page.text
    assert "Too late, alas\nwith a note</textarea>" in page.text
    assert stored(question) == {ROUNDING["question"]: "Half up"}


def test_an_answer_to_a_withdrawn_question_is_409(browser: Client, member: User, question: Question) -> None:
    cancel_task(question.task, by=acting(member))
    page = send(browser, question, item_0="Half up")
    assert page.status_code == 409 and "Withdrawn: the task was cancelled" in page.text


def test_100_kilobytes_are_an_answer(browser: Client, question: Question) -> None:
    text = 'äöü @/etc/passwd "; rm -rf /\n' * 3600
    assert send(browser, question, item_0_other=text).status_code == 200
    assert stored(question) == {ROUNDING["question"]: text}


def test_too_long_is_413_readable_and_keeps_what_was_typed(browser: Client, question: Question) -> None:
    text = "x" * (settings.ENVIRONMENT.answer_limit + 1)
    page = send(browser, question, item_0_other=text)
    assert page.status_code == 413
    assert "The answer has 200,001 characters; this installation takes up to 200,000." in page.text
    assert text in page.text
    assert question.is_open


@pytest.mark.parametrize("headers", [{}, HTMX, {"Accept": JSON}])
def test_past_all_bounds_is_413_too(browser: Client, question: Question, headers: dict[str, str]) -> None:
    text = "x" * (settings.DATA_UPLOAD_MAX_MEMORY_SIZE + 1)
    page = browser.post(
        address(question), f"notes={text}", content_type="application/x-www-form-urlencoded", headers=headers
    )
    assert page.status_code == 413 and "too long and was not read" in page.text


def test_a_viewer_gets_403_and_sees_no_form(question: Question) -> None:
    client = signed_in(MembershipFactory.create(project=question.task.project, role=Role.VIEWER).user)
    page = send(client, question, item_0="Half up")
    assert page.status_code == 403 and "does not allow this" in page.text
    part = send(client, question, item_0="Half up", headers=HTMX)
    assert part.status_code == 403 and "<html" not in part.text
    shown = client.get(reverse("question", args=[question.pk]))
    assert "does not allow you to answer" in shown.text and "Answer and resume" not in shown.text
    assert stored(question) == {}


def test_what_one_may_not_see_is_404(question: Question) -> None:
    client = signed_in(UserFactory.create())
    assert send(client, question, item_0="Half up").status_code == 404
    assert send_json(client, question, {"answer": "Half up"}).status_code == 404


def test_a_reload_of_the_address_of_a_form_shows_the_question(browser: Client, question: Question) -> None:
    page = browser.get(address(question))
    assert (page.status_code, page["Location"]) == (302, reverse("question", args=[question.pk]))
    assert Question.objects.get().is_open


def test_a_form_without_its_token_is_refused(member: User, question: Question) -> None:
    client = signed_in(member, enforce_csrf_checks=True)
    assert send(client, question, item_0="Half up").status_code == 403
    assert send_json(client, question, {"answer": "Half up"}).status_code == 403
    assert stored(question) == {}


@pytest.mark.parametrize("name", ["question_answer", "question_dismiss", "question_decide"])
@pytest.mark.parametrize("kind", [JSON, "text/plain", ""])
def test_only_forms_are_accepted(browser: Client, question: Question, name: str, kind: str) -> None:
    """Scripts use the API. A body that is not a form must not count as an empty form, which skips."""
    url = reverse(name, args=[question.pk])
    body = '{"answer": "Half up", "notes": "n"}'
    page = browser.generic("POST", url, body, content_type=kind)
    assert page.status_code == 415 and "only accepts form submissions" in page.text
    part = browser.generic("POST", url, body, content_type=kind, headers=HTMX)
    assert part.status_code == 415 and "<html" not in part.text
    assert stored(question) == {} and question.is_open


def test_a_form_gets_a_page_whatever_is_accepted(browser: Client, question: Question) -> None:
    page = send(browser, question, item_0="Half up", headers={"Accept": JSON})
    assert page.status_code == 200 and "<html" in page.text


def test_an_open_card_that_is_shown_is_never_sent_again(browser: Client, question: Question) -> None:
    """A form in use must survive other people's events."""
    card = reverse("question", args=[question.pk])
    assert browser.get(card, {"shown": "open"}, headers=HTMX).status_code == 204
    send(browser, question, item_0="Half up")
    assert "Answered by" in browser.get(card, {"shown": "open"}, headers=HTMX).text


def test_an_answer_reads_nothing_twice(browser: Client, question: Question) -> None:
    """Many people may answer at once, so each statement of an answer counts."""
    append(question.run, [NewEvent(EventKind.TEXT, {"text": "I ask."})], seq=0)
    with CaptureQueriesContext(connection) as captured:
        assert send(browser, question, item_0="Half up", headers=HTMX).status_code == 200
    said = [query["sql"] for query in captured.captured_queries]
    reads = Counter(re.findall(r'^SELECT .*? FROM "tasks_app_(\w+)"', "\n".join(said), re.MULTILINE))
    # The question once as it is shown, and once whether the task has another open one. The project is what
    # the reader may act in; the event, the next number in the log; who was asked is shown.
    assert reads == {
        "browsersession": 1, "user": 1, "question": 2, "project": 1, "decision": 1, "task": 1, "event": 1,
        "asked": 1, "rung": 1,
    }  # fmt: skip
    written = Counter(re.findall(r'^(?:INSERT INTO|UPDATE) "tasks_app_(\w+)"', "\n".join(said), re.MULTILINE))
    assert written == {
        "question": 1, "indexedanswer": 1, "auditentry": 1, "event": 1, "step": 1, "task": 1, "transition": 1,
        "change": 2,
    }, "the change of the phase says that the question was answered, too"  # fmt: skip
    # The test's own transaction makes the outermost block a savepoint.
    assert sum(sql.startswith("SAVEPOINT") for sql in said) == 1
    joined = next(sql for sql in said if 'FROM "tasks_app_question"' in sql).count(" JOIN ")
    assert joined <= 5, "who has answered is read when it is shown"
    assert len(said) <= 21, "14 of them are the transaction"
