"""Filters are one line, and say which of them are in use (W2)."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.e2e.conftest import SignIn
from tests.portal import UpPortal

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("width", [390, 1440])
def test_the_filters_of_all_tasks_are_folded(portal: UpPortal, sign_in: SignIn, width: int) -> None:
    portal.new_task("# Rake the leaves", started=False)
    page = sign_in(portal, viewport={"width": width, "height": 844})
    page.goto(f"{portal.url}/tasks/all/")
    fold, project = page.locator("#filters > summary"), page.locator("select[name=project]")
    expect(project).to_be_hidden()
    search, summary = page.locator("#q").bounding_box(), fold.bounding_box()
    assert search and summary and abs(search["y"] - summary["y"]) < 4, "they are one line"
    fold.click()
    project.select_option("sample")
    expect(fold).to_have_text("1 filter")
    page.keyboard.press("Escape")
    expect(project).to_be_hidden()
    page.locator("#filters-in-use a").click()
    expect(fold).to_have_text("Filter")
    expect(page).to_have_url(f"{portal.url}/tasks/all/?")


#: The same call four times in a task, the last one in another folder; before the open questions.
EQUAL = """
from datetime import timedelta
from django.utils import timezone
first = Question.objects.get(pk={first})
command = {{"kind": "command", "title": "Bash", "text": "make deploy"}}
result = []
for number in range(2, 6):
    folder = [{{"kind": "text", "title": "Folder of the shell", "text": "services/mail"}}] * (number == 5)
    one = Question.objects.create(
        task=first.task, step=first.step, run=first.run, number=number, way="gate", kind="approval",
        tool_use_id=f"t{{number}}", items=[{{"question": "Allow this command?\\n\\n`make deploy`"}}],
        evidence=[command, *folder], asked_at=timezone.now() - timedelta(hours=1, minutes=-number),
    )
    result.append(one.pk)
"""


def test_equal_calls_are_passed_until_one_of_them_is_next(
    portal: UpPortal, sign_in: SignIn, inbox: list[int]
) -> None:
    first, second, third, elsewhere = portal.rows(EQUAL.format(first=inbox[0]))
    page = sign_in(portal)
    page.goto(f"{portal.url}/inbox/")
    row, card = (lambda pk: page.locator(f"#inbox-row-{pk}")), (lambda pk: page.locator(f"#question-{pk}"))
    expect(row(first)).to_contain_text("4 times")
    expect(row(second)).to_be_hidden()
    page.keyboard.press("j")
    expect(row(inbox[0])).to_have_attribute("aria-current", "true")
    page.keyboard.press("k")
    expect(card(first)).to_be_focused()
    card(first).get_by_role("button", name="Approve", exact=True).click()
    expect(card(second)).to_be_focused()
    expect(row(second)).to_contain_text("3 times")
    page.goto(f"{portal.url}/inbox/?question={elsewhere}")
    expect(row(elsewhere)).to_be_visible()
    expect(row(elsewhere)).to_contain_text("services/mail")
    page.goto(f"{portal.url}/inbox/?question={second}")
    card(second).get_by_role("button", name="Approve both").click()
    expect(card(elsewhere)).to_be_focused()
    expect(row(third)).to_have_count(0)


def test_the_cards_of_equal_calls_are_in_a_fold_that_opens_for_the_next(
    portal: UpPortal, sign_in: SignIn, inbox: list[int]
) -> None:
    first, second, *_ = portal.rows(EQUAL.format(first=inbox[0]))
    page = sign_in(portal)
    page.goto(f"{portal.url}/tasks/{portal.rows(f'result = Question.objects.get(pk={first}).task_id')}/")
    card = page.locator(f"#question-{first}")
    expect(page.locator(f"#question-{second}")).to_be_hidden()
    card.get_by_role("button", name="Approve", exact=True).click()
    expect(card).to_contain_text("Approved by admin")
    expect(page.locator(f"#question-{second}")).to_be_focused()


def test_what_usage_is_shown_is_one_line_on_a_phone(portal: UpPortal, sign_in: SignIn) -> None:
    page = sign_in(portal, viewport={"width": 390, "height": 844})
    page.goto(f"{portal.url}/usage/?project=sample")
    fold, project = page.locator("#usage-choice > summary"), page.locator("#usage-choice [name=project]")
    expect(fold).to_contain_text("sample, ")
    expect(project).to_be_hidden()
    fold.click()
    expect(project).to_be_visible()
    page.set_viewport_size({"width": 1280, "height": 900})
    page.reload()
    expect(project).to_be_visible()
    expect(fold).to_be_hidden()
