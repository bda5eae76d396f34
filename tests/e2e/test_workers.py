"""While no worker is running every open page says so, and stops saying so by itself (W3, R3)."""

from __future__ import annotations

import os
import signal

import pytest
from playwright.sync_api import expect

from tests.e2e.conftest import SignIn
from tests.portal import UpPortal

pytestmark = pytest.mark.browser

WORKER = """
import os
result = [beat.pid for beat in WorkerBeat.objects.alive() if os.path.exists(f"/proc/{beat.pid}")]
"""
#: Within a transaction: a worker that is stopped in the middle of its own would keep the database locked.
STOP = """
import os, signal
from datetime import timedelta
from django.db import transaction
from django.utils import timezone
with transaction.atomic():
    os.kill({pid}, signal.SIGSTOP)
    WorkerBeat.objects.update(seen_at=timezone.now() - timedelta(minutes=1))
"""


def test_the_banner_comes_and_goes_with_the_worker(portal: UpPortal, sign_in: SignIn) -> None:
    page = sign_in(portal)
    banner = page.get_by_text("No worker is running.")
    expect(banner).to_be_hidden()
    (pid,) = portal.rows(WORKER)
    try:
        portal.rows(STOP.format(pid=pid))
        page.evaluate("document.body.dispatchEvent(new CustomEvent('catherder:refresh'))")
        expect(banner).to_be_visible()
        assert "No worker is running" in portal.manage("status").stdout
    finally:
        os.kill(pid, signal.SIGCONT)
    expect(banner).to_be_hidden()


def test_a_dead_worker_is_restarted_before_a_banner_appears(portal: UpPortal, sign_in: SignIn) -> None:
    page = sign_in(portal)
    (pid,) = portal.rows(WORKER)
    os.kill(pid, signal.SIGKILL)
    for _ in range(100):
        page.reload()
        expect(page.get_by_text("No worker is running.")).to_be_hidden()
        if portal.rows(f"result = WorkerBeat.objects.exclude(pid={pid}).exists()"):
            break
    else:
        pytest.fail("no other worker came")
