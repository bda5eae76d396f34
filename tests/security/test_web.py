"""Strangers, other sites and hostile text against the pages (W1, R4, R5)."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib import admin
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from catherder_site import settings as as_installed
from catherder_site.asgi import BODY_LIMIT, application, exists
from tasks_app.api.problems import MAX_ERRORS
from tasks_app.asgi_layers import body_limits
from tasks_app.asgi_layers.body_limits import STRANGERS_LIMIT, Credentials, LimitedBodies
from tasks_app.history.events.blocks import append_one
from tasks_app.models import DecisionEvent, EventKind, Project, Question, QuestionState, Scope, User
from tasks_app.sandbox import Sandbox
from tasks_app.services.accounts import make_token
from tasks_app.web import frame
from tests.addresses import FOR_FORGES, NAMES, NOT_THERE, POST_ONLY, POSTED, address
from tests.api import Script
from tests.browser import signed_in
from tests.databases import undone
from tests.factories import (
    DecisionFactory,
    MembershipFactory,
    QuestionFactory,
    SequenceFactory,
    TaskFactory,
    UserFactory,
)
from tests.people import acting

pytestmark = pytest.mark.django_db

HOSTILE = (
    "<script>alert(1)</script><img src=x onerror=alert(1)>\"'><svg onload=alert(1)>{{ 7|add:7 }}\x1b[31m"
)
SIGNS_OF_LIFE = ("<script>alert", "<img src=x", "<svg onload", "{{ 14")
ITEM = {
    "question": HOSTILE,
    "header": HOSTILE * 100,
    "multiSelect": False,
    "options": [{"label": HOSTILE, "description": HOSTILE, "preview": HOSTILE}],
}


def browser(user: User | None = None, **options: Any) -> Client:
    client = Client(raise_request_exception=False, **options)
    if user:
        client.force_login(user)
    return client


def root() -> Client:
    return browser(UserFactory.create(is_superuser=True, is_staff=True))


@pytest.fixture
def question() -> Question:
    """A task in which every text that an agent or a person can write is hostile."""
    sequence = SequenceFactory.create(folder=HOSTILE, failure=HOSTILE)
    task = TaskFactory.create(
        sequence=sequence, project=sequence.project, phase="waiting_for_input",
        title=HOSTILE, text=HOSTILE, body=HOSTILE, failure=HOSTILE,
    )  # fmt: skip
    question = QuestionFactory.create(task=task, items=[ITEM], tool_input={"questions": [ITEM]})
    QuestionFactory.create(
        task=task, run=question.run, items=[ITEM], number=2, state=QuestionState.ANSWERED, notes=HOSTILE,
        answers={HOSTILE: HOSTILE}, answered_at=timezone.now(),
        answered_by=UserFactory.create(first_name=HOSTILE),
    )  # fmt: skip
    for kind, payload in hostile_events():
        append_one(question.run, EventKind(kind), payload)
    decision = DecisionFactory.create(
        project=task.project, question=question, statement=HOSTILE, reason=HOSTILE, source=HOSTILE,
        scope="paths", paths=[HOSTILE], cites=[{"path": HOSTILE, "blob": HOSTILE}],
        review_reason="unfit", review_note=HOSTILE,
    )  # fmt: skip
    DecisionFactory.create(project=task.project, replaces=decision, statement=HOSTILE)
    DecisionEvent.objects.create(decision=decision, kind="followed", task=task, note=HOSTILE)
    return question


def hostile_events() -> Iterator[tuple[str, dict[str, Any]]]:
    yield "text", {"text": HOSTILE}
    yield "text", {"text": f"[{HOSTILE}](javascript:alert(1)) <{HOSTILE}> ![]({HOSTILE})\n\n|{HOSTILE}|\n|-|"}
    yield "thinking", {"text": HOSTILE}
    for number, name in enumerate((HOSTILE, "Bash", "Edit", "Write", "MultiEdit", "TodoWrite", "Grep")):
        keys = ("command", "file_path", "old_string", "new_string", "content", "pattern", "todos", "edits")
        given = dict.fromkeys(keys, HOSTILE)
        yield "tool_use", {"id": str(number), "name": name, "input": given}
        yield "tool_result", {"tool_use_id": str(number), "text": HOSTILE, "is_error": number % 2 == 0}
    yield "question", {"number": 1, "question": HOSTILE, "items": [ITEM], "way": HOSTILE}
    yield "answer", {"question": HOSTILE, "text": HOSTILE, "by": HOSTILE, "via": HOSTILE, "number": 1}
    yield "check", {"check": HOSTILE, "passed": False, "output": HOSTILE, "exit_code": 1}
    yield "result", {"subtype": HOSTILE, "is_error": True, "text": HOSTILE}
    for kind in ("note", "error"):
        yield kind, {"text": HOSTILE}


def pages(question: Question) -> list[str]:
    """Every address that is got, parts and downloads and the admin pages included."""
    shown = [name for name in NAMES if name not in POST_ONLY | NOT_THERE]
    return [*(address(name, question) for name in shown), *_admin_pages()]


def _admin_pages() -> Iterator[str]:
    yield reverse("admin:index")
    for model in admin.site._registry:
        prefix = f"admin:{model._meta.app_label}_{model._meta.model_name}"
        yield reverse(f"{prefix}_changelist")
        for row in model._default_manager.all()[:30]:
            yield reverse(f"{prefix}_change", args=[row.pk])


def body_of(response: Any) -> str:
    content: bytes = response.getvalue() if response.streaming else response.content
    return content.decode()


def test_hostile_text_is_only_text_on_every_page(question: Question) -> None:
    client = root()
    for page in pages(question):
        response = client.get(page)
        assert response.status_code in (200, 204, 302), page
        if response["Content-Type"].startswith("text/html"):
            body = body_of(response)
            assert not [sign for sign in SIGNS_OF_LIFE if sign in body], page


def test_every_page_has_its_policy_cannot_be_framed_and_is_not_kept(question: Question) -> None:
    """Error pages and downloads too; after a logout the button Back shows nothing."""
    client = root()
    for page in [*pages(question), "/login/", "/no/such/page", "/tasks/99999999999999999999/"]:
        response = client.get(page)
        policy = response["Content-Security-Policy"]
        for rule in ("default-src 'self'", "script-src 'self'", "frame-ancestors 'none'", "base-uri 'none'"):
            assert rule in policy, page
        assert "unsafe" not in policy, page
        assert response["X-Content-Type-Options"] == "nosniff", page
        assert "no-store" in response["Cache-Control"], page
        assert "private" in response["Cache-Control"], page


@pytest.mark.parametrize(
    "headers",
    [{}, {"HX-Request": "true"}, {"Accept": "application/json"}, {"Origin": "http://testserver:3000"}],
    ids=["form", "htmx", "json", "other-port"],
)
def test_no_other_site_can_post_for_a_user(
    headers: dict[str, str], question: Question, subtests: pytest.Subtests
) -> None:
    """The token of the cookie is no help to a page of another port: the origin must be ours too."""
    client = browser(UserFactory.create(is_superuser=True), enforce_csrf_checks=True)
    client.get(reverse("task_new"))
    data = {"item-0-other": "x", "project": question.task.project_id, "text": "# x"}
    if "Origin" in headers:
        data["csrfmiddlewaretoken"] = client.cookies["csrftoken"].value
    for name in POSTED:
        with subtests.test(name), undone():
            # A forge's call acts for no user: without its signature, there is no such address.
            refusal = 404 if name in FOR_FORGES else 403
            assert client.post(address(name, question), data, headers=headers).status_code == refusal
            question.refresh_from_db()
            assert question.is_open


def test_json_needs_the_token_as_well(question: Question) -> None:
    client = browser(UserFactory.create(is_superuser=True), enforce_csrf_checks=True)
    for kind in ("application/json", "text/plain"):
        response = client.post(address("question_answer", question), '{"answer": "x"}', content_type=kind)
        assert response.status_code == 403


def test_a_session_chosen_by_an_attacker_does_not_become_the_users() -> None:
    User.objects.create_user("ann", password="correct horse")
    client = browser()
    client.get("/login/")
    client.cookies["sessionid"] = "a" * 32
    client.post("/login/", {"username": "ann", "password": "correct horse"})
    assert client.cookies["sessionid"].value != "a" * 32
    assert client.cookies["sessionid"]["httponly"]
    assert client.cookies["sessionid"]["samesite"] == "Lax"


@pytest.mark.parametrize(
    "place", ["//evil.example", "https://evil.example", "/\\evil.example", "javascript:alert(1)", "///x"]
)
def test_the_login_leads_to_no_other_site(place: str) -> None:
    User.objects.create_user("ann", password="correct horse")
    sent = browser().post("/login/", {"username": "ann", "password": "correct horse", "next": place})
    assert sent["Location"] == "/tasks/"


def test_only_known_hosts_are_answered() -> None:
    assert set(as_installed.ALLOWED_HOSTS) == {"localhost", "127.0.0.1", "[::1]"}
    assert browser().get("/login/", headers={"Host": "evil.example"}).status_code == 400


@pytest.mark.parametrize("number", ["0", "-1", "99999999999999999999", "1e3", "%00", "٣٣٣", "..", "1;2"])
def test_odd_numbers_are_404(number: str) -> None:
    client = root()
    for page in (f"/tasks/{number}/", f"/questions/{number}/", f"/tasks/{number}/steps/{number}/raw.log"):
        assert client.get(page).status_code == 404


@pytest.mark.parametrize("value", ["-1", "99999999999999999999", "\0", "'", "٣", "", "1" * 5000])
def test_odd_parameters_break_no_page(value: str, question: Question) -> None:
    client = root()
    for name in ("after", "before", "around", "run", "error", "only"):
        assert client.get(address("task_log", question), {name: value}).status_code in (200, 204, 404)
    for page, name in (
        *(("tasks", "group"), ("tasks", "page"), ("task_new", "project")),
        *(("inbox", "question"), ("inbox", "page")),
    ):
        assert client.get(address(page, question), {name: value}).status_code in (200, 404)
    assert client.get(address("task_diff", question), {"step": value}).status_code in (200, 404)
    assert client.get(address("task_header", question), {"known": value, "tab": value}).status_code == 200


@pytest.mark.parametrize("path", ["../manage.py", "%2e%2e/manage.py", "catherder/..%2f..%2fmodels/task.py"])
def test_no_file_but_static_ones_is_served(path: str, settings: Any) -> None:
    settings.MIDDLEWARE = as_installed.MIDDLEWARE
    client = browser()
    assert client.get("/static/catherder/catherder.css").status_code == 200
    assert client.get(f"/static/{path}").status_code == 404


@pytest.mark.parametrize("edits", [5, "x", {"a": 1}, [5, None, {"old_string": []}], None])
def test_a_call_of_any_shape_leaves_the_task_readable(edits: object, question: Question) -> None:
    """What a model writes as input follows no schema."""
    for name in ("MultiEdit", "TodoWrite", "AskUserQuestion", "Grep", "Bash", "Read", "Edit"):
        given = dict.fromkeys(("edits", "todos", "questions", "path", "command", "file_path"), edits)
        append_one(question.run, EventKind.TOOL_USE, {"id": name, "name": name, "input": given})
    client = root()
    for name in ("task", "task_log", "tasks", "step_log"):
        assert client.get(address(name, question)).status_code == 200


@pytest.mark.parametrize(
    "body", ["[" * 100_000, '{"answer":' * 100_000, "1" * 100_000, '"\\ud800', "\0", "NaN"]
)
def test_json_of_any_shape_gets_a_reason(body: str, question: Question) -> None:
    script = Script(UserFactory.create(is_superuser=True))
    response = script.post(f"/questions/{question.pk}/answer", body)
    assert response.status_code == 400
    assert response.json()["detail"]


def test_half_characters_and_nul_in_an_answer_lose_nothing(question: Question) -> None:
    script = Script(UserFactory.create(is_superuser=True))
    url = f"/questions/{question.pk}/answer"
    nul = script.post(url, {"answer": "a\0b"})
    assert (nul.status_code, "NUL" in nul.json()["detail"]) == (400, True)
    assert script.post(url, '{"answer": "a\\ud800b"}').status_code == 200
    question.refresh_from_db()
    assert question.answer_text == "a�b"


@pytest.mark.parametrize("login", [True, False])
def test_a_missing_sandbox_is_reported_on_every_page(
    login: bool, question: Question, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frame, "sandbox", lambda: Sandbox(None, "It was switched off."))
    client = root() if login else browser()
    for page in (
        "/tasks/",
        "/tasks/queue/",
        address("task", question),
        "/admin/",
        "/admin/tasks_app/task/",
        "/nope/",
    ):
        response = client.get(page, follow=True)
        assert "No sandbox" in response.text, page
        assert "It was switched off." in response.text, page


def test_the_form_for_tasks_does_not_reveal_hidden_projects() -> None:
    """Its name stays unknown to who is no member, whatever number is sent."""
    hidden = MembershipFactory.create().project
    own = MembershipFactory.create()
    client = browser(own.user)
    response = client.post(reverse("task_new"), {"project": hidden.pk, "text": "# x"})
    assert response.status_code == 400
    assert hidden.name not in response.text
    assert Project.objects.count() == 2


class Wire:
    """A client of the ASGI application that sends a body in pieces and keeps what comes back."""

    def __init__(self, *pieces: bytes, declared: int | None = None) -> None:
        self.left = list(pieces)
        self.status = 0
        headers = [] if declared is None else [(b"content-length", str(declared).encode())]
        self.scope = {"type": "http", "method": "POST", "path": "/login/", "headers": headers}

    async def receive(self) -> dict[str, Any]:
        return {"type": "http.request", "body": self.left.pop(0), "more_body": bool(self.left)}

    async def send(self, message: Any) -> None:
        self.status = message.get("status", self.status)


async def known(shown: Credentials) -> bool:
    return shown.session_key == "a1" * 16 or shown.token == "cath_x"


async def reading_page(scope: Any, receive: Any, send: Any) -> None:
    while (await receive())["more_body"]:
        pass
    await send({"type": "http.response.start", "status": 200})


@pytest.mark.parametrize(
    ("wire", "status"),
    [
        (Wire(b"a" * 6, b"b" * 4), 200),
        (Wire(b"a" * 6, b"b" * 5), 413),
        (Wire(declared=11), 413),
        (Wire(b"a" * 11, declared=1), 413),
    ],
    ids=["fits", "grows", "says-so", "lies"],
)
async def test_a_body_past_all_bounds_is_not_kept(wire: Wire, status: int) -> None:
    """Django would put it on the disk whole, and that for a stranger."""
    await LimitedBodies(reading_page, limit=10, is_logged_in=known)(wire.scope, wire.receive, wire.send)
    assert wire.status == status


@pytest.mark.parametrize(
    ("path", "kind"),
    [("/api/v1/tasks", b"application/problem+json"), ("/tasks/", b"text/plain; charset=utf-8")],
)
async def test_a_request_that_is_too_large_gets_a_problem(path: str, kind: bytes) -> None:
    """R5"""
    wire, said = Wire(declared=11), []

    async def page(scope: Any, receive: Any, send: Any) -> None:
        raise AssertionError("must not be asked")

    async def send(message: Any) -> None:
        said.append(message)

    await LimitedBodies(page, limit=10, is_logged_in=known)({**wire.scope, "path": path}, wire.receive, send)
    assert said[0]["status"] == 413 and dict(said[0]["headers"])[b"content-type"] == kind
    assert b"10 bytes" in said[1]["body"]


SESSION = (b"cookie", b"theme=dark; sessionid=" + b"a1" * 16)


@pytest.mark.parametrize(
    ("header", "status"),
    [
        ((b"cookie", b"sessionid=short; x=" + b"a1" * 16), 413),
        ((b"authorization", b"Basic cath_x"), 413),
        ((b"cookie", b"sessionid=" + b"b2" * 16), 413),
        ((b"authorization", b"Bearer cath_invented"), 413),
        (SESSION, 200),
        ((b"authorization", b"Bearer cath_x"), 200),
    ],
)
async def test_a_body_of_a_stranger_is_small(header: tuple[bytes, bytes], status: int) -> None:
    """W1"""
    wire = Wire(b"a" * STRANGERS_LIMIT, b"b")
    await LimitedBodies(reading_page, limit=BODY_LIMIT, is_logged_in=known)(
        {**wire.scope, "headers": [header]}, wire.receive, wire.send
    )
    assert wire.status == status


@pytest.mark.parametrize("headers", [[], [SESSION]], ids=["stranger", "user"])
async def test_a_body_must_be_there_soon(
    headers: list[tuple[bytes, bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """W1: drop by drop for ever, with or without a cookie, gets an answer and is ended."""
    monkeypatch.setattr(body_limits, "FIRST_SECONDS", 0.2)
    wire = Wire()

    async def receive() -> dict[str, Any]:
        await asyncio.sleep(0.02)
        return {"type": "http.request", "body": b"x", "more_body": True}

    async with asyncio.timeout(20):
        scope = {**wire.scope, "headers": headers}
        await LimitedBodies(reading_page, limit=BODY_LIMIT, is_logged_in=known)(scope, receive, wire.send)
    assert wire.status == 408


async def test_an_invented_cookie_buys_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """W1: a body at a growing pace has a stranger's seconds, and the database is asked once."""
    monkeypatch.setattr(body_limits, "FIRST_SECONDS", 0.1)
    monkeypatch.setattr(body_limits, "PACE", 1)
    wire, asked = Wire(), []

    async def unknown(shown: Credentials) -> bool:
        asked.append(shown)
        return False

    async def receive() -> dict[str, Any]:
        await asyncio.sleep(0.02)
        return {"type": "http.request", "body": b"x" * 1_000, "more_body": True}

    async with asyncio.timeout(20):
        scope = {**wire.scope, "headers": [SESSION]}
        await LimitedBodies(reading_page, limit=BODY_LIMIT, is_logged_in=unknown)(scope, receive, wire.send)
    assert wire.status == 408 and asked == [Credentials("a1" * 16, "")]


