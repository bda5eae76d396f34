"""Makes the pictures in docs/ from a portal in rehearsal: `make pictures`."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from tests import machine
from tests.e2e.portal import PASSWORD, ROOT, UpPortal

WIDE = {"width": 1280, "height": 1120}


def main() -> None:
    # The path is in the pictures, so it is the same every time.
    folder = Path(tempfile.gettempdir()) / "cat-herder"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    with sync_playwright() as playwright:
        portal = UpPortal(folder / "data").start()
        try:
            browser = playwright.chromium.launch(
                executable_path=machine.chromium(), args=["--no-sandbox", "--disable-background-networking"]
            )
            _shoot(browser.new_page(viewport=WIDE, device_scale_factor=1.5), portal)
            browser.close()
        finally:
            portal.stop()
            shutil.rmtree(folder)


def _shoot(page: Page, portal: UpPortal) -> None:
    page.goto(portal.url)
    page.fill("[name=username]", "admin")
    page.fill("[name=password]", PASSWORD)
    page.click("button")
    page.get_by_role("link", name="Split the bill to the last cent").first.click()
    page.get_by_role("button", name="Start").click()
    page.locator("article.card").wait_for(timeout=60_000)
    page.get_by_role("radio", name="Spread them").check()
    page.wait_for_timeout(1_000)
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        _save(page, f"question-card-{scheme}")
    page.emulate_media(color_scheme="light")
    page.keyboard.press("Control+Enter")
    page.get_by_text("Every step ended and every check passed.").wait_for(timeout=60_000)
    page.reload()
    page.wait_for_timeout(1_000)
    _save(page, "task-done")


def _save(page: Page, name: str) -> None:
    page.screenshot(path=ROOT / "docs" / f"{name}.png")


if __name__ == "__main__":
    main()
