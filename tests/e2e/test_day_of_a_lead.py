"""The day of somebody with thirty agents: what the pages count is what the rows say, after each event."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page

from tests.e2e.conftest import SignIn
from tests.forkserver import REPOSITORY
from tests.installation import PLAIN_CONFIG
from tests.integration.git_repository import GitRepository
from tests.portal import UpPortal
from tests.processes import start_process
from tests.waiting import wait_until

pytestmark = pytest.mark.browser

AGENTS = {"result": 10, "ask": 8, "deploy": 3, "work": 3, "fail": 2, "fail-again": 2}
NOT_STARTED = 2
START = """
from tasks_app.permissions import Principal
from tasks_app.services.projects.projects import add_project
from tasks_app.services.tasks import create_task, start_task
admin = User.objects.get(username="admin")
project = add_project("shop", {source!r}, by=admin)
admin = Principal.unrestricted(admin)
def make(what, number):
    text = f"# {{what}} {{number}}\\n\\nday: {{what}}\\n"
    return create_task(project, text, by=admin, where="test")
for what, count in {agents!r}.items():
    for number in range(count):
        start_task(make(what, number), by=admin)
for number in range({not_started}):
    make("later", number)
"""
#: What is in each group, written anew here: as conditions on rows of tasks.
GROUPS = {
    "working": "phase = 'running'",
    "answer": "phase = 'waiting_for_input'",
    "review": """phase = 'done' AND head_commit NOT IN ('', base_commit) AND NOT EXISTS (
        SELECT 1 FROM tasks_app_publication p
        WHERE p.task_id = t.id AND p."commit" = t.head_commit AND p.state = 'pushed')""",
    "failed": "phase IN ('failed', 'interrupted') AND NOT failure_dismissed",
    "queued": "phase IN ('pending', 'waiting_for_reset') AND queued_at IS NOT NULL",
}
BEGUN = "SELECT count(*) FROM tasks_app_task WHERE phase IN ('pending', 'running') AND queued_at IS NOT NULL"
ONE = "SELECT id FROM tasks_app_task WHERE phase = ? AND title LIKE ? ORDER BY id LIMIT 1"
RUNS = "SELECT count(*) FROM tasks_app_run r JOIN tasks_app_step s ON s.id = r.step_id WHERE s.task_id = ?"
PHASE = "SELECT phase FROM tasks_app_task WHERE id = ?"
FAILURE = "SELECT failure FROM tasks_app_task WHERE id = ?"


@pytest.fixture
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UpPortal]:
    """A portal whose thirty tasks have come as far as they come without a human."""
    folder = tmp_path_factory.mktemp("shop")
    portal = UpPortal.migrated(folder / "data", CATHERDER_WORKERS="8").start("--no-worker", "--no-sample")
    config = f'askBefore: ["Bash(touch deployed*)"]\n{PLAIN_CONFIG}'
    GitRepository.make(folder / "source", **{"cat-herder.yaml": config})
    portal.rows(START.format(source=str(folder / "source"), agents=AGENTS, not_started=NOT_STARTED))
    log = (folder / "worker.log").open("w")
    agents = [sys.executable, "-m", "tests.e2e.agents_of_a_day", "worker"]
    worker = start_process(agents, cwd=REPOSITORY, env=portal.env(), stdout=log, stderr=log)
    wait_until(lambda: portal.row(BEGUN) == (AGENTS["work"],), log=folder / "worker.log")
    yield portal
    worker.terminate()
    worker.wait()
    log.close()
    portal.stop()


def in_rows(portal: UpPortal) -> dict[str, int]:
    counts = ", ".join(f"count(CASE WHEN {which} THEN 1 END)" for which in GROUPS.values())
    found = portal.row(f"SELECT {counts} FROM tasks_app_task t")  # noqa: S608
    return dict(zip(GROUPS, found, strict=True))


def on_page(page: Page) -> dict[str, int]:
    number = "(one) => Number(one.querySelector('strong').textContent)"
    return {key: page.locator(f"#task-summary .summary-{key}").evaluate(number) for key in GROUPS}


def open_questions(page: Page) -> list[int]:
    """What the badge of the inbox and the title of the window say."""
    titled = re.match(r"\((\d+)\) ", page.title())
    badge = page.locator("#open-questions [data-open]").get_attribute("data-open")
    return [int(badge or 0), int(titled[1]) if titled else 0]


def in_tabs(page: Page) -> list[int]:
    return [int(text) for text in page.locator(".page-tabs .number").all_text_contents()[:3]]


def test_counts_follow_each_event_of_the_day(shop: UpPortal, sign_in: SignIn) -> None:
    """W2, W3: a list that stays open while another window acts, and the inbox beside it."""
    board = sign_in(shop)
    inbox, work = board.context.new_page(), board.context.new_page()
    inbox.goto(f"{shop.url}/inbox/")

    def agree(**expected: int) -> None:
        """Wait until rows and pages say the same, which is what the event makes of the counts."""
        counts.update(expected)
        wait_until(lambda: in_rows(shop) == counts)
        wait_until(lambda: on_page(board) == counts)
        wait_until(lambda: open_questions(board) == open_questions(inbox) == [counts["answer"]] * 2)
        wait_until(lambda: in_tabs(inbox) == [counts[key] for key in ("answer", "review", "failed")])

    def open_task(phase: str, title: str) -> int:
        (task,) = shop.row(ONE, phase, f"{title} %")
        work.goto(f"{shop.url}/tasks/{task}/")
        return int(task)

    counts: dict[str, int] = {}
    agree(working=3, answer=11, review=10, failed=4, queued=0)

    # A question and an approval are answered; both agents end with a result.
    open_task("waiting_for_input", "ask")
    work.locator("article.card").get_by_role("radio", name="Yes").check()
    work.get_by_role("button", name="Answer and resume").click()
    agree(answer=10, review=11)
    open_task("waiting_for_input", "deploy")
    work.get_by_role("button", name="Approve", exact=True).click()
    agree(answer=9, review=12)

    # A failure is resumed and ends well; another one fails again; it is dismissed, and put back.
    open_task("failed", "fail")
    work.get_by_role("button", name="Resume", exact=True).first.click()
    agree(failed=3, review=13)
    work.goto(f"{shop.url}/inbox/?state=failed")
    again = shop.row(ONE, "failed", "fail-again %")[0]
    work.locator(f"#row-{again}-resume").click()
    wait_until(lambda: "again" in shop.row(FAILURE, again)[0])
    agree(failed=3)
    work.goto(f"{shop.url}/inbox/?state=failed")
    work.locator(f"#row-{again}-dismiss").click()
    agree(failed=2)
    work.get_by_role("button", name="Undo").click()
    agree(failed=3)

    # A result is sent back and comes again; another one is approved and published.
    task = open_task("done", "result")
    work.goto(f"{shop.url}/tasks/{task}/diff/")
    work.locator("#review-title").click()
    work.locator("#review-body").fill("Also two.")
    work.get_by_role("button", name="Request changes").click()
    work.wait_for_url(f"{shop.url}/tasks/{task}/")
    wait_until(lambda: shop.row(RUNS, task) == (2,) and shop.row(PHASE, task) == ("done",))
    agree(review=13)
    work.goto(f"{shop.url}/tasks/{task}/diff/")
    work.locator("#review-title").click()
    work.get_by_role("button", name="Approve and publish").click()
    agree(review=12)

    # An agent at work and one that asks are cancelled.
    for phase, title, left in (
        ("running", "work", {"working": 2}),
        ("waiting_for_input", "ask", {"answer": 8}),
    ):
        open_task(phase, title)
        work.locator("#more > summary").click()
        work.locator("#do-cancel").click()
        work.get_by_role("button", name="Cancel the task", exact=True).click()
        agree(**left)
