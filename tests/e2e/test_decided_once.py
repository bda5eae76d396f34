"""A question is asked once: three tasks in a browser, with the real agent program (D1, D2, D3, D6)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tasks_app.core.phases import ONLY_REHEARSED
from tests.e2e.conftest import SignIn, show_arrived
from tests.integration.git_repository import GitRepository
from tests.portal import UpPortal
from tests.runner import ONE_STEP

pytestmark = pytest.mark.browser

ASKS = "interactionThreshold: 3\n"
#: The script changes no files.
DONE = ONLY_REHEARSED.sentence
ADD = """
from tasks_app.services.projects.projects import add_project
add_project("till", {path!r}, by=User.objects.get(username="admin"))
"""
START = """
from tasks_app.permissions import Principal
from tasks_app.services.tasks import create_task, start_task
admin = Principal.unrestricted(User.objects.get(username="admin"))
text = "# Round {what}\\n\\nrehearsal: decide-once\\n"
task = create_task(Project.objects.get(name="till"), text, by=admin, where="test")
start_task(task, by=admin)
result = task.pk
"""
ASKED = "result = Question.objects.filter(task_id={task}).count()"


def begin(portal: UpPortal, page: Page, what: str) -> int:
    task = int(portal.rows(START.format(what=what)))
    page.goto(f"{portal.url}/tasks/{task}/")
    return task


def test_one_task_asks_the_next_knows_and_the_third_meets_a_contradiction(
    portal: UpPortal, sign_in: SignIn, tmp_path: Path
) -> None:
    source = GitRepository.make(tmp_path / "till", **{"cat-herder.yaml": f"{ASKS}{ONE_STEP}"})
    portal.rows(ADD.format(path=str(source.path)))
    page = sign_in(portal)
    card = page.locator("article.card")

    begin(portal, page, "prices")
    show_arrived(page, card)
    expect(card.get_by_role("heading", level=2)).to_contain_text("How are half cents rounded?")
    card.get_by_role("radio", name="Half up").check()
    card.get_by_role("radio", name="whole project").check()
    statement = card.get_by_label("Decision")
    expect(statement).to_have_value("Half up: As at school.")
    statement.fill("Half cents are rounded up.")
    card.get_by_role("button", name="Answer and resume").click()
    expect(page.get_by_text(DONE)).to_be_visible()

    second = begin(portal, page, "taxes")
    expect(page.get_by_text(DONE)).to_be_visible()
    followed = page.locator(".result-followed")
    show_arrived(page, followed)
    expect(followed).to_contain_text("Followed D-1 Half cents are rounded up.")
    assert portal.rows(ASKED.format(task=second)) == 0

    begin(portal, page, "refunds")
    show_arrived(page, card)
    expect(card.get_by_role("heading", level=2)).to_contain_text("Which holds for refunds?")
    related = card.get_by_role("group", name="The agent names D-1")
    expect(related).to_contain_text("Half cents are rounded up.")
    expect(related).to_contain_text("To be reviewed")
    for choice in ("My answer replaces it", "Limit D-1 to paths", "An exception"):
        expect(related.get_by_role("radio", name=choice)).to_be_visible()
    card.get_by_role("radio", name="Half to even").check()
    related.get_by_role("radio", name="An exception").check()
    card.get_by_role("radio", name="these paths").check()
    card.locator("[name=remember-paths]").fill("src/refunds/**")
    card.get_by_role("button", name="Answer and resume").click()
    expect(page.get_by_text(DONE)).to_be_visible()
    show_arrived(page, page.locator(".result-followed"))
    expect(page.locator(".result-followed")).to_contain_text("D-1 does not fit")

    followed_link = page.goto(f"{portal.url}/tasks/{second}/")
    assert followed_link
    page.locator(".result-followed").get_by_role("link", name="D-1").click()
    expect(page.locator(".decision-head")).to_contain_text("D-1")
    about = page.locator("dl.facts")
    expect(about).to_contain_text(re.compile(r"Exceptions\s*D-2"))
    expect(page.get_by_role("list").filter(has_text="made an exception")).to_contain_text("Round refunds")
