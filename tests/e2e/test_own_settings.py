"""My settings in a real browser."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.e2e.conftest import SignIn
from tests.portal import UpPortal

pytestmark = pytest.mark.browser


def test_the_clock_of_the_browser_is_offered_until_one_was_chosen(portal: UpPortal, sign_in: SignIn) -> None:
    page = sign_in(portal, timezone_id="Australia/Lord_Howe")
    page.goto(f"{portal.url}/me/notifications/")
    clock = page.locator("#id_time_zone")
    expect(clock).to_have_value("Australia/Lord_Howe")
    clock.select_option("UTC")
    page.get_by_role("button", name="Save").click()
    expect(page.locator(".messages")).to_contain_text("Saved.")
    expect(clock).to_have_value("UTC")
    portal.rows("Preferences.objects.all().delete()")  # for the other tests
