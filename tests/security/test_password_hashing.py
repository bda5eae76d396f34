"""Strangers who try passwords do not slow the portal down (R4, W1)."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import Any

import pytest
from django.contrib.auth.hashers import PBKDF2PasswordHasher, check_password, make_password
from django.core.cache import cache
from django.http import HttpResponse
from django.test import Client, RequestFactory

from tasks_app.models import Action, AuditEntry, User
from tasks_app.web.accounts import attempts
from tasks_app.web.accounts.attempts import (
    MOST_WAITING,
    NICENESS,
    HashingBusy,
    HashingBusyResponse,
    remember_browser,
)
from tests.waiting import wait_until


@pytest.fixture(autouse=True)
def hashed_as_installed(settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    settings.PASSWORD_HASHERS = ["tasks_app.web.accounts.attempts.QueuedHasher"]
    monkeypatch.setattr(PBKDF2PasswordHasher, "iterations", 10)
    cache.clear()
    yield
    cache.clear()


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Hashes wait until this is set; yields it once as many wait as may."""
    free, waiting = threading.Event(), threading.Semaphore(0)
    encode, submit = PBKDF2PasswordHasher.encode, attempts._thread.submit

    def wait(self: Any, *given: Any) -> str:
        assert free.wait(60)
        return encode(self, *given)

    def queue(*given: Any) -> Any:
        waiting.release()
        return submit(*given)

    monkeypatch.setattr(PBKDF2PasswordHasher, "encode", wait)
    monkeypatch.setattr(attempts._thread, "submit", queue)
    with ThreadPoolExecutor(MOST_WAITING) as strangers:
        for number in range(MOST_WAITING):
            strangers.submit(make_password, f"guess {number}")
        for _ in range(MOST_WAITING):
            assert waiting.acquire(timeout=60)
        yield free
        free.set()


def test_hashes_are_made_one_at_a_time_at_a_low_priority(monkeypatch: pytest.MonkeyPatch) -> None:
    at_once, most, niceness = [0], [0], set()
    encode = PBKDF2PasswordHasher.encode

    def noted(self: Any, *given: Any) -> str:
        at_once[0] += 1
        most[0] = max(most[0], at_once[0])
        niceness.add(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
        done = encode(self, *given)
        at_once[0] -= 1
        return done

    monkeypatch.setattr(PBKDF2PasswordHasher, "encode", noted)
    with ThreadPoolExecutor(MOST_WAITING) as people:
        stored = list(people.map(make_password, ["correct horse"] * MOST_WAITING))
    assert most == [1] and niceness == {NICENESS}
    assert all(check_password("correct horse", one) for one in stored)
    assert os.getpriority(os.PRIO_PROCESS, threading.get_native_id()) < NICENESS


def test_hashes_of_former_versions_are_known(settings: Any) -> None:
    stored = PBKDF2PasswordHasher().encode("correct horse", "salt")
    assert check_password("correct horse", stored) and not check_password("wrong", stored)


def test_beyond_a_short_queue_a_hash_is_refused_at_once(slow: threading.Event) -> None:
    with pytest.raises(HashingBusy):
        make_password("one more")


def ask_from(address: str, *, known: int | None = None) -> str:
    """Hash a password for a request of this address, or of a browser in which that user was logged in."""
    request, response = RequestFactory().get("/", REMOTE_ADDR=address), HttpResponse()
    if known:
        remember_browser(response, User(pk=known))
        request.COOKIES = {name: cookie.value for name, cookie in response.cookies.items()}
    HashingBusyResponse(lambda request: HttpResponse()).process_request(request)
    return make_password("guess")


def test_few_addresses_cannot_fill_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    """One has one place at a time, and the last place is for known browsers: one for each user."""
    free, encode = threading.Event(), PBKDF2PasswordHasher.encode

    def wait(self: Any, *given: Any) -> str:
        assert free.wait(60)
        return encode(self, *given)

    monkeypatch.setattr(PBKDF2PasswordHasher, "encode", wait)
    with ThreadPoolExecutor(10) as requests:
        waiting = []

        def is_refused(address: str, *, known: int | None = None) -> bool:
            before = len(attempts._waiting)
            asked = requests.submit(copy_context().run, partial(ask_from, address, known=known))
            wait_until(lambda: asked.done() or len(attempts._waiting) > before)
            waiting.append(asked)
            return asked.done() and isinstance(asked.exception(), HashingBusy)

        assert not is_refused("192.0.2.1") and is_refused("192.0.2.1")
        assert not is_refused("2001:db8::1") and is_refused("2001:db8::2")
        assert not is_refused("192.0.2.2") and is_refused("192.0.2.3"), "the last place is kept"
        assert not is_refused("192.0.2.3", known=7)
        assert is_refused("192.0.2.4", known=7) and is_refused("192.0.2.4", known=8), "now it is full"
        free.set()
    assert sum(asked.exception() is None for asked in waiting) == MOST_WAITING and not attempts._waiting


@pytest.mark.django_db
def test_a_login_that_does_not_fit_in_is_429_and_no_failure(slow: threading.Event) -> None:
    User.objects.create(username="ann")
    client = Client()
    for _ in range(8):  # more than the failures that block a name
        page = client.post("/login/", {"username": "ann", "password": "correct horse"})
        assert (page.status_code, page["Retry-After"]) == (429, "5")
    assert not AuditEntry.objects.filter(action=Action.LOGIN_FAILED).exists()
    slow.set()
    wait_until(lambda: client.post("/login/", {"username": "ann", "password": "wrong"}).status_code == 200)
