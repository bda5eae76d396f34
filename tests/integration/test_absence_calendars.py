"""Q4: days off that come from a calendar, by its URL or as a file."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime, timedelta
from ipaddress import ip_network
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
import requests.adapters
from django.core.files.uploadedfile import SimpleUploadedFile
from django.urls import reverse
from django.utils import timezone

from tasks_app.models import AuditEntry, Calendar, User
from tasks_app.services import calendars
from tasks_app.services.calendars import due_calendars, read_due_calendar
from tasks_app.services.questions.ladder import schedules_of
from tasks_app.services.working_hours import save_working_hours, schedule_of
from tests.api import Script
from tests.browser import signed_in
from tests.factories import UserFactory
from tests.integration.receivers import Receiver, certificate, receiving
from tests.people import acting

pytestmark = pytest.mark.django_db
TITLE = "An operation that nobody is to know of"


def calendar(first: date, days: int = 3, *lines: str) -> bytes:
    parts = [
        *(
            "BEGIN:VCALENDAR",
            "VERSION:2.0",
            "PRODID:-//test",
            "BEGIN:VEVENT",
            "UID:1@test",
            f"SUMMARY:{TITLE}",
        ),
        f"DTSTART;VALUE=DATE:{first:%Y%m%d}",
        f"DTEND;VALUE=DATE:{first + timedelta(days=days):%Y%m%d}",
        *(*lines, "END:VEVENT", "END:VCALENDAR", ""),
    ]
    return "\r\n".join(parts).encode()


@pytest.fixture
def user() -> User:
    user: User = UserFactory.create(time_zone="Europe/Berlin")
    return user


@pytest.fixture
def first() -> date:
    return timezone.now().date() + timedelta(days=20)


@pytest.fixture
def host(tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    made = certificate(tmp_path, name="localhost")
    monkeypatch.setattr(requests.adapters, "DEFAULT_CA_BUNDLE_PATH", str(made))
    listed = (ip_network("127.0.0.0/8"),)
    settings.ENVIRONMENT = settings.ENVIRONMENT.model_copy(update={"webhook_allow": listed})
    with receiving(tls=made) as receiver:
        yield receiver


def url(host: Receiver) -> str:
    return host.address("localhost", "https")


def read(now: datetime | None = None) -> None:
    now = now or timezone.now()
    for one in due_calendars(now):
        assert read_due_calendar(one, now)


def days_off(user: User) -> list[tuple[date, date]]:
    return [(one.first, one.last) for one in schedule_of(User.objects.get(pk=user.pk)).absences]


def post(user: User, **given: Any) -> int:
    return signed_in(user).post(reverse("me_working_hours"), {"form": "calendar", **given}).status_code


def page(user: User) -> str:
    return signed_in(user).get(reverse("me_working_hours")).text


def test_days_off_of_a_calendar_join_those_entered(user: User, host: Receiver, first: date) -> None:
    """Q4: its URL and the titles of its events are kept from everybody."""
    host.body = calendar(first)
    assert post(user, url=url(host)) == 302 and len(host.posts) == 1
    last = first + timedelta(days=2)
    assert days_off(user) == [(first, last)]
    shown = page(user)
    assert "data-calendar-absence" in shown and str(first) in shown and str(last) in shown
    row = Calendar.objects.get()
    assert "/hook" not in shown and TITLE not in shown and TITLE not in str(vars(row))
    assert "/hook" not in row.encrypted_url and row.source == "localhost"
    assert "/hook" not in str(AuditEntry.objects.latest("pk").detail)
    save_working_hours(
        acting(user), week=[None] * 6 + [(datetime.min.time(), datetime.min.time())], absences=[], zone="UTC"
    )
    assert days_off(user) == [(first, last)]
    moment = datetime.combine(first, datetime.min.time(), tzinfo=timezone.get_current_timezone())
    away, there = User.objects.get(pk=user.pk), UserFactory.create()
    assert schedules_of([away, there], moment + timedelta(hours=12)) == [schedule_of(there)]


def test_a_calendar_that_cannot_be_read_any_more_still_holds(user: User, host: Receiver, first: date) -> None:
    """Q4: the page says why and since when."""
    host.body = calendar(first)
    post(user, url=url(host))
    now = timezone.now()
    host.status = 404
    read(now + timedelta(minutes=20))
    assert days_off(user) and "data-calendar-fault" in page(user) and "404" in page(user)


def test_a_file_is_read_at_once_and_not_again(user: User, first: date) -> None:
    """Q4"""
    assert post(user, file=SimpleUploadedFile("absences.ics", calendar(first))) == 302
    assert days_off(user) == [(first, first + timedelta(days=2))]
    assert due_calendars(timezone.now() + timedelta(days=1)) == []
    assert "absences.ics" in page(user)
    assert "absences.ics" not in str(AuditEntry.objects.latest("pk").detail)


def test_another_calendar_replaces_it_and_it_can_be_removed(user: User, host: Receiver, first: date) -> None:
    """Q4"""
    post(user, file=SimpleUploadedFile("absences.ics", calendar(first)))
    assert post(user, url=url(host)) == 302 and days_off(user) == []
    assert post(user, remove="yes") == 302
    assert not Calendar.objects.exists()


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"url": "http://x.example/a.ics"},
        {"url": "a.ics"},
        {"url": "https://"},
        {"url": "https://ann:secret@x.example/a.ics"},
        {"file": SimpleUploadedFile("a.ics", b"no calendar")},
        {"file": SimpleUploadedFile("a.ics", b"BEGIN:VCALENDAR\n" + b"x" * (5 << 20))},
        {"url": "https://x.example/a.ics", "file": SimpleUploadedFile("a.ics", b"x")},
    ],
)
def test_what_is_no_calendar_is_refused(user: User, given: dict[str, Any]) -> None:
    """Q4"""
    assert post(user, **given) == 400
    assert not Calendar.objects.exists()


def test_a_calendar_that_cannot_be_read_is_named_when_it_is_saved(user: User, host: Receiver) -> None:
    """Q4: not after up to 15 minutes."""
    host.status = 404
    browser = signed_in(user)
    given = {"form": "calendar", "url": url(host)}
    shown = browser.post(reverse("me_working_hours"), given, follow=True).text
    assert "The calendar was not read. Its host answered 404." in shown and "data-calendar-fault" in shown


def test_a_calendar_is_read_now_on_demand(user: User, host: Receiver, first: date) -> None:
    """Q4: on the page and through the API; of a file it says that it is read once."""
    host.status = 404
    post(user, url=url(host))
    host.status, host.body = 200, calendar(first)
    assert ">Read now<" in page(user) and days_off(user) == []
    assert post(user, read="yes") == 302 and days_off(user) != []
    host.status = 500
    script = Script(user)
    answer = script.send("post", "/me/absence-calendar/read", {})
    assert "500" in answer.json()["fault"] and answer.json()["absences"]
    post(user, file=SimpleUploadedFile("absences.ics", calendar(first)))
    assert ">Read now<" not in page(user)
    assert script.send("post", "/me/absence-calendar/read", {}).status_code == 400


def test_a_host_that_hangs_delays_the_page_for_seconds_only(
    user: User, host: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Q4"""
    monkeypatch.setattr(calendars, "READ_NOW_SECONDS", 0.3)
    host.delay = 3.0
    began = monotonic()
    assert post(user, url=url(host)) == 302 and monotonic() - began < 2
    assert "did not finish" in Calendar.objects.get().fault


