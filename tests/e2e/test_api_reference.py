"""The API reference: every operation is listed, and can be tried with the login of the browser."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tasks_app.api.app import document
from tests.e2e.conftest import SignIn
from tests.portal import UpPortal

pytestmark = pytest.mark.browser


def test_operations_are_listed_and_can_be_tried(portal: UpPortal, sign_in: SignIn) -> None:
    """No script, style or picture of another site, which the policy for content would report."""
    page = sign_in(portal)
    page.goto(f"{portal.url}/api/v1/docs")
    operations = sum(len(methods) for methods in document()["paths"].values())
    expect(page.locator(".opblock")).to_have_count(operations)
    for operation, answer in (("get_me", '"username": "admin"'), ("read_notices", "")):
        block = page.locator(f"#operations-Me-{operation}")
        block.locator(".opblock-summary-control").click()
        block.get_by_role("button", name="Try it out").click()
        block.get_by_role("button", name="Execute").click()
        expect(block.locator(".live-responses-table .response-col_status").last).to_contain_text("20")
        expect(block.locator(".live-responses-table")).to_contain_text(answer)
