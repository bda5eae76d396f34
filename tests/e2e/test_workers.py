"""While no worker is running every open page says so, and stops saying so by itself (W3, R3)."""

from __future__ import annotations

import os
import signal

import pytest
from playwright.sync_api import expect

from tests.e2e.conftest import SignIn
from tests.portal import UpPortal

pytestmark = pytest.mark.browser

WORKER = "result = [worker.pid for worker in WorkerBeat.objects.alive()]"
LONG_AGO = """
from datetime import timedelta
from django.utils import timezone
WorkerBeat.objects.update(seen_at=timezone.now() - timedelta(minutes=1))
"""


def test_the_banner_comes_and_goes_with_the_worker(own_portal: UpPortal, sign_in: SignIn) -> None:
    page = sign_in(own_portal)
    banner = page.get_by_text("No worker is running.")
    expect(banner).to_be_hidden()
    (pid,) = own_portal.rows(WORKER)
    os.kill(pid, signal.SIGSTOP)
    try:
        own_portal.rows(LONG_AGO)
        page.evaluate("document.body.dispatchEvent(new CustomEvent('catherder:refresh'))")
        expect(banner).to_be_visible()
        assert "No worker is running" in own_portal.manage("status").stdout
    finally:
        os.kill(pid, signal.SIGCONT)
    expect(banner).to_be_hidden()


def test_a_worker_that_dies_is_started_again_before_anybody_is_told(
    own_portal: UpPortal, sign_in: SignIn
) -> None:
    page = sign_in(own_portal)
    (pid,) = own_portal.rows(WORKER)
    os.kill(pid, signal.SIGKILL)
    for _ in range(100):
        page.reload()
        expect(page.get_by_text("No worker is running.")).to_be_hidden()
        if own_portal.rows(f"result = WorkerBeat.objects.exclude(pid={pid}).exists()"):
            break
    else:
        pytest.fail("no other worker came")
