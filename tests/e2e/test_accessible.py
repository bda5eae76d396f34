"""Every page there is, light, dark and on a phone: axe-core finds nothing serious, the strict policy is not
broken, nothing is wider than the screen, and the keyboard reaches everything (W7). Pages are found by their
addresses, so new ones are walked as soon as they have one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Page, Response, ViewportSize

from tests.e2e.keyboard import focus_lost_by_refresh, keyboard_faults
from tests.portal import WebServer

pytestmark = pytest.mark.browser

SERIOUS = ("serious", "critical")
#: Given to the browser as a debugger gives it: the page's policy, which stays in force, forbids it to pages.
AXE = Axe().axe_script
#: Without `preload` axe adds no style sheets of its own, which the policy would forbid.
RUN = "options => axe.run(document, { preload: false, ...options })"
WIDE: ViewportSize = {"width": 1280, "height": 900}
PHONE: ViewportSize = {"width": 390, "height": 844}
#: A screen of 1280 pixels at 400 %, as people with low vision have it (WCAG 1.4.10).
MAGNIFIED: ViewportSize = {"width": 320, "height": 844}

#: Told by the browser itself, before any script of the page runs.
LISTEN = """
window.brokenPolicies = [];
addEventListener("securitypolicyviolation", (event) =>
  window.brokenPolicies.push(`${event.effectiveDirective} ${event.blockedURI} ${event.sample}`));
