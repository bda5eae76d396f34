"""Makes the pictures in docs/ from a portal in rehearsal: `make pictures`.

All that they show was done by the portal: tasks run, agents ask, and the figures are what the runs used.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from playwright.sync_api import Browser, Page, ViewportSize, sync_playwright

from tests import machine
from tests.e2e.png import squeezed
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
    sample = _start_sample(page, address)
    page.wait_for_timeout(1_000)
    _save(page, "task-running", *WIDE)
    _shoot_question(page)
    page.goto(f"{address}/")
    page.get_by_role("heading", name="Needs your answer").wait_for()
    page.get_by_role("button", name="Dismiss").click()  # of the first steps, which are soon done
    page.get_by_role("heading", name="First steps").wait_for(state="detached")
    _settled(page, lambda: not page.get_by_text("running", exact=True).count())
    _save(page, "dashboard", *SHORT)
    _save(page, "phone", *PHONE)
    _open(page, f"{address}/inbox/", "inbox", *WIDE)
    _open(page, f"{address}/projects/2/", "project", *WIDE)
    _open(page, f"{address}/history/?q=total", "history", *WIDE)
    _shoot_end(page, sample)
    _open(page, f"{address}/usage/", "usage", *WIDE)


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


def _start_sample(page: Page, address: str) -> str:
    """Start the sample task; the address of its page."""
    page.goto(f"{address}/")
    page.get_by_role("link", name="Split the bill to the last cent").first.click()
    page.get_by_role("button", name="Start").click()
    page.locator(".entry").nth(3).wait_for(timeout=60_000)
    return page.url


def _shoot_question(page: Page) -> None:
    page.locator("article.card").wait_for(timeout=60_000)
    page.get_by_role("radio", name="Spread them").check()
    page.wait_for_timeout(1_000)
    for scheme in ("light", "dark"):
        _look(page, scheme)
        _save(page, f"question-card-{scheme}", *CARD)
    _look(page, "light")


def _shoot_end(page: Page, sample: str) -> None:
    page.goto(sample)
    page.get_by_role("button", name="Answer and resume").click()
    page.get_by_text(DONE).wait_for(timeout=60_000)
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
