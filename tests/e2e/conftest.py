"""One portal and one browser for all end-to-end tests of a worker process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect, sync_playwright

from tests import machine
from tests.portal import PASSWORD, UpPortal, WebServer
from tests.waiting import wait_until

QUIET = ["--no-sandbox", "--disable-background-networking", "--disable-component-update", "--disable-sync"]

# Machines that run tests are slow and shared; whatever is waited for comes, or never does.
expect.set_options(timeout=120_000)

SignIn = Callable[..., Page]


#: Nothing that a test began runs, asks or is unread when the next one looks.
CANCEL_ALL = """
from contextlib import suppress
from tasks_app.core.errors import IllegalMove
from tasks_app.core.phases import CANCELLABLE
from tasks_app.permissions import Principal
from tasks_app.services.tasks import cancel_task
admin = Principal.unrestricted(User.objects.get(username="admin"))
for task in Task.objects.filter(phase__in=CANCELLABLE).exclude(phase="pending", queued_at=None):
    with suppress(IllegalMove):  # it has ended meanwhile
        cancel_task(task, by=admin)
Question.objects.filter(state="open").update(state="withdrawn")
"""
HELD = "SELECT count(*) FROM tasks_app_task WHERE lease_owner NOT IN ('', 'elsewhere')"
READ_ALL = "from django.utils.timezone import now\nNotice.objects.filter(read_at=None).update(read_at=now())"


ASK = """
import uuid
from django.utils import timezone
from tasks_app.permissions import Principal
from tasks_app.services.tasks import create_task
admin = Principal.unrestricted(User.objects.get(username="admin"))
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


#: The question becomes the approval of a command.
APPROVAL = """
Question.objects.filter(pk={number}).update(
    kind="approval", items=[{{"question": "Allow this call?"}}],
    evidence=[{{"kind": "command", "title": "Bash", "text": "make deploy"}}],
)
"""


@pytest.fixture(scope="session")
def shared_portal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UpPortal]:
    portal = UpPortal.migrated(tmp_path_factory.mktemp("portal") / "data").start()
    yield portal
    portal.stop()


@pytest.fixture
def portal(shared_portal: UpPortal) -> Iterator[UpPortal]:
    yield shared_portal
    shared_portal.rows(CANCEL_ALL)
    wait_until(lambda: shared_portal.row(HELD) == (0,))
    shared_portal.rows(READ_ALL)


@pytest.fixture
def own_portal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UpPortal]:
    """For tests that stop it, or count what it does."""
    portal = UpPortal.migrated(tmp_path_factory.mktemp("portal") / "data").start()
    yield portal
    portal.stop()


# Not for the whole session: while Playwright lives its event loop runs, and no other can in this thread.
@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=machine.chromium(), args=QUIET)
        yield browser
        browser.close()


SEED = "from tests.e2e.visited_pages import seed; result = seed()"


@pytest.fixture(scope="module")
def seeded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[WebServer, dict[str, Any]]]:
    """A served portal with something of everything, and what the seed told: sessions and paths."""
    portal = WebServer(tmp_path_factory.mktemp("walked") / "data")
    told = portal.rows(SEED)
    portal.start()
    yield portal, told
    portal.stop()


#: Cookies of earlier logins, by portal and user: to check a password takes half a second.
_logged_in: dict[tuple[UpPortal, str], Any] = {}


@pytest.fixture
def sign_in(browser: Browser) -> Iterator[SignIn]:
    """Open a browser of its own on a portal and log in. What breaks the page's policy fails the test."""
    contexts: list[BrowserContext] = []
    complaints: list[str] = []

    def open_page(portal: UpPortal, username: str = "admin", **settings: Any) -> Page:
        context = browser.new_context(**settings)
        context.set_default_timeout(20_000)
        contexts.append(context)
        context.add_cookies(_logged_in.get((portal, username), []))
        page = context.new_page()
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on(
            "console", lambda said: complaints.append(said.text) if "Content Security" in said.text else None
        )
        page.goto(f"{portal.url}/tasks/")
        if page.url != f"{portal.url}/tasks/":
            _log_in(page, username)
            page.wait_for_url(f"{portal.url}/tasks/")
            _logged_in[portal, username] = context.cookies()
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []


def _log_in(page: Page, username: str) -> None:
    page.fill("[name=username]", username)
    page.fill("[name=password]", PASSWORD)
    page.click("button")


@pytest.fixture
def asked(portal: UpPortal) -> tuple[int, int]:
    """An open question with two items, whose task no worker touches; the numbers of both."""
    task, question = portal.rows(ASK)
    return task, question


def say(portal: UpPortal, task: int, *events: tuple[str, dict[str, object]]) -> None:
    portal.rows(
        "from tasks_app.history.events.blocks import NewEvent, append\n"
        f"run = Run.objects.get(step__task={task})\n"
        f"append(run, [NewEvent(EventKind(kind), payload) for kind, payload in {list(events)!r}],"
        " seq=run.next_seq())"
    )


def show_arrived(page: Page, wanted: Locator) -> None:
    """Follow what the line below the head of a task says of arrivals until the page shows what is wanted."""
    arrival = page.locator("#arrival")
    for _ in range(300):
        if wanted.first.is_visible():
            return
        if arrival.is_visible():
            arrival.click()
        page.wait_for_timeout(200)
    expect(wanted.first).to_be_visible()


@pytest.fixture
def inbox(portal: UpPortal, asked: tuple[int, int]) -> list[int]:
    """Three open questions and no other; their numbers."""
    portal.rows("Question.objects.filter(state='open').update(state='withdrawn')")
    return [portal.rows(ASK)[1] for _ in range(3)]