"""
WIDER = """() => {
  const width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= width) return [];
  const scrolled = (one) => one && one !== document.body
    && (getComputedStyle(one).overflowX !== "visible" || scrolled(one.parentElement));
  const wide = [...document.querySelectorAll("body *")]
    .filter((one) => one.getBoundingClientRect().right > width + 1 && !scrolled(one.parentElement));
  return wide.slice(0, 3).map((one) => one.outerHTML.slice(0, 120)).concat(wide.length ? [] : ["something"]);
}"""

#: iOS zooms in on a field whose text is smaller.
SMALL_FIELDS = """() => [...document.querySelectorAll("input, select, textarea")]
  .filter((one) => !["hidden", "radio", "checkbox"].includes(one.type))
  .filter((one) => parseFloat(getComputedStyle(one).fontSize) < 16)
  .map((one) => one.outerHTML.slice(0, 120))"""

SEND = """([path, token, fields]) => {
  const known = document.querySelector("[name=csrfmiddlewaretoken]").value;
  const form = Object.assign(document.createElement("form"), { method: "post", action: path });
  const add = (name, value) => form.append(Object.assign(document.createElement("input"), { name, value }));
  if (token) add("csrfmiddlewaretoken", known);
  for (let number = 0; number < fields; number++) add(`field-${number}`, "x");
  document.body.append(form);
  form.submit();
}"""

#: More logins than one address may try in a minute.
TRY_AGAIN_AND_AGAIN = """async () => {
  const form = document.querySelector("form");
  for (let number = 0; number < 120; number++) {
    await fetch("/login/", { method: "POST", body: new FormData(form) });
  }
}"""


@dataclass
class Walk:
    """One browser on one server; `faults` says what is wrong where."""

    page: Page
    address: str
    faults: list[str] = field(default_factory=list)
    walked: list[str] = field(default_factory=list)

    def look_at(self, path: str, *, status: int = 200) -> None:
        """A part of a page or a download is not looked at: it has no page of its own. 0 is any status."""
        answer = self._open(path)
        if answer is None or not self._is_page() or self.page.url in self.walked:
            return
        self.walked.append(self.page.url)
        if answer.status != (status or answer.status):
            self.faults.append(f"{path}: {answer.status}, not {status}")
        self._try_names(path)
        self._try_light_and_dark(path)
        self._try_widths(path)
        self._try_keyboard(path)
        self.faults += [f"{path}: {broken}" for broken in self.page.evaluate("window.brokenPolicies")]

    def look_at_refusal(self, words: str, path: str, *, token: bool, fields: int = 0) -> None:
        """What a form to `path` brings that is refused."""
        self._open("/")
        with self.page.expect_navigation():
            self.page.evaluate(SEND, [path, token, fields])
        if words not in self.page.inner_text("h1"):
            self.faults.append(f"{path}: no word of “{words}”")
        self._try_names(words)
        self._try_light_and_dark(words)
        self._try_widths(words)

    def _open(self, path: str) -> Response | None:
        self.page.set_viewport_size(WIDE)
        self.page.emulate_media(color_scheme="light", reduced_motion="reduce")
        try:
            return self.page.goto(self.address + path, wait_until="domcontentloaded")
        except Exception as error:
            if "Download is starting" in str(error):
                return None
            raise

    def _is_page(self) -> bool:
        return bool(self.page.evaluate("Boolean(document.querySelector('main, #container'))"))

    def _try_names(self, path: str) -> None:
        """One heading says what the page is, and so does its title, which tabs and bookmarks show."""
        headings = self.page.locator("h1").count()
        if headings != 1:
            self.faults.append(f"{path}: {headings} headings of the first level")
        if not re.search(r"[^\s()\d].* · Cat Herder$", self.page.title()):
            self.faults.append(f"{path}: is only called “{self.page.title()}”")

    def _try_light_and_dark(self, path: str) -> None:
        self.page.evaluate(AXE)
        for scheme in ("light", "dark"):
            self.page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            # What does not depend on colours was found in the light.
            only = {"runOnly": ["color-contrast"]} if scheme == "dark" else {}
            found = self.page.evaluate(RUN, {"resultTypes": ["violations"], **only})
            self.faults += [f"{path} ({scheme}): {fault}" for fault in serious(found)]

    def _try_widths(self, path: str) -> None:
        for size in (PHONE, MAGNIFIED):
            self.page.set_viewport_size(size)
            wider = self.page.evaluate(WIDER)
            self.faults += [f"{path}: wider than {size['width']} pixels: {what}" for what in wider]
            if size == PHONE:
                small = self.page.evaluate(SMALL_FIELDS)
                self.faults += [f"{path}: text of a field below 16 pixels: {what}" for what in small]

    def _try_keyboard(self, path: str) -> None:
        """On a wide screen and a phone, in light and dark; the pages of the admin have rings of their own."""
        if path.startswith("/admin/"):
            return
        looks: list[tuple[Literal["dark", "light"], ViewportSize]] = [("dark", PHONE), ("light", WIDE)]
        for scheme, size in looks:
            self.page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            self.page.set_viewport_size(size)
            self.faults += [f"{path} ({scheme}): {fault}" for fault in keyboard_faults(self.page)]
        self.faults += [f"{path}: {fault}" for fault in focus_lost_by_refresh(self.page)]


def serious(response: Any) -> Iterator[str]:
    for violation in response["violations"]:
        if violation["impact"] in SERIOUS:
            places = "; ".join(
                str(node["target"]) + " " + node["html"][:160] for node in violation["nodes"][:3]
            )
            yield f"{violation['id']}: {violation['help']} at {places}"


def walk(browser: Browser, address: str, session: str) -> tuple[BrowserContext, Walk]:
    context = browser.new_context(color_scheme="light")
    if session:
        context.add_cookies([{"name": "sessionid", "value": session, "url": f"http://{address}"}])
    context.add_init_script(LISTEN)
    return context, Walk(context.new_page(), f"http://{address}")


def test_every_page_is_accessible_and_fits(
    browser: Browser, seeded: tuple[WebServer, dict[str, Any]]
) -> None:
    portal, told = seeded
    faults: list[str] = []
    for who, paths in told["paths"].items():
        context, tour = walk(browser, portal.address, told["sessions"][who])
        for path, status in paths:
            tour.look_at(path, status=status)
        context.close()
        faults += [f"{who} {fault}" for fault in tour.faults]
        assert tour.walked
    assert not faults, "\n".join(faults)


def test_the_admin_pages_are_accessible_and_fit(
    browser: Browser, seeded: tuple[WebServer, dict[str, Any]]
) -> None:
    portal, told = seeded
    context, tour = walk(browser, portal.address, told["sessions"]["admin"])
    for path in told["admin_pages"]:
        tour.look_at(path)
    context.close()
    assert len(tour.walked) == len(told["admin_pages"])
    assert not tour.faults, "\n".join(tour.faults)


LONG = """
from tests.factories import *
from tests.e2e.visited_pages import *
from tasks_app.permissions import Principal
from tasks_app.history.audit import ActionOrigin, acting_from
word, words = "x" * 80, "some words that somebody wrote " * 8
names = {"first_name": words[:100], "last_name": words[:100]}
user = UserFactory.create(username=word, email=f"{word}@example.test", **names)
project = ProjectFactory.create(name=word, source=f"/srv/{word}/{word}")
MembershipFactory.create(project=project, user=user)
task = TaskFactory.create(project=project, title=words, pipeline=word, created_by=user)
item = {**ROUNDING, "question": words}
by = {"answered_by": user, "answered_at": timezone.now(), "answered_via": "terminal"}
asked = QuestionFactory.create(
    task=task, items=[item], answers={words: "No"}, state=QuestionState.ANSWERED, **by
)
Run.objects.filter(pk=asked.run_id).update(model=word, outcome="interrupted", ended_at=timezone.now())
make_token(word, list(Scope), by=Principal.unrestricted(user))
with acting_from(ActionOrigin("terminal", "2001:db8:85a3:1234:5678:8a2e:370:7334")):
    for action in list(Action):
        record(action, by=user, task=task, subject=words)
