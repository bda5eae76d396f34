"""Times are shown in the reader's zone, with the exact time on hover (W7)."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from tasks_app.models import Event, EventKind, Question, QuestionState
from tests.browser import signed_in
from tests.factories import QuestionFactory, UserFactory

pytestmark = pytest.mark.django_db

AT = datetime(2026, 1, 31, 20, 15, 30, tzinfo=UTC)


@pytest.fixture
def question() -> Question:
    user = UserFactory.create(first_name="Ada")
    question = QuestionFactory.create(
        state=QuestionState.ANSWERED, asked_at=AT, answered_at=AT, answered_by=user, answered_via="web"
    )
    Event.objects.create(run=question.run, seq=0, kind=EventKind.TEXT, at=AT, payload={"text": "Hello."})
    return question


def reader(zone: str) -> Client:
    client = signed_in(UserFactory.create(is_superuser=True))
    client.cookies["time_zone"] = zone
    return client


def places(question: Question) -> dict[str, str]:
    return {
        "history of the task": reverse("task_questions", args=[question.task_id]),
        "log": reverse("task_log", args=[question.task_id]),
        "card": reverse("question", args=[question.pk]),
    }


def test_times_are_in_the_zone_of_the_browser(question: Question, subtests: pytest.Subtests) -> None:
    for name, address in places(question).items():
        with subtests.test(name):
            page = reader("Asia%2FTokyo").get(address).text
            assert 'title="2026-02-01 05:15:30 JST"' in page
            assert "20:15:30" not in page.replace("2026-01-31T20:15:30", "")


def test_the_log_and_the_card_show_the_time_of_day_there(question: Question) -> None:
    client = reader("Asia/Tokyo")
    assert ">05:15:30</time>" in client.get(places(question)["log"]).text
    assert ">2026-02-01 05:15</time>" in client.get(places(question)["card"]).text


@pytest.mark.parametrize("zone", ["", "Nowhere/Atall", "../../etc/passwd", "%00", "x" * 3000])
def test_an_unknown_zone_is_utc_and_says_so(question: Question, zone: str) -> None:
    page = reader(zone).get(places(question)["log"])
    assert page.status_code == 200 and 'title="2026-01-31 20:15:30 UTC"' in page.text


def test_the_zone_of_one_reader_ends_with_the_request(question: Question) -> None:
    reader("Asia/Tokyo").get(places(question)["log"])
    assert timezone.get_current_timezone_name() == "UTC"


def test_the_api_stays_in_utc(question: Question) -> None:
    answer = reader("Asia/Tokyo").get(f"/api/v1/tasks/{question.task_id}")
    assert answer.status_code == 200 and "+09:00" not in answer.text


def test_every_page_sends_its_time_zone_also_the_login(client: Client) -> None:
    assert "catherder/time_zone" in client.get("/login/").text
