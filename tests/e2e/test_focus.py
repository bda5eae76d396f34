"""Where the focus is after something was done: never lost, and what was typed stays (W7)."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, Route, expect

from tests.e2e.conftest import ASK, SignIn
from tests.portal import UpPortal

pytestmark = pytest.mark.browser

CHANGED = "Change.objects.create(task_id={task}, kind='task')"
#: Told to nobody.
PHASE = "Task.objects.filter(pk={task}).update(phase='{phase}')"


def press(page: Page, *keys: str) -> None:
    for key in keys:
        page.keyboard.press(key)


def test_parts_of_a_task_are_fetched_again_while_somebody_chooses(portal: UpPortal, sign_in: SignIn) -> None:
    """Links without an id keep the focus, and what was chosen and not sent stays chosen."""
    task = portal.new_task("# Tidy up", started=False)
    page = sign_in(portal)
    page.goto(f"{portal.url}/tasks/{task}/")
    place = page.locator("#task-header .breadcrumb a", has_text="sample")
    place.focus()
    with page.expect_response(lambda answer: "/header/" in answer.url):
        portal.rows(CHANGED.format(task=task))
    expect(place).to_be_focused()
    page.goto(f"{portal.url}/tasks/{task}/details/")
    fold = page.locator("#change-threshold")
    fold.locator("summary").focus()
    press(page, "Enter")
    chosen = fold.get_by_role("radio").nth(4)
    chosen.check()
    with page.expect_response(lambda answer: answer.url.endswith("/details/")):
        portal.rows(CHANGED.format(task=task))
    expect(chosen).to_be_checked()
    expect(chosen).to_be_focused()


def test_the_bar_of_selected_tasks_gives_the_focus_back(portal: UpPortal, sign_in: SignIn) -> None:
    task = portal.new_task("# Sweep the floor", started=False)
    portal.rows(PHASE.format(task=task, phase="interrupted"))
    page = sign_in(portal)
    page.goto(f"{portal.url}/?q=sweep+the+floor")
    box = page.locator(f"#pick-{task}")
    box.focus()
    press(page, "Space")
    page.locator("#bulk-clear").focus()
    press(page, "Enter")
    expect(box).to_be_focused()
    press(page, "Space")
    page.locator("#bulk").get_by_role("button", name="Resume").focus()

    def refused(route: Route) -> None:
        portal.rows(PHASE.format(task=task, phase="pending"))
        route.continue_()

    page.route("**/tasks/bulk/", refused)
    press(page, "Enter")
    close = page.locator("#bulk-results").get_by_role("button", name="Close")
    expect(close).to_be_focused()
    press(page, "Enter")
    expect(box).to_be_focused()


def test_an_action_that_is_no_longer_offered_gives_the_focus_back(portal: UpPortal, sign_in: SignIn) -> None:
    task = portal.new_task("# Wipe the table", started=False)
    portal.rows(PHASE.format(task=task, phase="interrupted"))
    page = sign_in(portal)
    page.goto(f"{portal.url}/?q=wipe+the+table")
    page.locator(f"#row-{task}-link").focus()
    press(page, "x")
    resume = page.locator("#bulk [value=resume]")
    resume.focus()
    portal.rows(f"{PHASE}\n{CHANGED}".format(task=task, phase="pending"))
    expect(resume).to_be_hidden()
    expect(page.locator(f"#pick-{task}")).to_be_focused()


def test_a_menu_closes_behind_the_focus(portal: UpPortal, sign_in: SignIn) -> None:
    page = sign_in(portal)
    menu = page.locator("header .menu")
    menu.locator("summary").focus()
    press(page, "Enter")
    page.get_by_role("button", name="Shortcuts").focus()
    press(page, "Enter", "Escape")
    expect(page.get_by_role("button", name="Shortcuts")).to_be_focused()
    page.get_by_role("button", name="Log out").focus()
    press(page, "Tab")
    expect(menu).not_to_have_attribute("open", "")


def test_an_answer_that_does_not_arrive_leaves_the_focus_in_its_card(
    portal: UpPortal, sign_in: SignIn
) -> None:
    _, number = portal.rows(ASK)
    page = sign_in(portal)
    page.goto(f"{portal.url}/questions/{number}/")
    card = page.locator(f"#question-{number}")
    card.get_by_role("radio").first.check()
    page.route("**/answer/", lambda route: route.abort())
    button = card.locator(".card-buttons > .primary")
    button.focus()
    press(page, "Enter")
    expect(card.locator(".refusal")).to_contain_text("could not be reached")
    assert page.evaluate("number => Boolean(document.activeElement.closest(`#question-${number}`))", number)


def test_the_list_of_keys_is_read_from_its_beginning(portal: UpPortal, sign_in: SignIn) -> None:
    page = sign_in(portal, viewport={"width": 390, "height": 500})
    press(page, "?")
    expect(page.locator("dialog#keys")).to_be_focused()
    expect(page.locator("#keys-title")).to_be_in_viewport()
    press(page, "Escape")
    expect(page.locator("dialog#keys")).to_be_hidden()


def test_what_has_the_focus_is_not_behind_the_bar(portal: UpPortal, sign_in: SignIn) -> None:
    tasks = [portal.new_task(f"# Paint fence {number}", started=False) for number in range(5)]
    page = sign_in(portal, viewport={"width": 390, "height": 500})
    page.goto(f"{portal.url}/?q=paint+fence")
    page.locator(f"#pick-{tasks[-1]}").focus()
    press(page, "Space")
    for _ in range(12):
        press(page, "Tab")
        place = page.evaluate("document.activeElement.getBoundingClientRect().bottom")
        if page.evaluate("Boolean(document.activeElement.closest('#groups'))"):
            assert place <= page.locator("#bulk").evaluate("bar => bar.getBoundingClientRect().top")


def test_on_a_phone_what_has_the_focus_is_above_the_navigation(portal: UpPortal, sign_in: SignIn) -> None:
    page = sign_in(portal, viewport={"width": 390, "height": 500})
    page.goto(f"{portal.url}/tasks/new/")
    page.locator("#id_text").focus()
    stops = []
    while page.evaluate("document.activeElement.matches('main *')"):
        stops.append(page.evaluate("document.activeElement.getBoundingClientRect().bottom"))
        press(page, "Tab")
    assert len(stops) > 5
    assert max(stops[1:]) <= page.locator(".top nav").evaluate("nav => nav.getBoundingClientRect().top")