"""
TOO_WIDE = """() => {
  const list = document.querySelector("#result_list")?.parentElement;
  return list ? [list.scrollWidth > list.clientWidth] : [];
}"""


def test_the_lists_of_the_admin_pages_fit_a_wide_screen(
    browser: Browser, seeded: tuple[WebServer, dict[str, Any]]
) -> None:
    portal, told = seeded
    portal.rows(LONG)
    context, tour = walk(browser, portal.address, told["sessions"]["admin"])
    tour.page.set_viewport_size({"width": 1440, "height": 900})
    tour.page.goto(f"{tour.address}/admin/")
    paths = tour.page.eval_on_selector_all("#content-main th a", "links => links.map((one) => one.href)")
    wide: dict[str, bool] = {}
    for path in paths:
        tour.page.goto(path)
        for scrolls in tour.page.evaluate(TOO_WIDE):
            wide[path] = scrolls
    context.close()
    assert len(wide) > 10
    assert [path for path, scrolls in wide.items() if scrolls] == []


def test_a_fault_of_ours_is_accessible_and_fits(
    browser: Browser, seeded: tuple[WebServer, dict[str, Any]]
) -> None:
    portal, told = seeded
    context, tour = walk(browser, portal.address, told["sessions"]["viewer"])
    with renamed(portal, "tasks_app_notice"):
        tour.look_at("/notices/", status=500)
        said = tour.page.inner_text("h1")
    context.close()
    assert said == "An internal error occurred"
    assert not tour.faults, "\n".join(tour.faults)


@contextmanager
def renamed(portal: WebServer, table: str) -> Iterator[None]:
    """What reads the table meanwhile meets a database that is not as it should be."""
    rename = "from django.db import connection; connection.cursor().execute('ALTER TABLE {} RENAME TO {}')"
    portal.rows(rename.format(table, "elsewhere"))
    try:
        yield
    finally:
        portal.rows(rename.format("elsewhere", table))


def test_too_many_attempts_are_reported_accessibly(
    browser: Browser, seeded: tuple[WebServer, dict[str, Any]]
) -> None:
    portal, _ = seeded
    context, tour = walk(browser, portal.address, "")
    tour.page.goto(f"{tour.address}/login/")
    tour.page.evaluate(TRY_AGAIN_AND_AGAIN)
    tour.look_at_refusal("Too many requests", "/login/", token=True)
    context.close()
    assert not tour.faults, "\n".join(tour.faults)


def test_refusals_are_accessible_and_fit(browser: Browser, seeded: tuple[WebServer, dict[str, Any]]) -> None:
    portal, told = seeded
    context, tour = walk(browser, portal.address, told["sessions"]["viewer"])
    cancel = "/tasks/1/cancel/"
    tour.look_at_refusal("You do not have permission", cancel, token=True)
    tour.look_at_refusal("This form is out of date", cancel, token=False)
    tour.look_at("/me/theme/", status=405)
    tour.look_at_refusal("The request could not be read", cancel, token=True, fields=1100)
    context.close()
    assert not tour.faults, "\n".join(tour.faults)
