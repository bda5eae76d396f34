"""Through another service and back in a real browser, whose policy lets forms go to the portal alone (W1)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.oidc import CLIENT_ID, CLIENT_SECRET, Provider, provider
from tests.portal import WebServer

pytestmark = pytest.mark.browser


@pytest.fixture
def there() -> Iterator[Provider]:
    with provider() as running:
        running.person = {
            "sub": "1",
            "email": "ann@example.org",
            "email_verified": True,
            "name": "Ann Example",
        }
        yield running


@pytest.fixture
def portal(there: Provider, tmp_path: Path) -> Iterator[WebServer]:
    portal = WebServer(
        tmp_path / "data",
        CATHERDER_OIDC_ISSUER=there.address,
        CATHERDER_OIDC_CLIENT_ID=CLIENT_ID,
        CATHERDER_OIDC_CLIENT_SECRET=CLIENT_SECRET,
        CATHERDER_OIDC_NAME="Example ID",
        CATHERDER_SSO_SIGNUP="yes",
    )
    try:
        yield portal.start()
    finally:
        portal.stop()


def test_one_click_leads_there_and_back_in(browser: Browser, portal: WebServer) -> None:
    page = browser.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.goto(f"http://{portal.address}/login/?next=/me/")
    page.keyboard.press("Tab")  # From the name, by the keyboard alone, to the last button.
    for _ in range(3):
        page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Log in with Example ID"
    page.keyboard.press("Enter")
    page.wait_for_url("**/me/")
    assert page.get_by_label("Display name").input_value() == "Ann Example"
    page.get_by_label("Logged in as Ann Example").click()
    page.get_by_role("button", name="Dark").click()
    page.wait_for_load_state()
    assert page.evaluate("getComputedStyle(document.documentElement).colorScheme") == "dark"
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 21, 19)"
    assert not [text for text in said if "Content Security Policy" in text]
    page.close()
