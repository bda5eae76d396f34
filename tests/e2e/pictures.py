"""Makes the pictures in docs/ from a portal in rehearsal: `make pictures`.

All that they show was done by the portal: tasks run, agents ask, and the figures are what the runs used.
"""

from __future__ import annotations

import io
import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from playwright.sync_api import Browser, Locator, Page, ViewportSize, sync_playwright
from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

from tasks_app.rehearsal.server import RehearsalServer
from tests import machine
from tests.agents import OWN_SCENARIOS
from tests.claude_code import FORM, ClaudeCode
from tests.e2e.conftest import show_arrived
from tests.e2e.png import animated, squeezed
from tests.forkserver import REPOSITORY
from tests.integration.git_repository import GitRepository
from tests.portal import PASSWORD, UpPortal

WIDE = (1280, 800)
CARD = (1200, 840)
SHORT = (1280, 640)
PHONE = (390, 844)
DONE = "All steps finished, all checks passed."
#: What happens elsewhere meanwhile covers what a picture is about.
WITHOUT_TOASTS = "document.querySelectorAll('.toast').forEach((one) => one.remove())"
#: The film: a task runs, asks, is answered and goes on.
FILM = (1000, 640)
FILM_LIMIT = 1_500_000
#: A picture that is larger is slow to load where people read about the portal first.
LIMIT = 250_000

SETTINGS = """\
interactionThreshold: 3
defaultPipeline: quick
askBefore: ["Bash(git*tag*)"]
pipelines:
  feature:
    - name: plan
      command: plan-task
      check: {type: fileExists, path: PLAN.md}
      fileAccess: {allowWrite: [PLAN.md]}
    - name: implement
      command: implement
      check:
        - {type: shell, command: make test, timeout: 10m}
        - {type: shell, command: make lint}
      retry: 2
      timeout: 45m
    - name: review
      command: self-review
  quick:
    - name: do
      command: self
  checked:
    - name: do
      command: self
      check: {type: shell, command: make test}
"""
SHOP = {
    "cat-herder.yaml": SETTINGS,
    ".claude/settings.json": '{"permissions": {"allow": ["Bash(cat-herder ask:*)"]}}\n',
    "Makefile": "test:\n\t@echo 'test_total: 20.00 != 19.99'; exit 1\nlint:\n\ttrue\n",
    "README.md": "# Shop\n",
}
#: What the tasks of the shop are called and say, and the scenario and pipeline that each is played with.
TASKS = (
    (
        "Round prices the way the cashier does",
        "Totals on receipts end in .99 where the shop says 1.00.",
        "no-questions",
        "quick",
    ),
    ("Export the sales", "A command that writes the totals of a month to a file.", "ask-multi", "quick"),
    ("Tag the first release", "With notes that say what it can do.", "approve", "quick"),
    ("Count the refunds", "They are missing in the total of the day.", "no-questions", "checked"),
    ("Go through the log of last night", "Say what went wrong, and when.", "chatty", "quick"),
    ("Show the tax on every receipt", "A line of its own above the total.", "no-questions", "quick"),
)


class Film:
    """Screenshots of a page beside, each with the seconds for which it is shown."""

    def __init__(self, page: Page) -> None:
        browser, state = page.context.browser, page.context.storage_state()
        assert browser
        self.page = browser.new_page(viewport=_size(FILM), storage_state=state)
        self._frames: list[tuple[bytes, float]] = []

    def shoot(self, seconds: float) -> None:
        self.page.wait_for_timeout(500)
        self.page.evaluate(WITHOUT_TOASTS)
        self._frames.append((self.page.screenshot(), seconds))

    def watch(self, wanted: Locator, *, most: int) -> None:
        """Follow how the log grows until the page shows what is wanted."""
        entries = 0
        for _ in range(600):
            if wanted.is_visible():
                return
            if self.page.locator("#arrival").is_visible():
                self.page.locator("#arrival").click()
            if self.page.locator(".entry").count() > entries and most:
                entries, most = self.page.locator(".entry").count(), most - 1
                self._frames.append((self.page.screenshot(), 0.7))
            self.page.wait_for_timeout(100)
        raise AssertionError("the task does not go on")

    def save(self) -> None:
        moving = animated(self._frames)
        assert len(moving) < FILM_LIMIT, f"film: {len(moving)} bytes"
        (REPOSITORY / "docs" / "run-ask-answer.png").write_bytes(moving)


def main() -> None:
    # The path is in the pictures, so it is the same every time.
    folder = Path(tempfile.gettempdir()) / "cat-herder"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    GitRepository.make(folder / "shop", **SHOP)
    with sync_playwright() as playwright:
        portal = UpPortal(folder / "data").start()
        try:
            browser = playwright.chromium.launch(
                executable_path=machine.chromium(), args=["--no-sandbox", "--disable-background-networking"]
            )
            _shoot(_signed_in(browser, portal), portal.url, folder / "shop")
            _shoot_terminal(browser, portal, folder)
            browser.close()
        finally:
            portal.stop()
            shutil.rmtree(folder)


def _signed_in(browser: Browser, portal: UpPortal) -> Page:
    page = browser.new_page(viewport=_size(WIDE), device_scale_factor=1.25)
    page.goto(portal.url)
    page.fill("[name=username]", "admin")
    page.fill("[name=password]", PASSWORD)
    page.click("button")
    return page


