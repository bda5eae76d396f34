"""The story that a new user gets: the agent plans, asks, halts; a human answers; the session goes on."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.e2e.conftest import SignIn, show_arrived
from tests.installation import Installation
from tests.portal import UpPortal

pytestmark = pytest.mark.browser

QUESTION = "who pays the odd cents"
DONE = "All steps finished, all checks passed."


def start_sample(page: Page) -> None:
    page.get_by_role("link", name="Split the bill to the last cent").first.click()
    page.get_by_role("button", name="Start").click()


def in_own_words(card: Locator, text: str) -> None:
    card.locator(".choice-own input").check()
    card.locator("textarea.own-text").fill(text)


def tool_results(portal: UpPortal, task: int) -> list[str]:
    """What the agent was told by its tools in the task's runs."""
    return list(
        portal.rows(
            f"rows = Event.objects.filter(kind='tool_result', run__step__task={task})\n"
            "result = [event.payload['text'] for event in rows]"
        )
    )


def test_the_sample_story_with_a_reload_and_a_restart_while_it_waits(
    own_portal: UpPortal, sign_in: SignIn
) -> None:
    """H4, H5, H7, V6, R1-R3: nothing runs while it waits, all survives, the result is published."""
    page = sign_in(own_portal)
    expect(page.get_by_text("Rehearsal.", exact=True)).to_be_visible()
    start_sample(page)

    card = page.locator("article.card")
    show_arrived(page, card)
    expect(card.get_by_role("heading", level=2)).to_contain_text(QUESTION)
    expect(page).to_have_title(re.compile(r"^\(1\)"))
    expect(card).to_contain_text("One cent more for each of the first guests")
    waiting = "result = [Task.objects.get().phase, *Step.objects.values_list('phase', flat=True)]"
    assert own_portal.rows(waiting) == ["waiting_for_input", "done", "waiting_for_input"]
    assert own_portal.agents() == []
    told = Installation(own_portal.data_dir).manage("status", "1").stdout
    assert f"{own_portal.url}/questions/1/" in told

    card.get_by_role("radio", name="Spread them").check()
    card.get_by_label("Notes").fill("Halves are for horses.")
    page.reload()
    expect(card.get_by_role("radio", name="Spread them")).to_be_checked()
    expect(card.get_by_label("Notes")).to_have_value("Halves are for horses.")

    own_portal.stop()
    expect(page.locator("#connection")).to_be_visible()
    own_portal.start()
    expect(page.locator("#connection")).to_be_hidden()
    expect(card.get_by_role("radio", name="Spread them")).to_be_checked()

    card.get_by_role("button", name="Answer and resume").click()
    expect(card).to_contain_text("Answered by admin")
    expect(card).to_be_in_viewport()  # it says how to take the answer back
    expect(page.get_by_text(DONE)).to_be_visible()
    expect(card).not_to_contain_text("resuming")
    expect(page).not_to_have_title(re.compile(r"^\("))
    expect(page.get_by_text("check python3 -m unittest discover -s tests")).to_be_visible()
    changed = page.locator("details", has_text="share, left_over = divmod(total, people)")
    expect(changed.first).to_contain_text("billsplit/__init__.py")

    show_arrived(page, page.locator("#result"))
    page.get_by_role("button", name="Publish", exact=True).click()
    expect(page.locator("#result")).to_contain_text("Published as cat-herder/")

    _review_and_send_back(page)
    expect(page.locator(".thread").first).to_contain_text("answered by the agent")
    page.get_by_role("link", name="Since my last review").click()
    expect(page.locator("#diff")).to_contain_text("Looked at again after a review.")
    expect(page.locator(".dl-add")).to_have_count(2)

    runs = own_portal.rows(
        "rows = Run.objects.filter(step__name='implement')\n"
        "result = [[run.reason, run.outcome, str(run.session_id)] for run in rows]"
    )
    assert [run[:2] for run in runs] == [
        ["first", "asked"], ["answer", "finished"], ["review", "finished"],
    ]  # fmt: skip
    assert len({run[2] for run in runs}) == 1, "the same session went on"
    read = tool_results(own_portal, 1)
    assert any("Spread them" in text and "Halves are for horses." in text for text in read)


