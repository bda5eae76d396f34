"""One portal and one browser for all end-to-end tests of a worker process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from tests import machine
from tests.databases import copy_migrated
from tests.portal import PASSWORD, UpPortal

QUIET = ["--no-sandbox", "--disable-background-networking", "--disable-component-update", "--disable-sync"]

# Machines that run tests are slow and shared; whatever is waited for comes, or never does.
expect.set_options(timeout=30_000)

SignIn = Callable[..., Page]


@pytest.fixture(scope="session")
def portal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UpPortal]:
    portal = _on_migrated_rows(tmp_path_factory).start()
    yield portal
    portal.stop()


@pytest.fixture
def own_portal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UpPortal]:
    """For tests that stop it, or count what it does."""
    portal = _on_migrated_rows(tmp_path_factory).start()
    yield portal
    portal.stop()


def _on_migrated_rows(folders: pytest.TempPathFactory) -> UpPortal:
    """A portal that need not migrate first; those of the security tests begin from nothing."""
    data_dir = folders.mktemp("portal") / "data"
    copy_migrated(data_dir)
    return UpPortal(data_dir)


# Not for the whole session: while Playwright lives its event loop runs, and no other can in this thread.
@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=machine.chromium(), args=QUIET)
        yield browser
        browser.close()


@pytest.fixture
def sign_in(browser: Browser) -> Iterator[SignIn]:
    """Open a browser of its own on a portal and log in. What breaks the page's policy fails the test."""
    contexts: list[BrowserContext] = []
    complaints: list[str] = []

    def open_page(portal: UpPortal, username: str = "admin", **settings: Any) -> Page:
        context = browser.new_context(**settings)
        context.set_default_timeout(20_000)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on(
            "console", lambda said: complaints.append(said.text) if "Content Security" in said.text else None
        )
        page.goto(portal.url)
        page.fill("[name=username]", username)
        page.fill("[name=password]", PASSWORD)
        page.click("button")
        page.wait_for_url(f"{portal.url}/")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []
