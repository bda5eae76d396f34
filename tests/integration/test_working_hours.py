"""Working hours, time zone and absences of people, on their page and in the API (SPEC Q4)."""

from __future__ import annotations

from datetime import date, time
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.test import Client
from django.urls import reverse

from tasks_app.core.working_hours import Absence, Hours, Schedule
from tasks_app.models import User, WorkingHours
from tasks_app.services.working_hours import schedule_of
from tests.api import Script
from tests.browser import signed_in
from tests.factories import UserFactory

pytestmark = pytest.mark.django_db
DAY = {"begin": "07:30", "end": "16:00"}
OWN = {
    "week": [DAY, DAY, None, DAY, DAY, None, None],
    "absences": [{"first": "2026-12-24", "last": "2027-01-02", "word": "holiday"}],
    "time_zone": "Europe/Berlin",
}


@pytest.fixture
def user() -> User:
    return UserFactory.create()


def schedule(user: User) -> Schedule:
    return schedule_of(User.objects.get(pk=user.pk))


def form(**given: str) -> dict[str, str]:
    sent = {f"{edge}-{day}": "" for day in range(7) for edge in ("begin", "end")}
    sent |= {f"absences-{n}-{name}": "" for n in range(2) for name in ("first", "last", "word")}
    management = {"absences-TOTAL_FORMS": "2", "absences-INITIAL_FORMS": "0"}
    return {**sent, **management, "time_zone": "Europe/Berlin", **given}


def test_without_a_row_a_person_works_from_monday_to_friday_in_their_zone(user: User) -> None:
    """Q4: the default needs no row."""
    assert schedule(user) == Schedule(ZoneInfo("UTC"), absences=[])
    user.time_zone = "Asia/Tokyo"
    user.save()
    assert schedule(user) == Schedule(ZoneInfo("Asia/Tokyo"), absences=[])
    page = signed_in(user).get(reverse("me_working_hours")).text
    assert page.count('value="09:00"') == page.count('value="18:00"') == 5
    assert not WorkingHours.objects.exists()


def test_the_page_saves_hours_days_off_and_the_zone(user: User) -> None:
    """Q4."""
    sent = form(
        **{
            "begin-0": "10:00",
            "end-0": "00:00",
            "absences-0-first": "2026-12-24",
            "absences-0-word": "Yule",
        }
    )
    client = signed_in(user)
    assert client.post(reverse("me_working_hours"), sent).status_code == 302
    found = schedule(user)
    assert found.week == [Hours(time(10), time(0)), *[None] * 6] and found.zone.key == "Europe/Berlin"
    assert found.absences == [Absence(date(2026, 12, 24), date(2026, 12, 24), "Yule")]
    page = client.get(reverse("me_working_hours")).text
    assert 'value="Yule"' in page and 'value="2026-12-24"' in page and "data-browser-time-zone" not in page
    without = form(**{
        "begin-0": "10:00", "end-0": "00:00", "absences-INITIAL_FORMS": "1",
        "absences-0-first": "2026-12-24", "absences-0-DELETE": "on",
    })  # fmt: skip
    assert client.post(reverse("me_working_hours"), without).status_code == 302
    assert schedule(user).absences == []


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"begin-0": "10:00"},
        {"begin-0": "10:00", "end-0": "10:00"},
        {"begin-0": "x", "end-0": "09:00"},
        {"begin-0": "9:00", "end-0": "10:00", "time_zone": "Mars/Crater"},
        {
            "begin-0": "9:00",
            "end-0": "10:00",
            "absences-0-first": "2026-12-24",
            "absences-0-last": "2026-12-01",
        },
        {"begin-0": "9:00", "end-0": "10:00", "absences-0-word": "no day"},
    ],
)
def test_the_page_refuses_what_is_no_week(user: User, given: dict[str, str]) -> None:
    """Q4."""
    assert signed_in(user).post(reverse("me_working_hours"), form(**given)).status_code == 400
    assert not WorkingHours.objects.exists()


def test_the_page_needs_a_login() -> None:
    """Q4."""
    assert Client().get(reverse("me_working_hours")).status_code == 302


def test_the_api_returns_and_replaces_them(user: User) -> None:
    """Q4."""
    script = Script(user)
    usual = {"begin": "09:00", "end": "18:00"}
    assert script.get("/me/working-hours").json() == {
        "week": [*[usual] * 5, None, None], "absences": [], "time_zone": "UTC",
    }  # fmt: skip
    assert script.send("put", "/me/working-hours", OWN).json() == OWN
    assert script.get("/me/working-hours").json() == OWN
    assert schedule(user).week[2] is None


def test_a_night_is_saved_on_the_page_and_in_the_api(user: User) -> None:
    """Q4."""
    client, night = signed_in(user), {"begin-0": "22:00", "end-0": "06:00"}
    assert client.post(reverse("me_working_hours"), form(**night)).status_code == 302
    assert schedule(user).week[0] == Hours(time(22), time(6))
    page = client.get(reverse("me_working_hours")).text
    assert 'value="22:00"' in page and 'value="06:00"' in page
    week = [None, {"begin": "23:30", "end": "05:00"}, *[None] * 5]
    assert Script(user).send("put", "/me/working-hours", {**OWN, "week": week}).json()["week"] == week
    assert schedule(user).week[1] == Hours(time(23, 30), time(5))


@pytest.mark.parametrize(
    ("given", "where"),
    [
        ({"week": [None] * 7}, "body.week"),
        ({"week": [{"begin": "10:00", "end": "10:00"}, *[None] * 6]}, "body.week.0"),
        ({"time_zone": "Mars/Crater"}, "body.time_zone"),
        ({"absences": [{"first": "2026-12-24", "last": "2026-12-01"}]}, "body.absences.0"),
        ({"absences": [{"first": "2026-12-24", "last": "2029-12-01"}]}, "body.absences.0"),
    ],
)
def test_the_api_names_what_is_not_usable(user: User, given: dict[str, Any], where: str) -> None:
    """Q4."""
    answer = Script(user).send("put", "/me/working-hours", {**OWN, **given})
    assert answer.status_code == 400 and [one["where"] for one in answer.json()["errors"]] == [where]
    assert not WorkingHours.objects.exists()