def test_who_left_is_not_read(user: User, host: Receiver) -> None:
    """Q4"""
    post(user, url=url(host))
    assert due_calendars(timezone.now() + timedelta(hours=1))
    User.objects.update(is_active=False)
    assert due_calendars(timezone.now() + timedelta(hours=1)) == []


def test_the_api_has_it(user: User, first: date) -> None:
    """Q4"""
    script = Script(user)
    assert script.get("/me/absence-calendar").status_code == 404
    sent = script.send("put", "/me/absence-calendar", {"content": calendar(first).decode()})
    assert sent.status_code == 200 and sent.json()["uploaded"]
    expected = [{"first": str(first), "last": str(first + timedelta(days=2))}]
    assert script.get("/me/absence-calendar").json()["absences"] == expected
    assert script.get("/me/working-hours").json()["absences"] == []
    for body in (
        {},
        {"url": "ftp://x.example/a"},
        {"content": "x"},
        {"url": "https://x.example/", "content": "x"},
    ):
        assert script.send("put", "/me/absence-calendar", body).status_code == 400
    sent = script.send("put", "/me/absence-calendar", {"url": "https://x.example/secret.ics"})
    assert sent.json()["source"] == "x.example" and "secret" not in sent.text
    assert script.send("delete", "/me/absence-calendar").status_code == 204
    assert script.send("delete", "/me/absence-calendar").status_code == 404
