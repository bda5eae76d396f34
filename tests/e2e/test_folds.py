"""Filters fold away where they would fill the screen, and stand open where there is room (W2)."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.e2e.conftest import SignIn
from tests.portal import UpPortal

pytestmark = pytest.mark.browser

PHONE = {"width": 390, "height": 844}
WIDE = {"width": 1440, "height": 900}


def test_on_a_phone_the_filters_of_the_history_are_folded(portal: UpPortal, sign_in: SignIn) -> None:
    page = sign_in(portal, viewport=PHONE)
    page.goto(f"{portal.url}/history/")
    fold, project = page.locator(".folding > summary"), page.locator("select[name=project]")
    expect(fold).to_have_text("Filter")
    expect(project).to_be_hidden()
    fold.click()
    project.select_option("sample")
    expect(fold).to_have_text("1 filter")


def test_wide_screens_fold_nothing(portal: UpPortal, sign_in: SignIn) -> None:
    page = sign_in(portal, viewport=WIDE)
    page.goto(f"{portal.url}/history/")
    expect(page.locator("select[name=project]")).to_be_visible()
    expect(page.locator(".folding > summary")).to_be_hidden()
