"""One's own sessions (W1): seen, ended one by one or all together, and over when the password changes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from tasks_app.models import Action, AuditEntry, BrowserSession, User
from tasks_app.services.accounts import end_sessions, sessions_of
from tasks_app.web.accounts.signals import describe_browser
from tests.browser import signed_in

pytestmark = pytest.mark.django_db

RIGHT = {"username": "ann", "password": "correct horse"}
FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"


@pytest.fixture
def ann() -> User:
    return User.objects.create_user("ann", "ann@example.org", "correct horse")


def logged_in(**headers: str) -> Client:
    client = Client()
    client.post("/login/", RIGHT, headers=headers or {"User-Agent": FIREFOX})
    assert is_in(client)
    return client


def is_in(client: Client) -> bool:
    return client.get("/inbox/").status_code == 200


@pytest.mark.parametrize(
    ("user_agent", "words"),
    [
        (FIREFOX, "Firefox on Linux"),
        ("Mozilla/5.0 (Windows NT 10.0) AppleWebKit/537 Chrome/130 Safari/537 Edg/130", "Edge on Windows"),
        ("Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) Version/18 Safari/604", "Safari on iPhone"),
        ("Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15) Chrome/130 Safari/537", "Chrome on macOS"),
        ("curl/8.1", "curl"),
        ("", ""),
        ("\0" * 500, ""),
    ],
)
def test_a_browser_is_told_in_two_words(user_agent: str, words: str) -> None:
    assert describe_browser(user_agent) == words


def test_the_list_shows_browser_address_and_which_is_this_one(ann: User) -> None:
    logged_in(**{"User-Agent": "curl/8.1"})
    page = logged_in().get("/me/security/").text
    assert "Firefox on Linux" in page and "<strong>curl</strong>" in page and "127.0.0.1" in page
    assert page.count("this session") == 1 and page.count("End session<") == 1


def test_one_session_can_be_ended(ann: User) -> None:
    there, here = logged_in(), logged_in()
    other = BrowserSession.objects.filter(user=ann).order_by("begun_at")[0]
    here.post(f"/me/security/sessions/{other.pk}/end/")
    assert not is_in(there) and is_in(here)


def test_all_others_can_be_ended_at_once(ann: User) -> None:
    elsewhere, here = [logged_in(), logged_in()], logged_in()
    assert "2 sessions" in here.post("/me/security/sessions/end/", follow=True).text
    assert [is_in(client) for client in elsewhere] == [False, False] and is_in(here)


def test_nobody_ends_the_session_of_somebody_else(ann: User) -> None:
    victim = logged_in()
    mallory = signed_in(User.objects.create_user("mallory"))
    session = BrowserSession.objects.get(user=ann)
    mallory.post(f"/me/security/sessions/{session.pk}/end/")
    mallory.post("/me/security/sessions/end/")
    assert is_in(victim)


def test_a_new_password_ends_all_others_and_not_this_one(ann: User) -> None:
    there, here = logged_in(), logged_in()
    new = {"oldpassword": "correct horse", "password1": "battery staple", "password2": "battery staple"}
    assert here.post("/me/password/", new)["Location"] == "/me/security/"
    assert not is_in(there) and is_in(here)
    assert len(sessions_of(ann)) == 1


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"oldpassword": "wrong"}, "Wrong current password"),
        ({"password1": "short", "password2": "short"}, "too short"),
        ({"password2": "another one"}, "same password each time"),
    ],
)
def test_a_password_that_cannot_be_taken_ends_nothing(ann: User, given: dict[str, str], said: str) -> None:
    there, here = logged_in(), logged_in()
    new = {"oldpassword": "correct horse", "password1": "battery staple", "password2": "battery staple"}
    assert said in here.post("/me/password/", {**new, **given}).text
    assert is_in(there)


def test_a_password_set_by_an_admin_ends_all(ann: User) -> None:
    there = logged_in()
    ann.set_password("battery staple")
    ann.save()
    assert not sessions_of(ann) and not is_in(there)


def test_when_a_browser_was_last_here_is_known_to_the_minute(ann: User) -> None:
    client = logged_in()
    session = BrowserSession.objects.get(user=ann)
    with CaptureQueriesContext(connection) as queries:
        client.get("/me/")
    assert not [query for query in queries if "UPDATE" in query["sql"]]
    BrowserSession.objects.update(seen_at=timezone.now() - timedelta(minutes=2))
    client.get("/me/")
    assert BrowserSession.objects.get().seen_at > session.seen_at - timedelta(minutes=1)


def test_a_session_keeps_its_facts_under_a_new_key(ann: User) -> None:
    client = logged_in()
    before = BrowserSession.objects.get(user=ann)
    new = {"oldpassword": "correct horse", "password1": "battery staple", "password2": "battery staple"}
    client.post("/me/password/", new)
    after = BrowserSession.objects.get(user=ann)
    assert after.pk != before.pk
    assert (after.browser, after.begun_at) == (before.browser, before.begun_at)


def test_ending_all_says_how_many(ann: User) -> None:
    logged_in(), logged_in()
    assert end_sessions(ann) == 2


def test_the_list_costs_no_more_queries_for_more_sessions(ann: User) -> None:
    client = logged_in()
    counts: list[Any] = []
    for many in (0, 5):
        for _ in range(many):
            logged_in()
        with CaptureQueriesContext(connection) as queries:
            client.get("/me/security/")
        counts.append(len(queries))
    assert counts[0] == counts[1]


def test_a_session_that_was_ended_elsewhere_shows_a_message(ann: User) -> None:
    for agent in ("curl/8.1", "Wget/1.21"):
        logged_in(**{"User-Agent": agent})
    here = logged_in()
    first = BrowserSession.objects.filter(user=ann).order_by("begun_at")[0]
    for _ in range(2):
        here.post(f"/me/security/sessions/{first.pk}/end/")
        here.post("/me/security/sessions/end/")
    ended = AuditEntry.objects.filter(action=Action.LOGGED_OUT).order_by("pk")
    assert [(entry.actor, len(entry.detail["elsewhere"])) for entry in ended] == [(ann, 1), (ann, 1)]
    assert ended[0].detail["elsewhere"] == ["curl at 127.0.0.1"]
