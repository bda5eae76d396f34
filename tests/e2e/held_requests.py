"""Requests of a page that a test holds back until it lets them go on."""

from __future__ import annotations

import re

from playwright.sync_api import Page, Route

from tests.waiting import wait_until


def hold(page: Page, pattern: str | re.Pattern[str], *, times: int | None = None) -> list[Route]:
    """Return the requests that are held back from now on, `times` at most."""
    held: list[Route] = []
    page.route(pattern, lambda route: held.append(route), times=times)  # Playwright marks the function
    return held


def newest(page: Page, held: list[Route]) -> Route:
    """Return the last request that is held back, as soon as there is one."""
    wait_until(lambda: page.evaluate("1") and bool(held))  # the handler of the route runs meanwhile
    return held.pop()
