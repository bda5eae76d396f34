"""One portal and one browser for all end-to-end tests of a worker process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from tests import machine
from tests.portal import PASSWORD, UpPortal, WebServer
from tests.waiting import wait_until

QUIET = ["--no-sandbox", "--disable-background-networking", "--disable-component-update", "--disable-sync"]

# Machines that run tests are slow and shared; whatever is waited for comes, or never does.
expect.set_options(timeout=120_000)

SignIn = Callable[..., Page]


#: Nothing that a test began runs, asks or is unread when the next one looks.
CANCEL_ALL = """
from contextlib import suppress
from tasks_app.core.errors import IllegalMove
from tasks_app.core.phases import CANCELLABLE
from tasks_app.permissions import Principal
from tasks_app.services.tasks import cancel_task
admin = Principal.unrestricted(User.objects.get(username="admin"))
for task in Task.objects.filter(phase__in=CANCELLABLE).exclude(phase="pending", queued_at=None):
    with suppress(IllegalMove):  # it has ended meanwhile
        cancel_task(task, by=admin)
Question.objects.filter(state="open").update(state="withdrawn")
"""
HELD = "SELECT count(*) FROM tasks_app_task WHERE lease_owner NOT IN ('', 'elsewhere')"
READ_ALL = "from django.utils.timezone import now\nNotice.objects.filter(read_at=None).update(read_at=now())"


@pytest.fixture(scope="session")
def shared_portal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UpPortal]:
    portal = UpPortal.migrated(tmp_path_factory.mktemp("portal") / "data").start()
    yield portal
    portal.stop()


@pytest.fixture
def portal(shared_portal: UpPortal) -> Iterator[UpPortal]:
    yield shared_portal
    shared_portal.rows(CANCEL_ALL)
    wait_until(lambda: shared_portal.row(HELD) == (0,))
    shared_portal.rows(READ_ALL)


@pytest.fixture
def own_portal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UpPortal]:
    """For tests that stop it, or count what it does."""
    portal = UpPortal.migrated(tmp_path_factory.mktemp("portal") / "data").start()
    yield portal
    portal.stop()


# Not for the whole session: while Playwright lives its event loop runs, and no other can in this thread.
@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=machine.chromium(), args=QUIET)
        yield browser
        browser.close()


SEED = "from tests.e2e.visited_pages import seed; result = seed()"


@pytest.fixture(scope="module")
def seeded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[WebServer, dict[str, Any]]]:
    """A served portal with something of everything, and what the seed told: sessions and paths."""
    portal = WebServer(tmp_path_factory.mktemp("walked") / "data")
    told = portal.rows(SEED)
    portal.start()
    yield portal, told
    portal.stop()


#: Cookies of earlier logins, by portal and user: to check a password takes half a second.
_logged_in: dict[tuple[UpPortal, str], Any] = {}


@pytest.fixture
def sign_in(browser: Browser) -> Iterator[SignIn]:
    """Open a browser of its own on a portal and log in. What breaks the page's policy fails the test."""
    contexts: list[BrowserContext] = []
    complaints: list[str] = []

    def open_page(portal: UpPortal, username: str = "admin", **settings: Any) -> Page:
        context = browser.new_context(**settings)
        context.set_default_timeout(20_000)
        contexts.append(context)
        context.add_cookies(_logged_in.get((portal, username), []))
        page = context.new_page()
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on(
            "console", lambda said: complaints.append(said.text) if "Content Security" in said.text else None
        )
        page.goto(portal.url)
        if page.url != f"{portal.url}/":
            _log_in(page, username)
            page.wait_for_url(f"{portal.url}/")
            _logged_in[portal, username] = context.cookies()
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []


def _log_in(page: Page, username: str) -> None:
    page.fill("[name=username]", username)
    page.fill("[name=password]", PASSWORD)
    page.click("button")