def _review_and_send_back(page: Page) -> None:
    """V3, V4: comment two lines, one with the keyboard and over a reload, and request changes."""
    task = page.url
    page.get_by_role("link", name="Changes", exact=True).click()
    file = page.locator('.reviewed[data-path="billsplit/__init__.py"]')
    file.locator(".dl", has_text="share, left_over = divmod").locator(".dn").first.click()
    page.locator(".thread-form textarea").fill("Why divmod?")
    page.reload()
    expect(page.locator(".thread-form textarea")).to_have_value("Why divmod?")
    page.get_by_role("button", name="Add to review").click()
    expect(page.locator(".thread-draft")).to_contain_text("Why divmod?")
    file.focus()
    for key in ("ArrowDown", "ArrowDown", "Enter"):
        page.keyboard.press(key)
    page.keyboard.type("And this?")
    page.keyboard.press("Control+Enter")
    expect(page.locator("#drafted")).to_contain_text("2 drafts")
    page.locator("#review-title").click()
    page.get_by_role("button", name="Request changes").click()
    page.wait_for_url(task)
    expect(page.locator("#timeline")).to_contain_text("after a review")
    expect(page.get_by_text(DONE)).to_be_visible()
    page.get_by_role("link", name="Changes", exact=True).click()


def test_the_sample_shows_questions_before_work(portal: UpPortal, sign_in: SignIn) -> None:
    """D8: as the documents say, in rehearsal; both questions stand on one card, and none comes later."""
    text = "---\npipeline: questions-first\n---\n# Greet the guests\n\nrehearsal: clarify-first\n"
    task = portal.new_task(text)
    page = sign_in(portal)
    page.goto(f"{portal.url}/tasks/{task}/")
    card = page.locator("article.card")
    show_arrived(page, card)
    expect(card.get_by_role("heading", level=2)).to_have_text(
        ["Who reads the greeting?", "Must the old greeting stay available?"]
    )
    card.get_by_role("radio", name="Guests (Recommended)").check()
    card.get_by_role("radio", name="No (Recommended)").check()
    card.get_by_role("button", name="Answer both and resume").click()
    expect(page.get_by_text(DONE)).to_be_visible()
    assert portal.rows(f"result = Question.objects.filter(task={task}).count()") == 1


def test_every_open_browser_learns_who_answered(portal: UpPortal, sign_in: SignIn) -> None:
    """H5: at once, in every open browser; a late answer is told by whom, when and what, and is not lost."""
    task = portal.new_task("# Two browsers\n\nrehearsal: ask-and-end\n")
    first, second = sign_in(portal), sign_in(portal)
    for page in (first, second):
        page.goto(f"{portal.url}/tasks/{task}/")
        show_arrived(page, page.locator("article.card[data-state=open]"))
    # The browser itself refuses to fetch news of questions; the answer goes to an address without a query.
    network = second.context.new_cdp_session(second)
    network.send("Network.enable")
    network.send("Network.setBlockedURLs", {"urls": ["*?known=*", "*?shown=*", "*/claim/"]})
    in_own_words(first.locator("article.card"), "from the first browser")
    first.keyboard.press("Control+Enter")
    expect(first.locator("article.card")).to_contain_text("Answered by admin")
    # The second one could not fetch the news, so its form is still there; its answer comes too late.
    in_own_words(second.locator("article.card"), "from the second browser")
    second.keyboard.press("Control+Enter")
    expect(second.locator("article.card")).to_contain_text("from the first browser")
    expect(second.locator("article.card .kept textarea")).to_have_value("from the second browser")
    answers = portal.rows(f"result = [q.answer_text for q in Question.objects.filter(task={task})]")
    assert answers == ["from the first browser"]


