"""A pushed notification in a real browser: what it shows, and what its buttons do (W6)."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Page, Worker, expect

from tasks_app.core.types import ALLOW_COMMAND
from tests.e2e.conftest import APPROVAL, ASK, SignIn
from tests.portal import UpPortal

pytestmark = pytest.mark.browser

#: What the worker would push to a browser of the admin.
PAYLOAD = """
from django.utils import timezone
from tasks_app.models import Delivery, Transition
from tasks_app.notifications.message import message_of
from tasks_app.notifications.web_push import approval_for
from tasks_app.notifications.web_push import payload
question = Question.objects.get(pk={number})
moved = Transition(task=question.task, source="running", target="waiting_for_input", at=timezone.now())
message = message_of(Delivery(transition=moved, event_type="question"))
result = payload(message, approval_for(message, User.objects.get(username="admin")))
"""
#: A browser without windows keeps no notifications, and nobody can click one. So the last one is kept here,
#: and a script sends the events, whose `waitUntil` browsers refuse.
PREPARE = """() => {
  self.openedPages = [];
  clients.openWindow = async (path) => { openedPages.push(path); };
  registration.showNotification = async (title, options) => {
    self.shownLast = { title, actions: [], ...options, close() {} };
  };
  self.send = async (type, values) => {
    const waited = [];
    const waitUntil = (promise) => waited.push(promise);
    dispatchEvent(Object.assign(new Event(type), { ...values, waitUntil }));
    await Promise.all(waited);
    const { title, body, actions, data } = shownLast;
    return { title, body, actions: actions.map((one) => one.action), url: data.url, opened: openedPages };
  };
}"""
PUSH = "(told) => send('push', { data: { json: () => told } })"
CLICK = "(action) => send('notificationclick', { action, notification: shownLast })"
STATE = "SELECT state, verdict, answered_via FROM tasks_app_question WHERE id = {number}"


@pytest.fixture
def page(portal: UpPortal, sign_in: SignIn) -> Page:
    """A page whose browser has the service worker."""
    page = sign_in(portal, permissions=["notifications"])
    page.goto(f"{portal.url}/me/notifications/")
    page.evaluate(
        "navigator.serviceWorker.register('/service-worker.js').then(() => navigator.serviceWorker.ready)"
    )
    return page


def worker_of(page: Page) -> Worker:
    (worker,) = page.context.service_workers
    return worker


def pushed(portal: UpPortal, page: Page) -> tuple[int, dict[str, Any]]:
    """Ask for an approval and push it; return the question's id and what the browser shows."""
    _, number = portal.rows(ASK)
    portal.rows(APPROVAL.format(number=number))
    worker_of(page).evaluate(PREPARE)
    told = portal.rows(PAYLOAD.format(number=number))
    return number, worker_of(page).evaluate(PUSH, told)


def test_a_command_is_approved_in_the_notification(portal: UpPortal, page: Page) -> None:
    number, shown = pushed(portal, page)
    assert shown["title"] == ALLOW_COMMAND
    assert shown["body"].splitlines()[0] == "make deploy"
    assert shown["actions"] == ["approved", "denied"]
    shown = worker_of(page).evaluate(CLICK, "approved")
    assert portal.row(STATE.format(number=number)) == ("answered", "approved", "web")
    assert (shown["title"], shown["actions"], shown["opened"]) == ("Approved.", [], [])


def test_a_late_verdict_says_who_was_first_and_opens_the_page(portal: UpPortal, page: Page) -> None:
    number, before = pushed(portal, page)
    page.goto(f"{portal.url}/questions/{number}/")
    page.get_by_role("button", name="Approve").click()
    expect(page.locator("body")).to_contain_text("Approved by")
    shown = worker_of(page).evaluate(CLICK, "denied")
    assert portal.row(STATE.format(number=number)) == ("answered", "approved", "web")
    assert "Approved by admin" in shown["title"] and shown["url"] == before["url"]
    assert shown["opened"] == [before["url"]]


def test_who_is_logged_out_decides_nothing(portal: UpPortal, page: Page) -> None:
    number, before = pushed(portal, page)
    page.context.clear_cookies(name="sessionid")
    shown = worker_of(page).evaluate(CLICK, "approved")
    assert portal.row(STATE.format(number=number))[0] == "open"
    assert (shown["title"], shown["opened"]) == ("Log in to decide.", [before["url"]])


def test_a_click_beside_the_buttons_opens_the_question(portal: UpPortal, page: Page) -> None:
    number, before = pushed(portal, page)
    shown = worker_of(page).evaluate(CLICK, "")
    assert shown["opened"] == [before["url"]]
    assert portal.row(STATE.format(number=number))[0] == "open"
