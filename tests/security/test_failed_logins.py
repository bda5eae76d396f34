"""Strangers who fail to log in do not fill the audit log, and stay visible in it (R4, W4)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.core.cache import cache
from django.test import Client
from django.utils import timezone

from tasks_app.history.audit import ActionOrigin, acting_from
from tasks_app.models import Action, AuditEntry
from tasks_app.services import accounts
from tasks_app.services.accounts import record_failed_login

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def nothing_counted() -> Iterator[None]:
    cache.clear()
    yield
    cache.clear()


def fail(times: int, *, address: str = "192.0.2.1") -> None:
    for number in range(times):
        with acting_from(ActionOrigin(ip_address=address)):
            record_failed_login(f"name-{number}")


def entries(actor: str) -> list[str]:
    found = AuditEntry.objects.filter(action=Action.LOGIN_FAILED, actor_name=actor).order_by("pk")
    return list(found.values_list("subject", flat=True))


def test_of_many_failures_from_one_address_a_count_is_kept() -> None:
    fail(accounts.ENTRIES_PER_IP_ADDRESS + 600)
    assert len(entries("somebody")) == accounts.ENTRIES_PER_IP_ADDRESS
    told = entries("unknown users")
    assert told[0] == "various names: 1 more failed login from 1 IP address in an hour"
    assert told[-1] == "various names: 512 more failed logins from 1 IP address in an hour"
    assert len(told) == 10


def test_somebody_elsewhere_has_entries_all_the_same() -> None:
    fail(accounts.ENTRIES_PER_IP_ADDRESS + 50)
    fail(2, address="198.51.100.7")
    assert entries("somebody")[-2:] == ["name-0", "name-1"]


def test_many_addresses_are_counted_together() -> None:
    for number in range(accounts.ENTRIES_IN_ALL + 40):
        fail(1, address=f"10.0.{number // 250}.{number % 250}")
    assert len(entries("somebody")) == accounts.ENTRIES_IN_ALL
    assert (
        entries("unknown users")[-1] == "various names: 32 more failed logins from 32 IP addresses in an hour"
    )
    (last,) = AuditEntry.objects.filter(subject=entries("unknown users")[-1])
    assert last.detail["count"] == 32 and len(last.detail["addresses"]) == 20


def test_the_count_left_at_the_end_of_an_hour_is_logged_with_the_next_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fail(accounts.ENTRIES_PER_IP_ADDRESS + 7)
    assert entries("unknown users")[-1].startswith("various names: 4 more")
    later = timezone.now() + timedelta(hours=1)
    monkeypatch.setattr(timezone, "now", lambda: later)
    fail(1, address="198.51.100.7")
    fail(1, address="198.51.100.8")
    assert entries("unknown users")[-1].startswith("various names: 7 more")
    assert len(entries("unknown users")) == 4


def test_a_wrong_password_comes_this_way() -> None:
    """Through the login page, from one address: the limit of the page is wider than that of the log."""
    for number in range(accounts.ENTRIES_PER_IP_ADDRESS + 3):
        Client().post("/login/", {"username": f"nobody-{number}", "password": "wrong"})
    assert len(entries("somebody")) == accounts.ENTRIES_PER_IP_ADDRESS
    assert len(entries("unknown users")) == 2
