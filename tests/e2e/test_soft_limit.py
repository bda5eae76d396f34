"""M8: the question at a task's soft cost limit in a browser, with the real agent program."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from tests.e2e.conftest import SignIn
from tests.portal import UpPortal

pytestmark = pytest.mark.browser

#: Less than the first step of the sample costs.
LIMIT = 0.02
SET = "Project.objects.filter(name='sample').update(overrides={{'soft_cost_usd': {}}})"


@pytest.fixture
def limited(portal: UpPortal) -> Iterator[UpPortal]:
    portal.rows(SET.format(LIMIT))
    yield portal
    portal.rows(SET.format(None))


def test_m8_a_task_is_finished_early_with_the_card(limited: UpPortal, sign_in: SignIn) -> None:
    task = limited.new_task("---\ninteractionThreshold: 0\n---\n# Split the bill\n\nTo the last cent.\n")
    page = sign_in(limited)
    page.goto(f"{limited.url}/tasks/{task}/")
    card = page.locator(".card")
    expect(card).to_contain_text("$0.02")
    card.get_by_role("radio", name="Finish early").check()
    card.get_by_role("button", name="Send answer").click()
    expect(card).to_contain_text("Answered by admin")
    expect(page.get_by_text("Finished early. Not done:")).to_be_visible()
    expect(page.locator("#timeline")).to_contain_text("not run")
