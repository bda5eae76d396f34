"""M8: the question at a task's soft cost limit in a browser, with the real agent program."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tasks_app.rehearsal.server import RehearsalServer
from tests.e2e.conftest import SignIn, show_arrived
from tests.portal import UpPortal

pytestmark = pytest.mark.browser

#: Less than the first step of the sample costs.
LIMIT = "Project.objects.filter(name='sample').update(overrides={'soft_cost_usd': 0.02})"


@pytest.fixture
def limited(tmp_path: Path) -> Iterator[UpPortal]:
    """A portal that pays for what the scripted API says: a rehearsal costs nothing."""
    with RehearsalServer() as api:
        portal = UpPortal.migrated(
            tmp_path / "data", ANTHROPIC_API_KEY="sk-ant-scripted", ANTHROPIC_BASE_URL=api.url
        ).start()
        portal.rows(LIMIT)
        yield portal
        portal.stop()


def test_m8_a_task_is_finished_early_with_the_card(limited: UpPortal, sign_in: SignIn) -> None:
    task = limited.new_task("---\ninteractionThreshold: 0\n---\n# Split the bill\n\nTo the last cent.\n")
    page = sign_in(limited)
    page.goto(f"{limited.url}/tasks/{task}/")
    card = page.locator(".card")
    show_arrived(page, card)
    expect(card).to_contain_text("$0.02")
    card.get_by_role("radio", name="Finish early").check()
    card.get_by_role("button", name="Send answer").click()
    expect(card).to_contain_text("Answered by admin")
    show_arrived(page, page.get_by_text("Finished early. Not done:"))
    expect(page.locator("#timeline")).to_contain_text("not run")
