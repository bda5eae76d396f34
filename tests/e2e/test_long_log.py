"""A log of 10,000 events in a real browser: it stays small, can be scrolled to its beginning, and every
place in it can be reached (W2, W3, W7)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.e2e.conftest import SignIn
from tests.portal import UpPortal

pytestmark = pytest.mark.browser

LENGTH = 10_000
MAKE = f"""
import uuid
from tasks_app.history.events.blocks import NewEvent, append
task = Task.objects.get(pk=%d)
step = task.steps.first()
def run(number, texts):
    facts = dict(reason="first", session_id=uuid.uuid4(), outcome="finished")
    made = Run.objects.create(step=step, number=number, **facts)
    append(made, texts, seq=0)
    return made.pk
def said(number):
    return NewEvent(EventKind.TEXT, {{"text": f"This is line {{number}}."}})
failed = NewEvent(EventKind.ERROR, {{"text": "It broke here."}})
runs = [run(1, [said(n) for n in range(2000)] + [failed]), run(2, [said(n) for n in range(2000, {LENGTH})])]
result = [runs[1], Event.objects.filter(run__step__task=task, payload__text="This is line 5000.").get().pk]
"""
MORE = """
from tasks_app.history.events.blocks import NewEvent, append
run = Run.objects.get(pk=%d)
append(run, [NewEvent(EventKind.TEXT, {"text": f"More {n}."}) for n in range(%d, %d)], seq=run.next_seq())
"""


#: A log with much of the first step and a little of the second.
TWO_STEPS = """
import uuid
from tasks_app.history.events.blocks import NewEvent, append
task = Task.objects.get(pk=%d)
for step, lines in zip(task.steps.order_by("position"), (60, 2), strict=True):
    made = Run.objects.create(step=step, number=1, reason="first", session_id=uuid.uuid4())
    texts = [f"Of {step.name}, line {n}." for n in range(lines)]
    append(made, [NewEvent(EventKind.TEXT, {"text": text}) for text in texts], seq=0)
