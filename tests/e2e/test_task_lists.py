"""Many tasks at once, with the keyboard alone, while the lists are fetched again (W2, W7)."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.e2e.conftest import SignIn
from tests.e2e.held_requests import hold, newest
from tests.portal import UpPortal

pytestmark = pytest.mark.browser


def test_a_selection_outlives_the_lists_and_its_result_names_each_task(
    portal: UpPortal, sign_in: SignIn
) -> None:
    tasks = [portal.new_task(f"# Tidy shelf {number}", started=False) for number in range(2)]
    page = sign_in(portal)
    page.goto(f"{portal.url}/tasks/?q=tidy")
    before = page.locator("#groups").bounding_box()
    for task in tasks:
        page.locator(f"#row-{task}-link").focus()
        page.keyboard.press("x")
    expect(page.locator("#bulk-count")).to_have_text("2 selected")
    assert page.locator("#groups").bounding_box() == before, "no row moves"
    with page.expect_response(lambda response: "q=tidy" in response.url):
        portal.rows(f"Change.objects.create(task_id={tasks[0]}, kind='task')")
    for task in tasks:
        expect(page.locator(f"#pick-{task}")).to_be_checked()
    portal.rows(f"Task.objects.filter(pk={tasks[0]}).update(phase='done')")
    page.locator("#bulk-cancel summary").focus()
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Cancel the tasks").focus()
    page.keyboard.press("Enter")
    result = page.locator("#bulk-results")
    expect(result).to_contain_text("1 of 2 cancelled")
    expect(result.locator("li").first).to_contain_text(re.compile("Tidy shelf 0.*cannot become cancelled"))
    expect(page.locator("#bulk-count")).to_have_text("0 selected")
    page.keyboard.press("Escape")
    expect(result).to_be_empty()


def test_filters_are_kept_in_the_url(portal: UpPortal, sign_in: SignIn) -> None:
    tasks = [portal.new_task(f"# {title}", started=False) for title in ("Sweep the yard", "Wash up")]
    page = sign_in(portal)
    page.locator("#q").fill("sweep")
    expect(page.locator(f"#row-{tasks[1]}")).to_have_count(0)
    expect(page).to_have_url(f"{portal.url}/tasks/?q=sweep")
    page.reload()
    expect(page.locator(f"#row-{tasks[0]}")).to_be_visible()
    expect(page.locator(f"#row-{tasks[1]}")).to_have_count(0)


def test_what_is_typed_is_not_lost_when_the_lists_are_fetched_meanwhile(
    portal: UpPortal, sign_in: SignIn
) -> None:
    """W2: the filter's answer comes after that of a fetch which began later."""
    tasks = [portal.new_task(f"# {title}", started=False) for title in ("Mow the lawn", "Rake leaves")]
    page = sign_in(portal)
    held = hold(page, re.compile(r"q=mow"))
    page.locator("#q").fill("mow")
    filtered = newest(page, held)
    page.evaluate("document.body.dispatchEvent(new CustomEvent('catherder:refresh'))")
    page.evaluate("async () => { for (let turn = 0; turn < 3; turn += 1) await fetch('/tasks/'); }")
    filtered.continue_()
    expect(page.locator(f"#row-{tasks[1]}")).to_have_count(0)
    expect(page.locator(f"#row-{tasks[0]}")).to_be_visible()


def test_a_change_while_the_lists_are_on_their_way_is_not_lost(portal: UpPortal, sign_in: SignIn) -> None:
    """W3: the answer that comes is older than the notice, so the lists are fetched once more."""
    task = portal.new_task("# Beat the carpet", started=False)
    page = sign_in(portal)
    page.goto(f"{portal.url}/tasks/?q=carpet")
    held = hold(page, re.compile(r"q=carpet"), times=1)
    page.evaluate("document.body.dispatchEvent(new CustomEvent('catherder:refresh'))")
    request = newest(page, held)
    answer = request.fetch()
    with page.expect_response("**/navigation/**"):
        portal.rows(
            f"Task.objects.filter(pk={task}).update(phase='done')\n"
            f"Change.objects.create(task_id={task}, kind='task')"
        )
    request.fulfill(response=answer)
    expect(page.locator(f"#row-{task} .badge")).to_contain_text("done")
    expect(page.locator(f"[data-group=finished] #row-{task}")).to_have_count(1)


def test_a_search_is_answered_while_it_is_typed_and_needs_no_mouse(portal: UpPortal, sign_in: SignIn) -> None:
    task = portal.new_task("# Polish the doorknob", started=False)
    page = sign_in(portal)
    page.keyboard.press("Control+k")
    dialog = page.get_by_role("dialog", name="Search")
    field = dialog.get_by_role("combobox")
    expect(field).to_be_focused()
    page.keyboard.type("doorknob")
    expect(dialog.locator("#search-count")).to_have_text("1 result")
    chosen = dialog.locator("[aria-selected=true]")
    expect(chosen).to_contain_text("Polish the doorknob")
    expect(field).to_have_attribute("aria-activedescendant", str(chosen.get_attribute("id")))
    page.keyboard.press("ArrowDown")
    expect(chosen).to_contain_text("Search all texts")
    page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
    page.keyboard.press("Control+k")
    expect(chosen).to_contain_text("Polish the doorknob")
    page.keyboard.press("Enter")
    page.wait_for_url(f"{portal.url}/tasks/{task}/")


def test_first_steps_that_are_dismissed_do_not_come_back(portal: UpPortal, sign_in: SignIn) -> None:
    """W7: they are fetched anew while the dismissal is on its way."""
    page = sign_in(portal)
    held = hold(page, "**/first-steps/dismiss/")
    try:
        page.wait_for_load_state("networkidle")
        page.get_by_role("button", name="Dismiss").click()
        dismissal = newest(page, held)
        with page.expect_response("**/navigation/**"):  # told at the same time, and answered after it
            page.evaluate("document.body.dispatchEvent(new CustomEvent('catherder:refresh'))")
        dismissal.continue_()
        expect(page.locator("#first-steps")).to_have_count(0)
    finally:
        portal.rows("User.objects.update(first_steps_dismissed=False)")
