"""Pages of every kind at every width: titles can be read, nothing overlaps, one left edge (W7)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from tests.e2e.geometry import measured
from tests.portal import WebServer

pytestmark = pytest.mark.browser

#: Thirty tasks that agents work on and some of each other kind, with titles of every length.
FILL = """
from datetime import timedelta
from django.utils import timezone
from tests.factories import ProjectFactory, QuestionFactory, RunFactory, TaskFactory, UserFactory
now = timezone.now()
words = "Migrate the billing_service_of_last_year to payments_api_client_v2, and say so. "
steps = ("clarify", "plan", "implement", "test", "self-review", "document")
projects = [ProjectFactory.create(name=name) for name in ("a-rather-long-name-of-a-project", "billing")]
kinds = (
    [{"phase": "running", "started_at": now - timedelta(hours=3)}] * 30
    + [{"phase": "failed", "failure": words * 3}] * 3
    + [{"queued_at": now}] * 3
    + [{"phase": "done", "head_commit": "b" * 40, "ended_at": now}] * 4
    + [{"phase": "cancelled"}] * 2
    + [{}] * 2
)
for number, fields in enumerate(kinds):
    title = (words * 4)[: 12 + number * 17 % 180]
    task = TaskFactory.create(
        title=title, project=projects[number % 2], steps=steps[: 1 + number % 6], **fields
    )
    if task.phase == "running":
        run = RunFactory.create(task=task, cost_usd=123.45)
        call = {"id": "a", "name": "Bash", "input": {"command": "pytest -q " + "tests/test_bills.py " * 9}}
        at = now - timedelta(minutes=number)
        Event.objects.create(run=run, seq=1, kind="tool_use", at=at, payload=call)
for number in range(4):
    QuestionFactory.create(task__title=words * 2, task__phase="waiting_for_input", task__project=projects[0])
"""
#: What in sight moves without a key or the mouse, in parts of the window; below 0.001 only a word changes.
SHIFTS = """
window.shifts = [];
const counts = (one) => !one.hadRecentInput && one.value > 0.001;
const note = (list) => window.shifts.push(...list.getEntries().filter(counts));
new PerformanceObserver(note).observe({ type: "layout-shift", buffered: true });
"""
#: Every part is fetched again; what moved is told with the elements that moved.
REFRESH = """async () => {
  const frame = () => new Promise((resolve) => requestAnimationFrame(resolve));
  const isQuiet = () => !document.querySelector(".htmx-request, .htmx-swapping, .htmx-settling");
  for (let pass = 0; pass < 2; pass++) {
    document.body.dispatchEvent(new CustomEvent("catherder:refresh"));
    await frame();
    while (!isQuiet()) await frame();
    await frame();
  }
  const box = ({ x, y, width, height }) => [x, y, width, height].map(Math.round);
  const name = ({ node, previousRect, currentRect }) =>
    `${node?.id || node?.className || node?.textContent} ${box(previousRect)} → ${box(currentRect)}`;
  return window.shifts.map((one) => `${one.value}: ${one.sources.map(name).join("; ")}`);
}"""
HEIGHTS = "[...document.querySelectorAll('.task-row')].map((row) => row.offsetHeight)"


@pytest.fixture(scope="module")
def filled(seeded: tuple[WebServer, dict[str, Any]]) -> WebServer:
    portal, _ = seeded
    portal.rows(FILL)
    return portal


@pytest.fixture
def page(browser: Browser, filled: WebServer, seeded: tuple[WebServer, dict[str, Any]]) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1280, "height": 1000})
    session = seeded[1]["sessions"]["admin"]
    context.add_cookies([{"name": "sessionid", "value": session, "url": f"http://{filled.address}"}])
    yield context.new_page()
    context.close()


def test_pages_are_readable_at_every_width(page: Page, seeded: tuple[WebServer, dict[str, Any]]) -> None:
    portal, told = seeded
    faults: list[str] = []
    walked: set[str] = set()
    edges: dict[int, dict[int, list[str]]] = defaultdict(lambda: defaultdict(list))
    for path in ("/tasks/", *(path for path, status in told["paths"]["admin"] if status == 200)):
        if not _open(page, f"http://{portal.address}{path}") or page.url in walked:
            continue
        walked.add(page.url)
        for width, found in measured(page):
            faults += [f"{path} at {width} px: {fault}" for fault in found["faults"]]
            edges[width][found["left"]].append(path)
    assert not faults, "\n".join(faults)
    assert {width: dict(of_width) for width, of_width in edges.items() if len(of_width) > 1} == {}
    assert len(edges) == 7


def _open(page: Page, url: str) -> bool:
    """Return whether this is a page, and neither a part of one, nor a download, nor one in the middle."""
    try:
        page.goto(url, wait_until="domcontentloaded")
    except Exception as error:
        if "Download is starting" in str(error):
            return False
        raise
    return page.locator("header.top ~ main:not(.centered-page)").count() == 1


def test_where_there_is_room_a_working_task_is_one_line(page: Page, filled: WebServer) -> None:
    for width in (1280, 2560):
        page.set_viewport_size({"width": width, "height": 1000})
        page.goto(f"http://{filled.address}/tasks/?group=working")
        assert set(page.evaluate(HEIGHTS)) == {36}


@pytest.mark.parametrize("width", [390, 1440])
def test_nothing_moves_while_a_page_opens_and_when_its_parts_arrive(
    page: Page, filled: WebServer, width: int
) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    page.add_init_script(SHIFTS)
    # A slow processor pauses between the parts of a page that it reads.
    page.context.new_cdp_session(page).send("Emulation.setCPUThrottlingRate", {"rate": 4})
    of_phase = "[Task.objects.filter(phase=one).latest('pk').pk for one in ('running', 'waiting_for_input')]"
    for path in ("/tasks/", "/inbox/", *(f"/tasks/{task}/" for task in filled.rows(f"result = {of_phase}"))):
        page.goto(f"http://{filled.address}{path}", wait_until="networkidle")
        assert page.evaluate(REFRESH) == [], path