result = [step.name for step in task.steps.order_by("position")]
"""


class LongLog(NamedTuple):
    """A task with such a log, the number of its last run, and that of the event of line 5000."""

    task: int
    run: int
    middle: int


MOST = 6 * 100 * 12  # parts, entries, nodes of an entry


def nodes(page: Page) -> int:
    return int(page.evaluate("document.querySelectorAll('#log-box *').length"))


def scroll(page: Page, to: str) -> None:
    page.evaluate(f"() => {{ const box = document.getElementById('log-box'); box.scrollTop = {to}; }}")


def line(page: Page, number: int) -> Locator:
    return page.get_by_text(f"This is line {number}.", exact=True)


@pytest.fixture(scope="module")
def long_log(shared_portal: UpPortal) -> LongLog:
    task = shared_portal.new_task("# A long log\n", started=False)
    return LongLog(task, *shared_portal.rows(MAKE % task))


@pytest.fixture
def page(portal: UpPortal, sign_in: SignIn, long_log: LongLog) -> Page:
    page = sign_in(portal, viewport={"width": 1200, "height": 800})
    page.goto(f"{portal.url}/tasks/{long_log.task}/log/")
    expect(page.locator("#follow")).to_be_visible()  # the script has put the log in order
    return page


@pytest.fixture
def say_more(portal: UpPortal, long_log: LongLog) -> Iterator[Callable[[int, int], None]]:
    """Let the last run say lines from one number up to another. Other tests do not find them."""
    yield lambda start, end: portal.rows(MORE % (long_log.run, start, end))
    portal.rows(f"Event.objects.filter(run={long_log.run}, payload__text__startswith='More').delete()")


def test_one_scrolls_to_the_beginning_and_the_page_stays_small(page: Page) -> None:
    expect(line(page, LENGTH - 1)).to_be_in_viewport()
    expect(page.locator("#follow")).to_have_attribute("aria-pressed", "true")
    expect(line(page, LENGTH - 101)).to_have_count(0)
    most = 0
    for _ in range(400):
        scroll(page, "0")
        page.wait_for_function(
            "() => { const box = document.getElementById('log-box');"
            " return box.scrollTop > 0 || document.getElementById('log-earlier').hidden; }"
        )
        most = max(most, nodes(page))
        if page.locator("#log-earlier").is_hidden():
            break
    scroll(page, "0")
    expect(line(page, 0)).to_be_in_viewport()
    assert most < MOST
    expect(page.locator("#follow")).to_have_attribute("aria-pressed", "false")
    page.keyboard.press("f")
    expect(line(page, LENGTH - 1)).to_be_in_viewport()
    assert nodes(page) < MOST


def test_the_top_line_names_the_step_that_runs(portal: UpPortal, sign_in: SignIn) -> None:
    task = portal.new_task("# Two steps\n", started=False)
    first, second = portal.rows(TWO_STEPS % task)
    page = sign_in(portal, viewport={"width": 1200, "height": 800})
    page.goto(f"{portal.url}/tasks/{task}/log/")
    where = page.locator("#log-where")
    expect(page.get_by_text(f"Of {second}, line 1.")).to_be_in_viewport()
    expect(page.get_by_text(f"Of {first}, line 59.")).to_be_in_viewport()
    expect(where).to_have_text(f"{second} · run 1, first run · 100 % of the log")
    scroll(page, "200")
    expect(where).to_contain_text(re.compile(f"^{first} · .* · [1-9][0-9]? % of the log$"))


def test_what_one_looks_at_stays_where_it_is_when_earlier_parts_come(page: Page) -> None:
    seen = page.get_by_text(f"This is line {LENGTH - 95}.", exact=True)
    with page.expect_response("**/log/?before=*"):
        seen.evaluate("element => { document.getElementById('log-box').scrollTop = 100; }")
        before = seen.bounding_box()
    expect(line(page, LENGTH - 150)).to_have_count(1)
    after = seen.bounding_box()
    assert before and after and abs(before["y"] - after["y"]) <= 1


def test_one_jumps_to_the_error_and_to_an_event(page: Page, long_log: LongLog) -> None:
    page.locator("#log-box").focus()
    page.keyboard.press("e")
    error = page.locator(".entry-error")
    expect(error).to_be_in_viewport()
    expect(error).to_be_focused()
    expect(page.locator("#log-where")).to_contain_text("run 1")
    page.goto(f"{page.url}#event-{long_log.middle}")
    expect(line(page, 5000)).to_be_in_viewport()
    assert nodes(page) < MOST
    page.get_by_role("link", name="Errors").click()
    expect(page.locator(".entry")).to_have_count(1)
    page.locator(".entry-time").click()
    expect(line(page, 2000)).to_be_in_viewport()
    expect(page.get_by_role("link", name="All")).to_have_attribute("aria-current", "true")
    page.get_by_role("link", name="Tools").click()
    expect(page.locator("#log-message")).to_have_text("No entries of this kind.")


def test_new_lines_do_not_pull_one_away(page: Page, say_more: Callable[[int, int], None]) -> None:
    say_more(0, 3)
    expect(page.get_by_text("More 2.", exact=True)).to_be_in_viewport()
    scroll(page, "1000")
    expect(page.locator("#follow")).to_have_attribute("aria-pressed", "false")
    say_more(3, 8)
    below = page.locator("#log-below")
    expect(below).to_have_text("5 new")
    expect(page.get_by_text("More 7.", exact=True)).not_to_be_in_viewport()
    below.click()
    expect(page.get_by_text("More 7.", exact=True)).to_be_in_viewport()
    expect(below).to_be_hidden()


def test_that_the_log_was_out_of_reach_is_not_said_for_ever(
    page: Page, say_more: Callable[[int, int], None]
) -> None:
    page.context.set_offline(True)
    page.get_by_role("link", name="Errors").click()
    expect(page.locator("#log-message")).to_have_text("The log could not be loaded. Try again.")
    page.context.set_offline(False)
    say_more(0, 1)
    expect(page.locator("#log-message")).to_have_text("")


def test_without_scripts_links_lead_to_the_beginning(
    portal: UpPortal, sign_in: SignIn, long_log: LongLog
) -> None:
    page = sign_in(portal, java_script_enabled=False)
    page.goto(f"{portal.url}/tasks/{long_log.task}/log/")
    page.get_by_role("link", name="Load earlier entries").click()
    expect(line(page, LENGTH - 150)).to_be_visible()
    page.get_by_role("link", name="Load later entries").click()
    expect(line(page, LENGTH - 1)).to_be_visible()


def test_words_are_searched_for_in_the_whole_log(page: Page) -> None:
    """W2: what is not loaded is found as well, with the keyboard alone."""
    page.keyboard.press("/")
    page.keyboard.type("LINE 77")
    page.keyboard.press("Enter")
    message, selected = page.locator("#log-message"), page.locator("#log-box .is-selected")
    expect(message).to_have_text("1 of 111")
    expect(selected).to_contain_text("This is line 77.")
    page.keyboard.press("Enter")
    expect(message).to_have_text("2 of 111")
    expect(selected).to_contain_text("This is line 770.")
    assert page.evaluate("CSS.highlights.get('log-found').size") >= 10
    page.keyboard.press("Shift+Enter")
    page.keyboard.press("Shift+Enter")
    expect(message).to_have_text("111 of 111")
    expect(selected).to_contain_text("This is line 7799.")
    expect(page.locator("#log-where")).to_contain_text("· 78 % of the log")
    page.keyboard.press("Escape")
    page.keyboard.press("f")
    expect(page.locator("#log-where")).to_contain_text("· 100 % of the log")
    page.keyboard.press("/")
    page.locator("#log-words").fill("nowhere")
    page.keyboard.press("Enter")
    expect(message).to_have_text("Not found.")
    page.keyboard.press("Escape")
    expect(page.locator("#log-box")).to_be_focused()
    page.keyboard.press("s")
    expect(line(page, 0)).to_be_in_viewport()


def test_the_link_to_an_entry_needs_no_mouse(page: Page) -> None:
    page.keyboard.press("/")
    page.keyboard.type("line 777.")
    page.keyboard.press("Enter")
    expect(page.locator("#log-box .is-selected")).to_contain_text("This is line 777.")
    page.keyboard.press("Escape")
    page.keyboard.press("s")
    expect(line(page, 0)).to_be_in_viewport()
    page.keyboard.press("l")
    first = str(page.evaluate("document.activeElement.hash"))
    page.keyboard.press("l")
    second = page.locator(".entry-time:focus")
    expect(second).not_to_have_attribute("href", re.compile(first + "$"))
    expect(second).to_have_attribute("href", re.compile(r"#event-\d+$"))
    page.keyboard.press("Shift+L")
    expect(page.locator(".entry-time:focus")).to_have_attribute("href", re.compile(first + "$"))
    page.keyboard.press("Enter")
    expect(page.locator("#log-box .is-selected")).to_have_id(first.removeprefix("#"))


#: A run that has ended, and a request for changes; then the run that works on it.
REVIEWED = """
import uuid
from django.utils import timezone
from tasks_app.history.events.blocks import NewEvent, append
from tasks_app.models import Change, Review
task = Task.objects.get(pk=%d)
step = task.steps.first()
number = step.runs.count() + 1
made = Run.objects.create(step=step, number=number, reason="first", session_id=uuid.uuid4())
append(made, [NewEvent(EventKind.TEXT, {"text": f"Said in run {number}."})], seq=0)
if number == 1:
    author, verdict = User.objects.get(username="admin"), "request_changes"
    facts = dict(number=1, verdict=verdict, body="Make it blue.", sent_at=timezone.now())
    Review.objects.create(task=task, author=author, **facts)
Change.objects.create(task=task, kind="task")
Change.objects.create(task=task, kind="events")
"""


def test_a_request_for_changes_is_seen_at_once_and_stays_once(portal: UpPortal, sign_in: SignIn) -> None:
    task = portal.new_task("# Reviewed\n", started=False)
    page = sign_in(portal)
    page.goto(f"{portal.url}/tasks/{task}/log/")
    expect(page.locator("#follow")).to_be_attached()
    portal.rows(REVIEWED % task)
    log = page.locator("#log-box")
    expect(log.get_by_text("Make it blue.")).to_be_visible()
    portal.rows(REVIEWED % task)
    expect(log.get_by_text("Said in run 2.")).to_be_visible()
    expect(log.get_by_text("Make it blue.")).to_have_count(1)
    shown = log.inner_text()
    assert shown.index("Said in run 1.") < shown.index("Make it blue.") < shown.index("Said in run 2.")
