"""The question card and the live log in a real browser: drafts, keys, and other people's events (H5, W3)."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.e2e.conftest import SignIn
from tests.e2e.portal import UpPortal

pytestmark = pytest.mark.browser

ASK = """
import uuid
from django.utils import timezone
from tasks_app.actions.tasks import create_task
admin = User.objects.get(username="admin")
task = create_task(Project.objects.get(name="sample"), "# Export customers", by=admin, where="test")
step = task.steps.first()
run = Run.objects.create(step=step, number=1, reason="first", outcome="asked", session_id=uuid.uuid4())
options = [{"label": "Comma", "description": "As in RFC 4180."}, {"label": "Semicolon"}]
items = [
    {"question": "Comma or semicolon?", "header": "Separator", "options": options},
    {"question": "What file name?", "header": "Name", "options": []},
]
Task.objects.filter(pk=task.pk).update(phase="waiting_for_input", queued_at=timezone.now())
Step.objects.filter(pk=step.pk).update(phase="waiting_for_input")
question = Question.objects.create(
    task=task, step=step, run=run, number=1, way="AskUserQuestion", tool_use_id="t", items=items,
    asked_at=timezone.now(),
)
Change.objects.create(task=task, kind="question")
result = [task.pk, question.pk]
"""


@pytest.fixture
def asked(portal: UpPortal) -> tuple[int, int]:
    """An open question with two items, whose task no worker touches; the numbers of both."""
    task, question = portal.rows(ASK)
    return task, question


def say(portal: UpPortal, task: int, *events: tuple[str, dict[str, object]]) -> None:
    portal.rows(
        "from tasks_app.events.append import NewEvent, append\n"
        f"run = Run.objects.get(step__task={task})\n"
        f"append(run, [NewEvent(EventKind(kind), payload) for kind, payload in {list(events)!r}],"
        " seq=run.next_seq())"
    )


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
    expect(card.locator(".refusal")).to_contain_text("“What file name?” has no answer yet")
    name = card.locator("[name=item-1-other]")
    name.fill("customers.csv")
    page.keyboard.press("Escape")
    expect(name).not_to_be_focused()
    name.focus()
    page.keyboard.press("Control+Enter")
    expect(card).to_contain_text("Answered by admin")
    expect(card).to_contain_text("Semicolon")
    assert page.evaluate("localStorage.length") == 0


def test_a_question_that_is_asked_appears_beside_one_that_is_being_answered(
    portal: UpPortal, sign_in: SignIn, asked: tuple[int, int]
) -> None:
    _, number = asked
    page = sign_in(portal)
    page.goto(f"{portal.url}/live/")
    page.locator(f"#question-{number} [name=notes]").fill("in the middle of")
    _, other = portal.rows(ASK)
    expect(page.locator(f"#question-{other}")).to_be_visible()
    expect(page.locator(f"#question-{number} [name=notes]")).to_have_value("in the middle of")
    expect(page).to_have_title(re.compile(r"^\(\d+\) Live · Cat Herder$"))
    assert page.locator("#favicon").get_attribute("href") == "/static/catherder/favicon-waiting.svg"


def test_a_result_joins_its_call_though_it_comes_later(
    portal: UpPortal, sign_in: SignIn, asked: tuple[int, int]
) -> None:
    task, _ = asked
    page = sign_in(portal)
    page.goto(f"{portal.url}/tasks/{task}/")
    say(portal, task, ("tool_use", {"id": "c", "name": "Bash", "input": {"command": "make lint"}}))
    call = page.locator("[data-call=c]")
    expect(call).to_contain_text("$ make lint")
    say(portal, task, ("tool_result", {"tool_use_id": "c", "text": "line too long", "is_error": True}))
    expect(call).to_contain_text("line too long")
    expect(page.locator("#log > .entry")).to_have_count(1)
