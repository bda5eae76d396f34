"""Live everywhere (W3) and the notices in the page (W6), in a real browser with a real worker."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta

import pytest
from playwright.sync_api import WebSocketRoute, expect

from tests.e2e.conftest import ASK, SignIn, say
from tests.e2e.held_requests import hold, newest
from tests.portal import UpPortal
from tests.waiting import wait_until

pytestmark = pytest.mark.browser

ASKED = "Separator: Comma or semicolon? (and 1 more: Name)"

#: The task halts as a worker would halt it: what is told hangs on that row.
HALT = """
Transition.objects.create(task=task, source="running", target="waiting_for_input")
"""
#: Its agent works, and a worker holds its lease.
RUNNING = """
from datetime import timedelta
question.delete()
Run.objects.filter(pk=run.pk).update(outcome="")
Step.objects.filter(pk=step.pk).update(phase="running", started_at=timezone.now())
lease = timezone.now() + timedelta(seconds=35)
Task.objects.filter(pk=task.pk).update(
    phase="running", started_at=timezone.now(), lease_owner="elsewhere", lease_expires=lease
)
"""
SOCKET = re.compile(r"/ws/live/")


def ask(portal: UpPortal) -> tuple[int, int]:
    task, question = portal.rows(ASK + HALT)
    return task, question


def test_a_question_that_comes_elsewhere_is_a_quiet_toast(portal: UpPortal, sign_in: SignIn) -> None:
    page = sign_in(portal)
    page.goto(f"{portal.url}/tasks/new/")
    page.locator("#id_text").fill("# Half written")
    task, _ = ask(portal)

    toast = page.locator("#toasts .toast")
    expect(toast).to_contain_text(ASKED)
    expect(toast).to_contain_text("sample › Export customers")
    assert page.evaluate("document.activeElement.id") == "id_text"

    toast.get_by_role("button", name="Dismiss").click()
    expect(toast).to_have_count(0)
    page.goto(f"{portal.url}/notices/")
    page.get_by_role("link", name=ASKED).first.click()
    page.wait_for_url(f"{portal.url}/tasks/{task}/")


def test_a_failure_elsewhere_is_a_toast_too(portal: UpPortal, sign_in: SignIn) -> None:
    """W6: also beside the open questions, which say nothing of it."""
    page = sign_in(portal)
    page.goto(f"{portal.url}/inbox/")
    portal.rows(
        ASK
        + 'question.delete()\nTask.objects.filter(pk=task.pk).update(phase="failed", failure="It broke.")\n'
        'Transition.objects.create(task=task, source="running", target="failed")'
    )
    expect(page.locator("#toasts .toast")).to_contain_text("Failed: It broke.")


def test_the_page_of_the_task_itself_needs_no_toast(portal: UpPortal, sign_in: SignIn) -> None:
    task = portal.new_task("# Wait and see", started=False)
    page = sign_in(portal)
    page.goto(f"{portal.url}/tasks/{task}/")
    portal.rows(
        ASK.replace(
            'create_task(Project.objects.get(name="sample"), "# Export customers", by=admin, where="test")',
            f"Task.objects.get(pk={task})",
        )
        + HALT
    )
    expect(page.locator("#open-questions")).to_contain_text("1")
    expect(page.locator("#toasts .toast")).to_have_count(0)


def test_what_runs_is_seen_to_run_though_the_clock_of_the_browser_is_wrong(
    portal: UpPortal, sign_in: SignIn
) -> None:
    page = sign_in(portal)
    page.add_init_script("const real = Date.now; Date.now = () => real() - 3 * 3600 * 1000")
    task, _ = portal.rows(ASK + RUNNING)
    call: dict[str, object] = {"id": "one", "name": "Bash", "input": {"command": "make test"}}
    say(portal, task, ("tool_use", call))
    page.goto(f"{portal.url}/tasks/{task}/")
    activity = page.locator(f"#activity-{task}")
    expect(activity).to_contain_text(re.compile(r"for \d+ s\s+· last output \d+ s ago"))
    expect(activity.locator(".activity-call")).to_contain_text(re.compile(r"\$ make test\s+\d+ s"))
    before = page.locator(".activity [data-since]").first.text_content()
    expect(page.locator(".activity [data-since]").first).not_to_have_text(str(before))

    say(portal, task, ("tool_result", {"tool_use_id": "one", "text": "fine"}), ("text", {"text": "Good."}))
    expect(activity.locator(".activity-call")).to_have_count(0)


def test_what_happens_while_the_activity_is_on_its_way_is_not_lost(portal: UpPortal, sign_in: SignIn) -> None:
    page = sign_in(portal)
    task, _ = portal.rows(ASK + RUNNING)
    page.goto(f"{portal.url}/tasks/{task}/")
    activity = page.locator(f"#activity-{task}")
    expect(activity).to_contain_text("for")
    page.wait_for_load_state("networkidle")
    held = hold(page, "**/activity/", times=1)
    page.evaluate(f"document.body.dispatchEvent(new CustomEvent('catherder:task-{task}-activity'))")
    request = newest(page, held)
    answer = request.fetch()
    page.evaluate(
        f"document.body.addEventListener('catherder:task-{task}-activity', () => {{ window.told = true; }})"
    )
    say(portal, task, ("tool_use", {"id": "c", "name": "Bash", "input": {"command": "make lint"}}))
    expect(page.locator("[data-call=c]")).to_be_visible()
    page.wait_for_function("window.told")  # while the answer to the request before is on its way
    request.fulfill(response=answer)
    expect(activity.locator(".activity-call")).to_contain_text("make lint")


def test_a_tab_in_the_background_tells_the_browser_once(portal: UpPortal, sign_in: SignIn) -> None:
    page = sign_in(portal, permissions=["notifications"])
    page.goto(f"{portal.url}/me/notifications/")
    expect(page.locator("[data-state]")).to_have_text(re.compile("Allowed|Blocked"))
    page.evaluate(
        """() => {
          window.told = [];
          window.Notification = class {
            static permission = "granted";
            constructor(title, options) {
              window.told.push([title, options.body, options.tag]);
              document.body.dataset.told = window.told.length;
            }
          };
          Object.defineProperty(document, "hidden", { get: () => true });
        }"""
    )
    ask(portal)
    expect(page.locator("body")).to_have_attribute("data-told", "1")
    page.evaluate("document.body.dispatchEvent(new CustomEvent('catherder:refresh'))")
    page.wait_for_load_state("networkidle")
    ((title, body, tag),) = page.evaluate("window.told")
    assert title == "sample › Export customers" and body == ASKED
    assert tag.startswith("catherder-notice-")


def test_what_is_pushed_becomes_a_notification(portal: UpPortal, sign_in: SignIn) -> None:
    """W6: a headless browser has no push service and shows nothing. Its developer tools give the message to
    the worker, and the test looks at what that would show.
    """
    page = sign_in(portal, permissions=["notifications"])
    tools = page.context.new_cdp_session(page)
    registrations: list[str] = []
    tools.on(
        "ServiceWorker.workerRegistrationUpdated",
        lambda told: registrations.extend(one["registrationId"] for one in told["registrations"]),
    )
    tools.send("ServiceWorker.enable")
    page.goto(f"{portal.url}/me/notifications/")
    form = page.locator("#push-subscribe")
    with page.context.expect_event("serviceworker") as started:
        form.locator("button").click()
    worker = started.value
    expect(form.locator("[data-push-state]")).to_contain_text("could not subscribe")
    worker.evaluate(
        "() => { self.told = []; registration.showNotification = async (...shown) => told.push(shown); }"
    )
    message = {"title": "sample › Export", "body": "Comma or semicolon?", "tag": "one", "url": "/inbox/"}
    pushed = {"origin": portal.url, "registrationId": registrations[-1], "data": json.dumps(message)}
    tools.send("ServiceWorker.deliverPushMessage", pushed)
    wait_until(lambda: worker.evaluate("told.length"))
    ((title, options),) = worker.evaluate("told")
    assert (title, options["body"], options["tag"]) == ("sample › Export", "Comma or semicolon?", "one")
    assert options["data"]["url"] == "/inbox/"


def test_notices_that_come_twice_late_or_broken_do_no_harm(portal: UpPortal, sign_in: SignIn) -> None:
    task = portal.new_task("# Stand still", started=False)
    page = sign_in(portal)
    sockets: list[WebSocketRoute] = []
    # Nothing but what this test says comes through.
    page.route_web_socket(SOCKET, lambda socket: sockets.append(socket))
    page.goto(f"{portal.url}/tasks/{task}/")
    expect(page.locator("#connection")).to_be_hidden()
    for frame in _disorder(task):
        sockets[0].send(frame)
    page.wait_for_load_state("networkidle")
    expect(page.locator("#task-header h1").first).to_have_text("Stand still")
    expect(page.locator("#task-header .badge").first).to_contain_text("not started")

    sockets[0].close()
    expect(page.locator("#connection")).to_be_visible()
    expect(page.locator("#connection")).to_be_hidden()
    assert sockets[1].url.endswith("/ws/live/?after=p40")  # the last position that it heard


HEARD = """
  window.heard = 0; window.told = 0;
  const parse = JSON.parse;
  JSON.parse = (text, ...more) => {
    window.heard += String(text).includes('kinds');
    return parse(text, ...more);
  };
