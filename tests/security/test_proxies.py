"""From where a request comes is what the connection says, or a proxy that was named (R4)."""

from __future__ import annotations

from pathlib import Path

import pytest
import requests

from tests.integration.portal import Portal

OPTIONS = "from tasks_app.management.commands import up; result = up.proxy_options()"
FAILED = "result = list(AuditEntry.objects.filter(action='login_failed').values_list('address', flat=True))"


def addresses_of_failed_logins(portal: Portal) -> list[str]:
    browser = requests.Session()
    page = f"http://{portal.address}/login/"
    browser.get(page, timeout=10)
    given = {"username": "ann", "password": "wrong", "csrfmiddlewaretoken": browser.cookies["csrftoken"]}
    for number in range(2):
        browser.post(page, given, headers={"X-Forwarded-For": f"192.0.2.{number}"}, timeout=10)
    found: list[str] = portal.run(FAILED)
    return sorted(found)


@pytest.mark.parametrize(
    ("named", "seen"),
    [("", ["127.0.0.1", "127.0.0.1"]), ("127.0.0.1", ["192.0.2.0", "192.0.2.1"])],
    ids=["none is named", "this machine is named"],
)
def test_only_a_proxy_that_was_named_says_whose_request_it_is(
    named: str, seen: list[str], tmp_path: Path
) -> None:
    """Else an agent on this machine could try passwords from as many addresses as it likes."""
    portal = Portal(tmp_path, CATHERDER_PROXY=named)
    portal.start(*portal.run(OPTIONS))
    try:
        assert addresses_of_failed_logins(portal) == seen
    finally:
        portal.stop()
