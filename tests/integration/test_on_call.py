"""Q1: who is on call, by a calendar that the worker fetches, or that is in the repository."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
import requests.adapters
from django.urls import reverse
from django.utils import timezone

from tasks_app.config.validation import Report
from tasks_app.core.phases import Phase
from tasks_app.engine.calendars import CalendarReader
from tasks_app.models import AskedBy, Calendar, Project, Question, Role, User
from tasks_app.services.calendars import due_calendars, read_due_calendar
from tasks_app.services.projects.settings import change_settings, overrides_of
from tasks_app.services.questions.routing import route_due_questions, with_people
from tests.browser import signed_in
from tests.factories import MembershipFactory, UserFactory
from tests.fake_script import Turn, ask
from tests.integration.receivers import Receiver, certificate, receiving
from tests.people import acting
from tests.racing import race
from tests.runner import ONE_STEP, Runner
from tests.waiting import wait_until

pytestmark = pytest.mark.django_db(transaction=True)

CALENDAR = """BEGIN:VCALENDAR
VERSION:2.0
PRODID:-//test
BEGIN:VEVENT
UID:1@test
DTSTART:{begin:%Y%m%dT%H%M%SZ}
DTEND:{end:%Y%m%dT%H%M%SZ}
SUMMARY:{title}
END:VEVENT
END:VCALENDAR
"""


def calendar(title: str) -> bytes:
    """A calendar with one shift, from an hour ago to in a day."""
    now = timezone.now()
    return CALENDAR.format(title=title, begin=now - timedelta(hours=1), end=now + timedelta(days=1)).encode()


@pytest.fixture
def host(tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    """A host of calendars, with https, in a listed network."""
    made = certificate(tmp_path, name="localhost")
    monkeypatch.setattr(requests.adapters, "DEFAULT_CA_BUNDLE_PATH", str(made))
    listed = (ip_network("127.0.0.0/8"),)
    settings.ENVIRONMENT = settings.ENVIRONMENT.model_copy(update={"webhook_allow": listed})
    with receiving(tls=made) as receiver:
        yield receiver


def url(host: Receiver) -> str:
    return host.address("localhost", "https")


def member(project: Project, name: str, role: Role = Role.MEMBER) -> User:
    user: User = UserFactory.create(username=name, email=f"{name}@example.org")
    MembershipFactory.create(project=project, user=user, role=role)
    return user


def on_call(project: Project, source: str, *, by: User) -> None:
    overrides = overrides_of(project).model_copy(update={"on_call": source})
    change_settings(project, overrides, by=acting(by), commit="")


def read(now: datetime | None = None) -> None:
    now = now or timezone.now()
    for one in due_calendars(now):
        assert read_due_calendar(one, now)


def row() -> Calendar:
    return Calendar.objects.get()


def asked(runner: Runner, project: Project) -> tuple[str, ...]:
    task = runner.advance(runner.task([Turn("I ask.", (ask("Red?"),))], project=project))
    assert task.phase == Phase.WAITING_FOR_INPUT
    route_due_questions()
    rows = Question.objects.get(task=task).asked.current()
    return tuple(f"{one.user.username}: {one.asked_by}, {one.why}" for one in rows)


def test_who_is_on_call_by_the_calendar_of_a_host_is_asked(runner: Runner, host: Receiver) -> None:
    """Q1: with until when; on the preview and on the card."""
    project = runner.project()
    member(project, "bob")
    host.body = calendar("On call: bob")
    on_call(project, url(host), by=runner.user)
    read()
    (found,) = asked(runner, project)
    assert found.startswith(f"bob: {AskedBy.ON_CALL}, on call until ")
    browser = signed_in(runner.user)
    preview = browser.get(reverse("project_asked", args=[project.pk]), {"step": "do"}).text
    assert 'data-asked-by="on_call"' in preview and preview.count("on call until") == 2
    assert "on call until" in browser.get(reverse("question", args=[Question.objects.get().pk])).text
    assert [path for path, _, _ in host.posts] == ["/hook?a=1"]


def test_a_calendar_in_the_repository_is_that_of_the_newest_commit(runner: Runner, tmp_path: Path) -> None:
    """Q1: a shift that is swapped holds for tasks that began before."""
    project = runner.project(
        f"onCall: docs/on-call.ics\n{ONE_STEP}", **{"docs/on-call.ics": calendar("cat").decode()}
    )
    member(project, "cat")
    read()
    assert asked(runner, project)[0].startswith("cat: on_call")


def test_a_project_without_a_calendar_asks_who_started_the_task(runner: Runner) -> None:
    """Q1"""
    project = runner.project()
    read()
    assert asked(runner, project)[0].startswith(f"{runner.user.username}: starter")
    assert row().source == "" and row().events == [] and row().fault == ""


@pytest.mark.parametrize("title", ["stranger", "viewer"])
def test_who_may_not_answer_is_not_asked_and_is_a_finding(runner: Runner, host: Receiver, title: str) -> None:
    """Q1: of the preview and of the validation, at its line."""
    config = f"onCall: {url(host)}\n{ONE_STEP}"
    project = runner.project(config)
    UserFactory.create(username="stranger")
    member(project, "viewer", Role.VIEWER)
    host.body = calendar(title)
    read()
    (found,) = asked(runner, project)
    assert found.startswith(f"{runner.user.username}: starter") and "on-call calendar" in found
    page = signed_in(runner.user).get(reverse("project_asked", args=[project.pk])).text
    assert "data-unknown-shift" in page
    (warned,) = with_people(Report.of([]), project, config).warnings
    assert (warned.problem.key, warned.problem.line) == ("onCall", 1) and title in warned.problem.message


def test_the_last_copy_holds_when_the_calendar_cannot_be_read(runner: Runner, host: Receiver) -> None:
    """Q1: the page says why and since when, and forgets it once it can be read again."""
    project = runner.project()
    member(project, "bob")
    host.body = calendar("bob")
    on_call(project, url(host), by=runner.user)
    now = timezone.now()
    read(now)
    host.status = 500
    later = now + timedelta(minutes=20)
    read(later)
    read(later + timedelta(minutes=20))
    assert "500" in row().fault and row().fault_since == later and row().read_at == now
    page = signed_in(runner.user).get(reverse("project_asked", args=[project.pk])).text
    assert "data-calendar-fault" in page and "data-shift" in page
    assert asked(runner, project)[0].startswith("bob: on_call")
    host.status = 200
    read(now + timedelta(hours=1))
    assert row().fault == "" and row().fault_since is None


@pytest.mark.parametrize(
    ("status", "body", "fault"),
    [
        (302, b"", "redirects"),
        (404, b"", "404"),
        (200, b"<html>Please log in</html>", "BEGIN:VCALENDAR"),
        (200, b"\xff\xfe\x00", "BEGIN:VCALENDAR"),
        (200, b"BEGIN:VCALENDAR\r\nX-A:" + b"a" * (5 << 20), "MiB"),
        (200, b"BEGIN:VCALENDAR\r\nX-A:" + b"a" * (9 << 20), "MiB"),
    ],
)
def test_what_is_no_calendar_is_a_fault(
    runner: Runner, host: Receiver, status: int, body: bytes, fault: str
) -> None:
    """Q1"""
    project = runner.project()
    host.status, host.body, host.location = status, body, url(host) if status == 302 else ""
    on_call(project, url(host), by=runner.user)
    read()
    assert fault in row().fault and row().read_at is None
    assert len(host.posts) == 1
    assert asked(runner, project)[0].startswith(f"{runner.user.username}: starter")


def test_a_file_that_the_repository_lacks_is_a_fault(runner: Runner) -> None:
    """Q1"""
    config = f"onCall: on-call.ics\n{ONE_STEP}"
    project = runner.project(config)
    read()
    assert "no such file" in row().fault
    (warned,) = with_people(Report.of([]), project, config).warnings
    assert warned.problem.key == "onCall"


def test_another_calendar_is_read_at_once_and_the_former_forgotten(runner: Runner, host: Receiver) -> None:
    """Q1"""
    project = runner.project()
    host.body = calendar("bob")
    on_call(project, url(host), by=runner.user)
    now = timezone.now()
    read(now)
    assert row().events and not due_calendars(now + timedelta(minutes=1))
    on_call(project, "", by=runner.user)
    read(now + timedelta(minutes=2))
    assert (row().source, row().events, row().read_at) == ("", [], None)


def test_the_settings_say_at_once_that_a_calendar_cannot_be_read(runner: Runner, host: Receiver) -> None:
    """Q1: not only the preview, and not after up to 15 minutes."""
    project = runner.project()
    host.status = 404
    browser, settings_page = signed_in(runner.user), reverse("project_settings", args=[project.pk])
    shown = browser.post(settings_page, {"on_call": url(host)}, follow=True).text
    assert "The calendar was not read. Its host answered 404." in shown and "data-calendar-fault" in shown
    browser.post(settings_page, {"on_call": url(host), "threshold": "2"})
    assert len(host.posts) == 1, "it is read when it changes"
    host.status, host.body = 200, calendar("bob")
    for back in ("settings", ""):
        address = reverse("project_calendar", args=[project.pk])
        shown = browser.post(address, {"back": back}, follow=True).text
        assert "The calendar was read." in shown and "data-calendar-fault" not in shown
        assert ("Who is asked</h1>" in shown) == (back == "")
    viewer = signed_in(member(project, "viewer", Role.VIEWER))
    assert viewer.post(address).status_code == 403
    assert "Read now" not in viewer.get(reverse("project_asked", args=[project.pk])).text
    assert "Read now" not in viewer.get(settings_page).text


def test_a_project_without_a_calendar_has_none_to_read(runner: Runner) -> None:
    """Q1"""
    project = runner.project()
    address = reverse("project_calendar", args=[project.pk])
    shown = signed_in(runner.user).post(address, follow=True).text
    assert "The project has no on-call calendar." in shown


def test_a_calendar_whose_clock_was_set_back_is_due(runner: Runner) -> None:
    """Q1"""
    runner.project()
    now = timezone.now()
    read(now)
    assert due_calendars(now - timedelta(hours=1)) and due_calendars(now + timedelta(hours=1))


@pytest.mark.both
def test_of_two_workers_one_reads_it(runner: Runner, host: Receiver) -> None:
    """Q1"""
    project = runner.project()
    host.body = calendar("bob")
    on_call(project, url(host), by=runner.user)
    now = timezone.now()
    (due,) = due_calendars(now)
    results = race(0, *[lambda: read_due_calendar(due, now)] * 2)
    assert sorted(one.said for one in results) == ["False", "True"] and len(host.posts) == 1


def test_the_thread_of_the_worker_reads_what_is_due(runner: Runner, host: Receiver) -> None:
    """Q1"""
    project = runner.project()
    host.body = calendar("bob")
    on_call(project, url(host), by=runner.user)
    reader = CalendarReader()
    reader.start()
    try:
        wait_until(lambda: Calendar.objects.exclude(read_at=None).exists())
    finally:
        reader.stop()


@pytest.mark.parametrize(
    "source",
    ["http://x.example/a.ics", "https://ann:secret@x.example/", "https://", "../a.ics", "/etc/passwd"],
)
def test_a_source_that_cannot_be_one_is_refused(runner: Runner, source: str) -> None:
    """Q1"""
    project = runner.project()
    answer = signed_in(runner.user).post(reverse("project_settings", args=[project.pk]), {"on_call": source})
    assert answer.status_code == 400
    project.refresh_from_db()
    assert "on_call" not in project.overrides


def test_webcal_is_https(runner: Runner) -> None:
    """Q1"""
    project = runner.project("onCall: webcal://x.example/a.ics\n" + ONE_STEP)
    due, now = due_calendars(timezone.now())[0], timezone.now()
    read_due_calendar(due, now)
    assert row().source == "https://x.example/a.ics"
    assert project.pk
