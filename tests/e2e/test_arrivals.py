"""W3: when something arrives, nothing that is on the page moves."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.conftest import ASK, SignIn, say
from tests.e2e.test_live import RUNNING
from tests.portal import UpPortal
from tests.waiting import wait_until

pytestmark = pytest.mark.browser

#: What moved without the reader's doing, as the browser measures it: the score, and what moved from where.
WATCH = """
window.shifts = [];
const short = (box) => [box.x, box.y, box.width, box.height].map(Math.round).join(" ");
const classOf = (node) => node?.className || node?.parentNode?.className || "";
const nameOf = (node) => node?.id ? `#${node.id}` : `${node?.nodeName} ${classOf(node)}`;
const told = ({ node, previousRect, currentRect }) =>
  `${nameOf(node)}: ${short(previousRect)} -> ${short(currentRect)}`;
const stands = ({ previousRect, currentRect }) => short(previousRect) === short(currentRect);
new PerformanceObserver((list) => {
  for (const one of list.getEntries()) {
    if (one.hadRecentInput) continue;
    if (one.sources.length && one.sources.every(stands)) continue; // by less than a pixel
    window.shifts.push(`${one.value.toFixed(4)} ${one.sources.map(told).join(", ")}`);
  }
}).observe({ type: "layout-shift", buffered: false });
"""
WIDTHS = pytest.mark.parametrize("size", [(1440, 900), (390, 844)], ids=["wide", "phone"])
ASKED_AGAIN = """
import uuid
from django.utils import timezone
task = Task.objects.get(pk={task})
step = task.steps.first()
run = Run.objects.filter(step=step).last()
Task.objects.filter(pk=task.pk).update(phase="waiting_for_input", lease_owner="", lease_expires=None)
Step.objects.filter(pk=step.pk).update(phase="waiting_for_input")
Run.objects.filter(pk=run.pk).update(outcome="asked")
number = task.questions.count() + 1
question = Question.objects.create(
    task=task, step=step, run=run, number=number, way="AskUserQuestion", tool_use_id=str(number),
    items=[{{
        "question": "Which way?", "header": "Way", "options": [{{"label": "Left"}}, {{"label": "Right"}}]
    }}],
    asked_at=timezone.now(),
)
Transition.objects.create(task=task, source="running", target="waiting_for_input")
Change.objects.create(task=task, kind="question")
result = question.pk
"""
ENDED = """
from django.utils import timezone
task = Task.objects.get(pk={task})
Task.objects.filter(pk=task.pk).update(
    phase="{phase}", failure="{failure}", ended_at=timezone.now(), lease_owner="", lease_expires=None
)
Step.objects.filter(task=task).update(phase="{phase}")
Transition.objects.create(task=task, source="running", target="{phase}")
Change.objects.create(task=task, kind="phase")
"""

NEXT_STEP = """
import uuid
from django.utils import timezone
task = Task.objects.get(pk={task})
first, second = task.steps.all()[:2]
Run.objects.filter(step=first).update(
    outcome="finished", cost_usd=0.0123, input_tokens=1200, output_tokens=340
)
Step.objects.filter(pk=first.pk).update(phase="done", ended_at=timezone.now())
Step.objects.filter(pk=second.pk).update(phase="running", started_at=timezone.now())
Run.objects.create(step=second, number=1, reason="first", session_id=uuid.uuid4())
Change.objects.create(task=task, kind="question")
"""

ANSWERED = """
from django.utils import timezone
Question.objects.filter(pk={question}).update(state="answered", answered_at=timezone.now())
Change.objects.create(task=Question.objects.get(pk={question}).task, kind="question")
"""

NOT_STARTED = """
from tasks_app.permissions import Principal
from tasks_app.services.tasks import create_task
admin = Principal.unrestricted(User.objects.get(username="admin"))
result = create_task(Project.objects.get(name="sample"), "# Export customers", by=admin, where="test").pk
"""
STARTED = """
import uuid
from datetime import timedelta
from django.utils import timezone
task = Task.objects.get(pk={task})
step = task.steps.first()
Run.objects.create(step=step, number=1, reason="first", session_id=uuid.uuid4())
step.phase, step.started_at = "running", timezone.now()
step.save()
now = timezone.now()
lease = now + timedelta(seconds=35)
Task.objects.filter(pk=task.pk).update(
    phase="running", queued_at=now, started_at=now, lease_owner="elsewhere", lease_expires=lease
)
Transition.objects.create(task=task, source="queued", target="running")
Change.objects.create(task=task, kind="phase")
"""


def settled(page: Page) -> None:
    page.wait_for_load_state("networkidle")
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def watch(page: Page, url: str) -> None:
    page.goto(url)
    settled(page)
    page.evaluate(WATCH)


def moved(page: Page) -> list[str]:
    settled(page)
    return list(page.evaluate("window.shifts.splice(0)"))


def opened(portal: UpPortal, sign_in: SignIn, size: tuple[int, int], **settings: Any) -> Page:
    return sign_in(portal, viewport={"width": size[0], "height": size[1]}, **settings)


@WIDTHS
def test_on_the_page_of_a_task_nothing_moves(
    portal: UpPortal, sign_in: SignIn, size: tuple[int, int]
) -> None:
    page = opened(portal, sign_in, size)
    task, _ = portal.rows(ASK + RUNNING)
    for _ in range(3):
        say(portal, task, ("text", {"text": "I look around."}))
    watch(page, f"{portal.url}/tasks/{task}/")

    for number in range(8):
        say(portal, task, ("tool_use", {"id": f"c{number}", "name": "Bash", "input": {"command": "make"}}))
        say(portal, task, ("tool_result", {"tool_use_id": f"c{number}", "text": "Built."}))
        say(portal, task, ("text", {"text": "A thought.\n\nAnd more of it.\n\n" * 3}))
    expect(page.locator("[data-call=c7]")).to_have_count(1)
    assert moved(page) == [], "the log grows"

    question = portal.rows(ASKED_AGAIN.format(task=task))
    arrived = page.locator(f"#arrival[href$='#question-{question}']")
    expect(arrived).to_be_in_viewport()
    assert moved(page) == [], "a question"

    portal.rows(
        f"Question.objects.filter(pk={question}).update(state='withdrawn')\n"
        f"Change.objects.create(task_id={task}, kind='question')"
    )
    expect(arrived).to_have_count(0)
    assert moved(page) == [], "it is withdrawn elsewhere"

    portal.rows(ENDED.format(task=task, phase="failed", failure="It broke."))
    expect(page.get_by_role("link", name="Show")).to_be_in_viewport()
    assert moved(page) == [], "a failure"
    page.get_by_role("link", name="Show").click()
    expect(page.locator(".failure")).to_contain_text("It broke.")


@WIDTHS
def test_a_result_moves_nothing(portal: UpPortal, sign_in: SignIn, size: tuple[int, int]) -> None:
    page = opened(portal, sign_in, size)
    task, _ = portal.rows(ASK + RUNNING)
    for number in range(20):
        say(portal, task, ("text", {"text": f"Line {number}"}))
    watch(page, f"{portal.url}/tasks/{task}/")
    portal.rows(ENDED.format(task=task, phase="done", failure=""))
    expect(page.get_by_role("link", name="Show result")).to_be_in_viewport()
    assert moved(page) == []


@WIDTHS
def test_the_next_step_moves_nothing(portal: UpPortal, sign_in: SignIn, size: tuple[int, int]) -> None:
    page = opened(portal, sign_in, size)
    task, _ = portal.rows(ASK + RUNNING)
    say(portal, task, ("text", {"text": "I look around."}))
    watch(page, f"{portal.url}/tasks/{task}/")
    portal.rows(NEXT_STEP.format(task=task))
    expect(page.locator(".step-current")).to_contain_text("implement")
    assert moved(page) == []


@WIDTHS
def test_a_start_elsewhere_moves_nothing(portal: UpPortal, sign_in: SignIn, size: tuple[int, int]) -> None:
    page = opened(portal, sign_in, size)
    task = portal.rows(NOT_STARTED)
    watch(page, f"{portal.url}/tasks/{task}/")
    portal.rows(STARTED.format(task=task))
    expect(page.locator(".step-current")).to_be_visible()
    assert moved(page) == [], "it starts"
    for number in range(20):
        say(portal, task, ("text", {"text": f"Line {number}"}))
    page.get_by_role("link", name="Show log").click()
    expect(page.locator("#log-box")).to_contain_text("Line 19")


def test_what_arrived_is_answered_with_one_key(portal: UpPortal, sign_in: SignIn) -> None:
    page = sign_in(portal)
    task, _ = portal.rows(ASK + RUNNING)
    page.goto(f"{portal.url}/tasks/{task}/")
    settled(page)
    below = page.locator("#log-box")
    before = below.bounding_box()
    question = portal.rows(ASKED_AGAIN.format(task=task))
    expect(page.locator(".arrived")).to_contain_text("The agent asks: Which way?")
    assert below.bounding_box() == before
    page.keyboard.press("Enter")
    card = page.locator(f"#question-{question}")
    expect(card).to_be_focused()
    assert page.url == f"{portal.url}/tasks/{task}/#question-{question}"
    expect(page.locator("#arrival")).to_have_count(0)

    second = portal.rows(ASKED_AGAIN.format(task=task))
    expect(page.locator(f"#arrival[href$='#question-{second}']")).to_be_visible()
    expect(card).to_be_focused()


ROWS = "[...document.querySelectorAll('#task-groups .row[id]')].map((row) => row.id)"
COUNTS = """() => Object.fromEntries(
  [...document.querySelectorAll('#task-summary a[href*=group]')].map((link) =>
    [new URL(link.href).searchParams.get('group'), Number(link.querySelector('strong').textContent)]))"""


def point_at(page: Page, task: int) -> None:
    page.locator(f"#row-{task}-link").hover()


@WIDTHS
def test_while_one_points_at_the_list_a_row_stays_and_says_where_it_belongs(
    portal: UpPortal, sign_in: SignIn, size: tuple[int, int]
) -> None:
    page = opened(portal, sign_in, size)
    tasks = [portal.rows(ASK + RUNNING)[0] for _ in range(3)]
    watch(page, f"{portal.url}/tasks/?q=Export")
    before, counts = page.evaluate(ROWS), page.evaluate(COUNTS)
    point_at(page, tasks[0])
    portal.rows(ASKED_AGAIN.format(task=tasks[0]))
    row = page.locator(f"#row-{tasks[0]}")
    expect(row.locator(".row-now")).to_have_text("→ Needs your answer")
    expect(row.get_by_role("link", name="Answer")).to_be_visible()
    portal.rows(ENDED.format(task=tasks[2], phase="failed", failure="It broke."))
    expect(page.locator(f"#row-{tasks[2]} .row-now")).to_have_text("→ Failed or interrupted")
    new = portal.rows(ASK + RUNNING)[0]
    now = {"working": counts["working"] - 1, "answer": counts["answer"] + 1, "failed": counts["failed"] + 1}
    wait_until(lambda: {**counts, **now} == page.evaluate(COUNTS))
    assert page.evaluate(ROWS) == before
    assert moved(page) == []
    page.mouse.move(2, 2)
    expect(page.locator(f"[data-group=answer] #row-{tasks[0]}")).to_be_visible()
    expect(page.locator(f"[data-group=failed] #row-{tasks[2]}")).to_be_visible()
    expect(page.locator(f"[data-group=working] #row-{new}")).to_be_visible()
    expect(page.locator(".task-row.is-gone")).to_have_count(0)


def test_the_focus_holds_the_rows_as_the_pointer_does(portal: UpPortal, sign_in: SignIn) -> None:
    page = sign_in(portal)
    task = portal.rows(ASK + RUNNING)[0]
    page.goto(f"{portal.url}/tasks/?q=Export")
    settled(page)
    page.locator(f"#row-{task}-link").focus()
    portal.rows(ASKED_AGAIN.format(task=task))
    expect(page.locator(f"#row-{task} .row-now")).to_have_text("→ Needs your answer")
    expect(page.locator(f"#row-{task}-link")).to_be_focused()
    page.locator("#q").focus()
    expect(page.locator(f"[data-group=answer] #row-{task}")).to_be_visible()


def test_a_list_that_nobody_points_at_orders_itself(portal: UpPortal, sign_in: SignIn) -> None:
    page = sign_in(portal)
    task = portal.rows(ASK + RUNNING)[0]
    page.goto(f"{portal.url}/tasks/?q=Export")
    settled(page)
    portal.rows(ASKED_AGAIN.format(task=task))
    expect(page.locator(f"[data-group=answer] #row-{task}")).to_be_visible()


@WIDTHS
@pytest.mark.parametrize("path", ["/tasks/", "/inbox/", "/tasks/all/"])
def test_in_lists_nothing_moves(portal: UpPortal, sign_in: SignIn, size: tuple[int, int], path: str) -> None:
    page = opened(portal, sign_in, size)
    tasks = [portal.rows(ASK + RUNNING)[0] for _ in range(3)]
    portal.rows(ASKED_AGAIN.format(task=tasks[1]))
    say(portal, tasks[0], ("text", {"text": "I look around."}))
    watch(page, portal.url + path)
    if path == "/tasks/":
        point_at(page, tasks[0])

    say(portal, tasks[0], ("tool_use", {"id": "c", "name": "Bash", "input": {"command": "make"}}))
    page.wait_for_timeout(2500)
    assert moved(page) == [], "output"
    portal.rows(ASKED_AGAIN.format(task=tasks[0]))
    page.wait_for_timeout(1500)
    assert moved(page) == [], "a question"
    portal.rows(ENDED.format(task=tasks[2], phase="failed", failure="It broke."))
    page.wait_for_timeout(1500)
    assert moved(page) == [], "a failure"
    portal.rows(ASK + RUNNING)
    page.wait_for_timeout(1500)
    assert moved(page) == [], "a new task"


@WIDTHS
def test_a_question_that_somebody_else_answers_keeps_its_place(
    portal: UpPortal, sign_in: SignIn, size: tuple[int, int]
) -> None:
    page = opened(portal, sign_in, size)
    questions = [portal.rows(ASK)[1] for _ in range(3)]
    watch(page, f"{portal.url}/inbox/")
    left = page.locator(f".inbox-row:has(#inbox-row-{questions[1]})")
    before = page.evaluate("[...document.querySelectorAll('.inbox-row > a')].map((row) => row.id)")
    portal.rows(ANSWERED.format(question=questions[1]))
    expect(left).to_contain_text("No longer open")
    assert moved(page) == []
    portal.rows(ANSWERED.format(question=questions[0]))
    expect(page.locator(".inbox-row.is-gone")).to_have_count(2)
    assert moved(page) == []
    assert page.evaluate("[...document.querySelectorAll('.inbox-row > a')].map((row) => row.id)") == before
    page.reload()
    expect(left).to_have_count(0)