def _shoot(page: Page, address: str, shop: Path) -> None:
    _add_project(page, address, shop)
    for task in TASKS:
        _start_task(page, address, *task)
    film = Film(page)
    sample = _start_sample(page, address, film)
    page.wait_for_timeout(1_000)
    _save(page, "task-running", *WIDE)
    film.watch(film.page.locator("article.card"), most=5)
    _shoot_question(page, film)
    page.goto(f"{address}/tasks/")
    page.get_by_role("heading", name="Needs your answer").wait_for()
    page.get_by_role("button", name="Dismiss").click()  # of the first steps, which are soon done
    page.get_by_role("heading", name="First steps").wait_for(state="detached")
    _settled(page, lambda: not page.locator("[data-group=working]").count())
    _save(page, "tasks", *SHORT)
    _save(page, "phone", *PHONE)
    _open(page, f"{address}/inbox/", "inbox", *WIDE)
    _open(page, f"{address}/projects/2/", "project", *WIDE)
    _open(page, f"{address}/tasks/all/?q=total", "all-tasks", *WIDE)
    _shoot_end(page, sample, film)
    _open(page, f"{address}/usage/", "usage", *WIDE)
    film.save()


def _add_project(page: Page, address: str, shop: Path) -> None:
    page.goto(f"{address}/projects/")
    page.locator("summary", has_text="Add a project").click()
    page.fill("#id_name", "shop")
    page.fill("#id_source", str(shop))
    page.get_by_role("button", name="Add project").click()
    page.get_by_role("heading", name="shop").wait_for()


def _start_task(page: Page, address: str, title: str, wish: str, scenario: str, pipeline: str) -> None:
    page.goto(f"{address}/tasks/new/?project=2")
    page.fill("#id_text", f"---\npipeline: {pipeline}\n---\n# {title}\n\n{wish}\n\nrehearsal: {scenario}\n")
    page.locator("button[name=start]:not(.unseen)").click()
    page.get_by_role("heading", name=title).first.wait_for()


def _start_sample(page: Page, address: str, film: Film) -> str:
    """Start the sample task; the address of its page."""
    page.goto(f"{address}/")
    page.get_by_role("link", name="Split the bill to the last cent").first.click()
    page.get_by_role("button", name="Start").wait_for()
    film.page.goto(page.url)
    film.shoot(1.2)
    page.get_by_role("button", name="Start").click()
    show_arrived(page, page.locator(".entry").nth(3))
    return page.url


def _shoot_question(page: Page, film: Film) -> None:
    film.shoot(2.0)
    film.page.get_by_role("radio", name="Spread them").check()
    film.shoot(1.2)
    show_arrived(page, page.locator("article.card"))
    page.get_by_role("radio", name="Spread them").check()
    page.wait_for_timeout(1_000)
    page.evaluate("scrollTo(0, 0)")
    for scheme in ("light", "dark"):
        _look(page, scheme)
        _save(page, f"question-card-{scheme}", *CARD)
    _look(page, "light")


def _shoot_end(page: Page, sample: str, film: Film) -> None:
    film.page.get_by_role("button", name="Answer and resume").click()
    film.watch(film.page.get_by_text(DONE).first, most=5)
    film.shoot(2.5)
    _open(page, sample, "task-done", *CARD)


def _look(page: Page, scheme: Literal["light", "dark"]) -> None:
    page.emulate_media(color_scheme=scheme)


def _settled(page: Page, holds: Callable[[], bool]) -> None:
    """Wait until what the page shows of other tasks is as it will stay."""
    for _ in range(120):
        if holds():
            return
        page.wait_for_timeout(500)
    raise AssertionError("tasks still run after a minute")


def _shoot_terminal(browser: Browser, portal: UpPortal, folder: Path) -> None:
    """The terminal of a person in whose Claude Code an agent asks."""
    with RehearsalServer(scenarios=OWN_SCENARIOS) as model:
        claude = ClaudeCode.of_admin(portal, folder / "terminal", model)
        try:
            claude.start("rehearsal: herd-start")
            claude.wait_for(FORM)
            claude.press("Right")
            claude.wait_for("PostgreSQL: A server")
            lines = claude.screen(colours=True).rstrip().splitlines()
        finally:
            claude.kill()
    begin = next(number for number, line in enumerate(lines) if "rehearsal: herd-start" in line)
    console = Console(record=True, width=100, file=io.StringIO(), color_system="truecolor")
    shown = re.sub(r"\n{3,}", "\n\n", "\n".join(lines[begin:]))
    console.print(Text.from_ansi(shown))
    page = browser.new_page(device_scale_factor=1.25)
    page.set_content(console.export_html(theme=MONOKAI))
    page.add_style_tag(content="body { display: inline-block; padding: 16px } pre { line-height: 1.3 }")
    picture = squeezed(page.locator("body").screenshot())
    assert len(picture) < LIMIT, f"terminal: {len(picture)} bytes"
    (REPOSITORY / "docs" / "claude-code.png").write_bytes(picture)


def _open(page: Page, address: str, name: str, width: int, height: int) -> None:
    page.goto(address)
    page.wait_for_timeout(1_000)
    _save(page, name, width, height)


def _save(page: Page, name: str, width: int, height: int) -> None:
    page.set_viewport_size(_size((width, height)))
    page.wait_for_timeout(300)
    page.evaluate(WITHOUT_TOASTS)
    picture = squeezed(page.screenshot())
    assert len(picture) < LIMIT, f"{name}: {len(picture)} bytes"
    (REPOSITORY / "docs" / f"{name}.png").write_bytes(picture)
    page.set_viewport_size(_size(WIDE))


def _size(size: tuple[int, int]) -> ViewportSize:
    return {"width": size[0], "height": size[1]}


if __name__ == "__main__":
    main()