def test_an_open_card_turns_into_the_answer_without_a_reload(portal: UpPortal, sign_in: SignIn) -> None:
    """W3: the inbox of somebody else shows the answer as it is given, and keeps what was typed there."""
    task = portal.new_task("# Live\n\nrehearsal: ask-and-end\n")
    watching = sign_in(portal)
    watching.goto(f"{portal.url}/inbox/")
    card = watching.locator(f"article.card:has(a[href='/tasks/{task}/'])")
    expect(card).to_be_visible()
    in_own_words(card, "half an answ")
    question = portal.rows(f"result = Question.objects.get(task={task}).pk")
    done = portal.manage("answer", str(question), "from the terminal", "--as", "admin")
    assert done.returncode == 0, done.stderr
    expect(card).to_contain_text("Answered by admin")
    expect(card).to_contain_text("from the terminal")
    expect(card.locator(".kept textarea")).to_have_value("half an answ")


def test_the_card_works_without_javascript(portal: UpPortal, sign_in: SignIn) -> None:
    """H5: an ordinary form; an empty answer is refused in words and keeps the notes."""
    task = portal.new_task("# No script\n\nrehearsal: ask-and-end\n")
    page = sign_in(portal, java_script_enabled=False)
    page.goto(f"{portal.url}/tasks/{task}/")
    for _ in range(100):
        if page.locator("article.card").count():
            break
        page.wait_for_timeout(200)
        page.reload()
    page.locator("article.card [name=notes]").fill("keep me")
    page.get_by_role("button", name="Answer and resume").click()
    expect(page.locator(".refusal")).to_contain_text("Choose an option or type an answer.")
    expect(page.locator("[name=notes]")).to_have_value("keep me")
    page.locator("textarea.own-text").first.fill("plain old form")
    page.get_by_role("button", name="Answer and resume").click()
    expect(page.get_by_text("Answered by admin").first).to_be_visible()


def test_several_questions_are_answered_on_one_card_with_the_keyboard(
    portal: UpPortal, sign_in: SignIn
) -> None:
    """H3: one ask with a single choice, a multiple choice and free text; the agent gets all three."""
    task = portal.new_task("# Several\n\nrehearsal: ask-multi\n")
    page = sign_in(portal)
    page.goto(f"{portal.url}/tasks/{task}/")
    card = page.locator("article.card")
    show_arrived(page, card)
    items = card.locator("fieldset.item")
    expect(items).to_have_count(3)
    page.keyboard.press("Control+Enter")
    expect(card.locator(".refusal").first).to_be_visible()
    items.nth(0).locator("input").first.focus()
    page.keyboard.press("1")
    boxes = items.nth(1).locator("input[type=checkbox]")
    boxes.nth(0).check()
    boxes.nth(1).check()
    in_own_words(items.nth(2), '"; rm -rf / @/etc/passwd /clear\n☃')
    page.keyboard.press("Control+Enter")
    expect(card).to_contain_text("Answered by admin")
    expect(page.locator(".run-start", has_text="run 2, resumed with admin’s answer")).to_be_visible()
    expect(page.locator(".task-bar")).not_to_contain_text("running")
    told = tool_results(portal, task)
    assert any('"; rm -rf / @/etc/passwd /clear\n☃' in text for text in told)


def test_a_second_account_sees_nothing(portal: UpPortal, sign_in: SignIn) -> None:
    """W1: what you may not see is 404, on pages and downloads; a stranger is sent to the login."""
    portal.rows("from tests.portal import PASSWORD\nUser.objects.create_user('outsider', password=PASSWORD)")
    task = portal.new_task("# Secret\n\nrehearsal: ask-and-end\n", started=False)
    page = sign_in(portal, "outsider")
    expect(page.get_by_text("Secret")).to_have_count(0)
    for path in (f"/tasks/{task}/", f"/tasks/{task}/diff/", f"/tasks/{task}/steps/1/raw.log"):
        assert page.request.get(portal.url + path).status == 404
    assert page.request.get(portal.url + "/admin/", max_redirects=0).status == 302