@pytest.mark.django_db(transaction=True)
async def test_only_what_exists_is_a_login() -> None:
    client, token = await sync_to_async(logged_in)()
    for shown, is_one in [
        (Credentials(client.cookies["sessionid"].value), True),
        (Credentials(token=token), True),
        (Credentials("a1" * 16, "cath_invented"), False),
        (Credentials(), False),
    ]:
        assert await exists(shown) is is_one


def logged_in() -> tuple[Client, str]:
    user = UserFactory.create()
    return signed_in(user), make_token("script", tuple(Scope), by=acting(user)).secret


async def test_the_longer_a_body_takes_the_faster_it_must_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is fast enough at first is too slow in the end: a form cannot be drawn out for ever."""
    monkeypatch.setattr(body_limits, "FIRST_SECONDS", 0.1)
    monkeypatch.setattr(body_limits, "PACE", 1_000_000)
    wire, pieces = Wire(), []

    async def receive() -> dict[str, Any]:
        await asyncio.sleep(0.05)
        pieces.append(asyncio.get_running_loop().time())
        return {"type": "http.request", "body": b"x" * 20_000, "more_body": True}

    async with asyncio.timeout(20):
        await LimitedBodies(reading_page, limit=BODY_LIMIT, is_logged_in=known)(
            {**wire.scope, "headers": [SESSION]}, receive, wire.send
        )
    assert wire.status == 408
    assert sum(20_000 for _ in pieces) > 1_000_000 * 0.1**2, "the first deadline was passed"


async def test_who_waits_for_the_answer_is_not_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Django listens for a client that goes away for as long as a page takes."""
    monkeypatch.setattr(body_limits, "FIRST_SECONDS", 0.05)
    wire = Wire(b"all")

    async def page(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                wire.receive = asyncio.Event().wait  # type: ignore[assignment,method-assign]
                await receive()
        await send({"type": "http.response.start", "status": 200})

    await LimitedBodies(page, limit=BODY_LIMIT, is_logged_in=known)(
        wire.scope, lambda: wire.receive(), wire.send
    )
    assert wire.status == 200


async def test_the_bound_is_in_force_and_above_that_of_forms() -> None:
    """Only what a worker host sends below `/worker/` has a bound of its own, once its token is known."""
    assert BODY_LIMIT > as_installed.DATA_UPLOAD_MAX_MEMORY_SIZE
    wire = Wire(declared=BODY_LIMIT + 1)
    await application(wire.scope, wire.receive, wire.send)
    assert wire.status == 413


def test_a_body_with_very_many_faults_gets_a_short_answer() -> None:
    """A hundred thousand fields that are not known were told one by one, in five times what was sent."""
    body = json.dumps({f"field-{number}": 1 for number in range(5_000)})
    answer = root().post("/api/v1/tasks/preview", body, content_type="application/json")
    assert (answer.status_code, len(answer.json()["errors"])) == (400, MAX_ERRORS)


def test_an_anonymous_visitor_does_not_fill_the_log() -> None:
    """Each request with very many parameters left a traceback of 7 kB."""
    assert browser().get(f"/login/?{'a&' * 2_000}").status_code == 400
    for fault in ("TooManyFieldsSent", "TooManyFilesSent", "RequestDataTooBig", "DisallowedHost"):
        assert not logging.getLogger(f"django.security.{fault}").isEnabledFor(logging.ERROR)