"""


def test_the_second_of_several_news_is_told_soon_and_many_are_told_now_and_then(
    portal: UpPortal, sign_in: SignIn
) -> None:
    """W4: what ends a task comes just after what ends its last step. A growing log tells 5 times a second."""
    task = portal.new_task("# Watched", started=False)
    page = sign_in(portal)
    sockets: list[WebSocketRoute] = []
    page.route_web_socket(SOCKET, lambda socket: sockets.append(socket))
    page.add_init_script(HEARD)
    page.goto(f"{portal.url}/tasks/{task}/")
    expect(page.locator("#connection")).to_be_hidden()
    page.clock.install()
    page.clock.pause_at(datetime.now(UTC) + timedelta(hours=1))
    page.evaluate(f"document.body.addEventListener('catherder:task-{task}-events', () => window.told++)")

    def send(count: int) -> None:
        heard = page.evaluate("window.heard")
        for _ in range(count):
            sockets[0].send(json.dumps({"task": task, "kinds": ["events"], "upto": 1}))
        wait_until(lambda: page.evaluate("window.heard") == heard + count)

    def told() -> int:
        count: int = page.evaluate("window.told")
        return count

    send(1)
    assert told() == 1, "the first at once"
    send(1)
    page.clock.run_for(20)
    assert told() == 2
    for _ in range(20):
        send(5)
        page.clock.run_for(50)
    assert told() == 2 + 5
    send(1)
    page.clock.run_for(200)
    assert told() == 2 + 5 + 1, "the last is not lost"
    page.clock.run_for(1_000)
    assert told() == 2 + 5 + 1


def _disorder(task: int) -> list[str]:
    def news(upto: str | int, *kinds: str) -> str:
        return json.dumps({"task": task, "kinds": kinds, "upto": upto})

    return [
        json.dumps({"hello": True, "upto": "p10"}),
        *(
            news("p12", "phase", "events"),
            news("p12", "phase"),
            news("p12", "phase"),
            news("p40", "notice", "unheard-of"),
        ),
        *("not json", "null", "[]", json.dumps({"task": "12", "kinds": None}), news(77, "events")),
    ]


def test_without_a_socket_the_page_polls_and_toasts_come_too(portal: UpPortal, sign_in: SignIn) -> None:
    page = sign_in(portal)
    page.route_web_socket(SOCKET, lambda socket: socket.close())
    page.goto(f"{portal.url}/notices/")
    expect(page.locator("#connection")).to_be_visible()
    ask(portal)
    expect(page.locator("#toasts .toast")).to_contain_text(ASKED)


def test_a_login_that_ended_leads_to_the_login_but_keeps_what_was_typed(
    portal: UpPortal, sign_in: SignIn
) -> None:
    typing = sign_in(portal)
    typing.goto(f"{portal.url}/tasks/new/")
    typing.locator("#id_text").fill("# Half written")
    reading = typing.context.new_page()
    reading.goto(f"{portal.url}/notices/")
    portal.rows("BrowserSession.objects.all().delete()")
    _drop_sockets(portal)

    reading.wait_for_url(re.compile("/login/"))
    expect(typing.locator("#connection")).to_contain_text("You are logged out")
    assert typing.locator("#id_text").input_value() == "# Half written"


def _drop_sockets(portal: UpPortal) -> None:
    """Any news: before they are told, the portal looks whether the session is still there."""
    portal.rows("Change.objects.create(task=Task.objects.first(), kind='task')")
