"""The question card, the inbox and the live log in a real browser: drafts, keys, and other people's events
(H5, W3, W7).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from tests.e2e.conftest import APPROVAL, ASK, SignIn, say
from tests.e2e.held_requests import hold, newest
from tests.portal import PASSWORD, UpPortal

pytestmark = pytest.mark.browser


def test_a_draft_survives_a_reload_and_other_peoples_events(
    portal: UpPortal, sign_in: SignIn, asked: tuple[int, int]
) -> None:
    task, number = asked
    page = sign_in(portal)
    page.goto(f"{portal.url}/tasks/{task}/")
    page.keyboard.press("3")
    page.keyboard.type("A tab, 12 wide")
    card = page.locator(f"#question-{number}")
    expect(card.locator(".dots-said")).to_have_text("1 of 2 answered")
    say(portal, task, ("text", {"text": "something happened"}))
    portal.rows(f"Change.objects.create(task_id={task}, kind='question')")
    expect(page.get_by_text("something happened")).to_be_visible()
    page.keyboard.type("!")
    expect(card.locator("[name=item-0-other]")).to_have_value("A tab, 12 wide!")
    page.reload()
    expect(card.locator("[name=item-0-other]")).to_have_value("A tab, 12 wide!")
    expect(card.locator("[name=item-0]").nth(2)).to_be_checked()


def test_a_refusal_stands_in_the_card_and_the_keyboard_is_enough(
    portal: UpPortal, sign_in: SignIn, asked: tuple[int, int]
) -> None:
    task, number = asked
    page = sign_in(portal)
    page.goto(f"{portal.url}/tasks/{task}/")
    card = page.locator(f"#question-{number}")
    page.keyboard.press("2")
    page.keyboard.press("Control+Enter")
    refusal = card.locator(".item[data-item='1'] .refusal")
    expect(refusal).to_contain_text("“What file name?” has no answer yet")
    name = card.locator("[name=item-1-other]")
    expect(name).to_be_focused()
    name.fill("customers.csv")
    page.keyboard.press("Escape")
    expect(name).not_to_be_focused()
    name.focus()
    page.keyboard.press("Control+Enter")
    expect(card).to_contain_text("Answered by admin")
    expect(card).to_contain_text("Semicolon")
    assert page.evaluate("localStorage.length") == 0


def test_a_card_that_is_completed_while_its_refusal_is_on_the_way_is_sent_again(
    portal: UpPortal, sign_in: SignIn, asked: tuple[int, int]
) -> None:
    task, number = asked
    page = sign_in(portal)
    page.goto(f"{portal.url}/tasks/{task}/")
    card = page.locator(f"#question-{number}")
    name = card.locator("[name=item-1-other]")
    posts = hold(page, f"**/questions/{number}/answer/")
    page.keyboard.press("2")
    page.keyboard.press("Control+Enter")
    first = newest(page, posts)
    name.fill("customers")
    page.keyboard.press("Control+Enter")
    name.press_sequentially(".csv")  # not sent without another press
    first.continue_()
    expect(card.locator(".item[data-item='1'] .refusal")).to_contain_text("has no answer yet")
    assert not posts
    page.keyboard.press("Control+Enter")
    second = newest(page, posts)
    page.keyboard.press("Control+Enter")  # an answer that is accepted is sent once
    second.continue_()
    expect(card).to_contain_text("Answered by admin")
    assert not posts


def test_the_last_press_counts_once_the_answer_before_it_was_refused(
    portal: UpPortal, sign_in: SignIn, asked: tuple[int, int]
) -> None:
    task, number = asked
    page = sign_in(portal)
    page.goto(f"{portal.url}/tasks/{task}/")
    card = page.locator(f"#question-{number}")
    posts = hold(page, f"**/questions/{number}/answer/", times=1)
    page.keyboard.press("2")
    page.keyboard.press("Control+Enter")
    first = newest(page, posts)
    card.locator("[name=item-1-other]").fill("customers.csv")
    page.keyboard.press("Control+Enter")
    first.continue_()
    expect(card).to_contain_text("Answered by admin")
    expect(card).to_contain_text("customers.csv")


def test_a_question_that_is_asked_appears_beside_one_that_is_being_answered(
    portal: UpPortal, sign_in: SignIn, asked: tuple[int, int]
) -> None:
    _, number = asked
    page = sign_in(portal)
    page.goto(f"{portal.url}/inbox/?question={number}")
    page.locator(f"#question-{number} [name=notes]").fill("in the middle of")
    _, other = portal.rows(ASK)
    expect(page.locator(f"#inbox-row-{other}")).to_be_visible()
    expect(page.locator(f"#question-{number} [name=notes]")).to_have_value("in the middle of")
    expect(page.locator(f"#question-{number} [name=notes]")).to_be_focused()
    expect(page).to_have_title(re.compile(r"^\(\d+\) Inbox · Cat Herder$"))
    assert page.locator("#favicon").get_attribute("href") == "/static/catherder/favicon-waiting.svg"


def test_the_inbox_needs_no_mouse(portal: UpPortal, sign_in: SignIn, inbox: list[int]) -> None:
    page = sign_in(portal)
    page.goto(f"{portal.url}/inbox/")
    one, two = (page.locator(f"#question-{number}") for number in inbox[:2])
    page.keyboard.press("k")
    expect(one).to_be_focused()
    page.keyboard.press("j")
    expect(two).to_be_focused()
    expect(two).to_be_in_viewport()
    page.keyboard.press("k")
    expect(one).to_be_focused()
    page.keyboard.press("ArrowDown")
    expect(one.get_by_role("radio", name="Comma", exact=False)).to_be_checked()
    page.keyboard.press("Enter")
    expect(one).to_have_attribute("data-state", "open")
    one.locator("[name=item-1-other]").fill("jok?")
    page.keyboard.press("Control+Enter")
    expect(page.locator("#inbox-answered")).to_contain_text("Answered by admin")
    expect(two).to_be_focused()
    expect(page.get_by_role("link", name="Open 2")).to_be_visible()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()
    page.keyboard.press("Escape")
    expect(two).to_be_focused()
    page.keyboard.press("o")
    page.wait_for_url("**/tasks/*/")


def test_a_card_that_is_fetched_anew_keeps_the_focus(
    portal: UpPortal, sign_in: SignIn, inbox: list[int]
) -> None:
    """As if its state had changed, the server gives the whole card instead of 204."""
    refresh = "document.body.dispatchEvent(new CustomEvent('catherder:refresh'))"
    whole = f"{portal.url}/questions/{inbox[0]}/"
    page = sign_in(portal)
    page.goto(f"{portal.url}/inbox/")
    one, two = (page.locator(f"#question-{number}") for number in inbox[:2])
    page.keyboard.press("k")
    expect(one).to_be_focused()
    held = hold(page, re.compile(f"questions/{inbox[0]}/.shown=open"))
    one.evaluate("card => card.classList.add('is-old')")
    page.evaluate(refresh)
    newest(page, held).continue_(url=whole)
    expect(page.locator(".is-old")).to_have_count(0)
    expect(one).to_be_focused()
    page.evaluate(refresh)
    late = newest(page, held)
    page.keyboard.press("j")
    late.continue_(url=whole)
    expect(two).to_be_focused()


def test_an_answer_that_is_accepted_after_its_card_was_left(
    portal: UpPortal, sign_in: SignIn, inbox: list[int]
) -> None:
    """H5: nothing stays under way, and no draft of it is left."""
    page = sign_in(portal)
    page.goto(f"{portal.url}/inbox/")
    one, two = (page.locator(f"#question-{number}") for number in inbox[:2])
    page.keyboard.press("k")
    expect(one).to_be_focused()
    page.keyboard.press("1")
    one.locator("[name=item-1-other]").fill("customers.csv")
    held = hold(page, re.compile(f"questions/{inbox[0]}/answer/"))
    page.keyboard.press("Control+Enter")
    answer = newest(page, held)
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    expect(two).to_be_focused()
    page.keyboard.press("k")
    expect(one).to_be_focused()
    answer.continue_()
    expect(one).to_contain_text("Answered by admin")
    assert page.evaluate("localStorage.length") == 0


@pytest.fixture
def patient_portal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UpPortal]:
    """A portal whose answers can be taken back for a while."""
    portal = UpPortal.migrated(tmp_path_factory.mktemp("portal") / "data")
    portal.variables["CATHERDER_UNDO_SECONDS"] = "8"
    yield portal.start()
    portal.stop()


#: Empty space at the end of a card.
BELOW_TEXT = """(card) => {
  const bottoms = [...card.children].map((one) => one.getBoundingClientRect().bottom);
  return card.getBoundingClientRect().bottom - Math.max(...bottoms);
}"""


def test_an_answer_counts_down_until_it_can_no_longer_be_taken_back(
    patient_portal: UpPortal, sign_in: SignIn
) -> None:
    """H14: on all pages of the user who answered, and they see that the question is open again."""
    _, number = patient_portal.rows(ASK)
    page, other = sign_in(patient_portal), sign_in(patient_portal)
    for tab in (page, other):
        tab.goto(f"{patient_portal.url}/questions/{number}/")
    card, elsewhere = (tab.locator(f"#question-{number}") for tab in (page, other))
    card.locator("[name=item-0]").first.check()
    card.locator("[name=item-1-other]").fill("customers.csv")
    page.keyboard.press("Control+Enter")
    left = card.locator(".undo-left")
    expect(left).to_have_text(re.compile(r"\([2-8] s\)"))
    seconds = int(left.inner_text().strip("( s)"))
    expect(elsewhere.get_by_role("button", name="Undo")).to_be_visible()
    expect(left).to_have_text(re.compile(rf"\([1-{seconds - 1}] s\)"))
    page.keyboard.press("u")
    for one in (card, elsewhere):
        expect(one).to_have_attribute("data-state", "open")
    expect(card.locator("[name=item-1-other]")).to_have_value("customers.csv")

    card.locator("[name=item-1-other]").press("Control+Enter")
    expect(left).to_be_visible()
    for one in (card, elsewhere):
        expect(one.get_by_role("button", name="Undo")).not_to_be_visible()
        expect(one).to_contain_text("Answered by admin")
        assert one.evaluate(BELOW_TEXT) < 40


def test_after_an_answer_the_next_question_opens_and_undo_brings_it_back(
    patient_portal: UpPortal, sign_in: SignIn
) -> None:
    """And Back leads to the question that was clicked before, not out of the inbox."""
    numbers = [patient_portal.rows(ASK)[1] for _ in range(2)]
    page = sign_in(patient_portal)
    page.goto(f"{patient_portal.url}/inbox/")
    first, second = (page.locator(f"#question-{number}") for number in numbers)
    for number in reversed(numbers):
        page.locator(f"#inbox-row-{number}").click()
    expect(first).to_be_focused()
    page.go_back()
    expect(second).to_be_focused()
    page.keyboard.press("k")
    expect(first).to_be_focused()
    page.keyboard.press("1")
    first.locator("[name=item-1-other]").fill("customers.csv")
    page.keyboard.press("Control+Enter")
    expect(second).to_be_focused()
    page.locator("#inbox-answered").get_by_role("button", name="Undo").click()
    expect(first).to_have_attribute("data-state", "open")
    expect(first.locator("[name=item-1-other]")).to_have_value("customers.csv")


def test_approving_and_denying_have_keys(portal: UpPortal, sign_in: SignIn, inbox: list[int]) -> None:
    number = inbox[0]
    portal.rows(APPROVAL.format(number=number))
    page = sign_in(portal)
    page.goto(f"{portal.url}/inbox/")
    card = page.locator(f"#question-{number}")
    page.keyboard.press("d")
    expect(card.get_by_label("Reason (required)")).to_be_focused()
    page.keyboard.press("Escape")
    expect(card.get_by_role("button", name="Approve")).to_be_visible()
    page.keyboard.press("a")
    expect(card.get_by_role("button", name="Approve")).to_be_focused()
    expect(card).to_have_attribute("data-state", "open")
    page.goto(f"{portal.url}/questions/{number}/")
    page.keyboard.press("d")
    expect(card.get_by_label("Reason (required)")).to_be_focused()
    page.keyboard.press("Escape")
    page.keyboard.press("a")
    expect(card.get_by_role("button", name="Approve")).to_be_focused()
    card.focus()
    page.keyboard.press("Control+Enter")
    expect(card).to_contain_text("Approved by admin")


def test_others_see_who_is_answering_until_that_user_leaves(
    portal: UpPortal, sign_in: SignIn, inbox: list[int]
) -> None:
    portal.rows(f"User.objects.create_superuser('ann', password={PASSWORD!r}, first_name='Ann')")
    page, other = sign_in(portal), sign_in(portal, "ann")
    page.goto(f"{portal.url}/inbox/")
    other.goto(f"{portal.url}/inbox/?question={inbox[0]}")
    other.locator(f"#question-{inbox[0]} [name=notes]").fill("I think")
    row, card = page.locator(f"#inbox-row-{inbox[0]}"), page.locator(f"#question-{inbox[0]}")
    expect(row).to_contain_text("Ann is answering")
    expect(card).to_contain_text("Ann is answering")
    expect(other.locator("#inbox-list")).not_to_contain_text("is answering")
    other.goto(f"{portal.url}/")
    expect(row).not_to_contain_text("Ann is answering")
    expect(card).not_to_contain_text("Ann is answering")


def test_a_denial_wants_a_reason_and_nothing_is_approved_by_a_key(
    portal: UpPortal, sign_in: SignIn, asked: tuple[int, int]
) -> None:
    task, number = asked
    portal.rows(APPROVAL.format(number=number))
    page = sign_in(portal)
    page.goto(f"{portal.url}/tasks/{task}/")
    card = page.locator(f"#question-{number}")
    expect(card.locator(".evidence")).to_contain_text("make deploy")
    card.focus()
    page.evaluate("window.isTheSamePage = true")
    for key in ("1", "Enter"):
        page.keyboard.press(key)
    card.get_by_text("Deny…").click()
    assert page.evaluate("window.isTheSamePage"), "Enter opened the page that was open"
    reason = card.get_by_label("Reason (required)")
    expect(reason).to_be_focused()
    expect(card.get_by_role("button", name="Approve")).to_be_hidden()
    card.get_by_role("button", name="Deny and resume").click()
    expect(card.locator(".notes .refusal")).to_contain_text("Enter a reason")
    expect(reason).to_be_focused()
    page.keyboard.press("Escape")
    expect(card.get_by_role("button", name="Approve")).to_be_visible()
    page.keyboard.press("Enter")
    expect(reason).to_be_focused()
    page.keyboard.type("Not on a Friday.")
    page.keyboard.press("Control+Enter")
    expect(card).to_contain_text("Denied by admin")
    expect(card).to_contain_text("Not on a Friday.")


def test_a_form_is_sent_once(portal: UpPortal, sign_in: SignIn) -> None:
    page = sign_in(portal)
    (sample,) = portal.row("SELECT id FROM tasks_app_project WHERE name = 'sample'")
    page.goto(f"{portal.url}/tasks/new/?project={sample}")
    page.locator("#id_text").fill("# Only once, please")
    page.evaluate("""() => {
        const form = document.querySelector("main form");
        const button = form.querySelector("[name=create]");
        form.requestSubmit(button);
        form.requestSubmit(button);
    }""")
    page.wait_for_url("**/tasks/*/")
    expect(page.locator("#task-header")).to_contain_text("Only once, please")
    assert portal.rows("result = Task.objects.filter(title='Only once, please').count()") == 1
