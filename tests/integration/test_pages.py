"""The pages show what is true, say what to do first, and cost the same however much there is (W2, W7)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.conf import settings
from django.db import connection, connections
from django.http import HttpResponseBase, StreamingHttpResponse
from django.test import AsyncClient, Client, RequestFactory
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone
from django.views.defaults import server_error

from tasks_app.core.errors import SandboxUnavailable
from tasks_app.core.phases import PHASE_DISPLAYS, Phase
from tasks_app.history.events.blocks import NewEvent, append
from tasks_app.models import Event, EventKind, Question, Run, Step, Task, User, paths
from tasks_app.sandbox import Sandbox
from tasks_app.services.projects.projects import add_project
from tasks_app.web import frame
from tests.addresses import text_of
from tests.browser import signed_in
from tests.factories import (
    COLUMNS,
    ROUNDING,
    MembershipFactory,
    ProjectFactory,
    QuestionFactory,
    RunFactory,
    SequenceFactory,
    TaskFactory,
    UserFactory,
)
from tests.integration.git_repository import GitRepository
from tests.markup import tidy

pytestmark = pytest.mark.django_db

HTMX = {"HX-Request": "true"}
HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(1)>\"' [x](javascript:alert(1)) \x1b[31mred"


@pytest.fixture
def admin() -> User:
    return UserFactory.create(is_superuser=True, is_staff=True, first_name="Ada")


@pytest.fixture
def browser(admin: User) -> Client:
    return signed_in(admin)


@pytest.fixture
def count_queries(browser: Client) -> Callable[[str], int]:
    def count(address: str) -> int:
        with CaptureQueriesContext(connection) as captured:
            assert browser.get(address).status_code == 200
        return len(captured)

    return count


def say(run: Run, *events: tuple[EventKind, dict[str, Any]]) -> None:
    append(run, [NewEvent(kind, payload, raw=payload) for kind, payload in events], seq=run.next_seq())


def page_of(task: Task) -> str:
    return reverse("task", args=[task.pk])


def log_of(task: Task) -> str:
    return reverse("task_log", args=[task.pk])


# ---- every page ----


def test_login_leads_to_where_one_wanted_to_go() -> None:
    user = UserFactory.create(username="ada")
    user.set_password("open sesame")
    user.save()
    task = TaskFactory.create(project=MembershipFactory.create(user=user).project)
    client = Client()
    login = client.get(page_of(task), follow=True)
    assert "Log in" in login.text
    wrong = client.post(
        login.redirect_chain[0][0], {"username": "ada", "password": "no", "next": page_of(task)}
    )
    assert "Wrong user name or password" in wrong.text and 'value="ada"' in wrong.text
    right = {"username": "ada", "password": "open sesame", "next": page_of(task)}
    assert client.post("/login/", right)["Location"] == page_of(task)


@pytest.mark.parametrize("address", ["/login/", "/tasks/", "/tasks/new/", "/nowhere/", "/admin/"])
def test_rehearsal_is_shown_on_every_page(browser: Client, address: str) -> None:
    page = (Client() if address == "/login/" else browser).get(address)
    assert "Rehearsal." in page.text and "ANTHROPIC_API_KEY" in page.text


def test_a_real_key_ends_the_rehearsal(browser: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    real = settings.ENVIRONMENT.model_copy(update={"anthropic_api_key": "k"})
    monkeypatch.setattr(settings, "ENVIRONMENT", real)
    assert "Rehearsal" not in browser.get("/tasks/").text


@pytest.mark.parametrize("address", ["/login/", "/tasks/", "/nowhere/"])
def test_a_missing_sandbox_is_reported_with_its_reason(
    browser: Client, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setattr(frame, "sandbox", lambda: Sandbox(None, "bubblewrap is not installed."))
    page = (Client() if address == "/login/" else browser).get(address)
    assert "No sandbox." in page.text and "bubblewrap is not installed." in page.text


def test_a_demanded_sandbox_that_is_missing_does_not_break_the_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    def unavailable(mode: object) -> Sandbox:
        raise SandboxUnavailable("there is none")

    monkeypatch.setattr(frame, "detect", unavailable)
    frame.sandbox.cache_clear()
    try:
        assert (frame.sandbox().active, frame.sandbox().reason) == (
            False,
            "there is none",
        )
    finally:
        frame.sandbox.cache_clear()


def test_open_questions_are_counted_in_the_title_and_the_navigation(browser: Client) -> None:
    assert "<title>Tasks · Cat Herder</title>" in tidy(browser.get("/tasks/").text)
    QuestionFactory.create_batch(2)
    assert "<title>(2) Tasks · Cat Herder</title>" in tidy(browser.get("/tasks/").text)
    assert 'data-open="2"' in browser.get("/navigation/").text


def test_only_questions_that_one_sees_are_counted() -> None:
    mine = QuestionFactory.create()
    QuestionFactory.create()
    client = signed_in(MembershipFactory.create(project=mine.task.project).user)
    assert 'data-open="1"' in client.get("/navigation/").text


def test_the_error_page_needs_no_database(rf: RequestFactory, django_db_blocker: Any) -> None:
    with django_db_blocker.block():
        page = server_error(rf.get("/tasks/"))
    assert page.status_code == 500 and "An internal error occurred" in page.content.decode()


def test_scripts_and_styles_come_from_files_alone(browser: Client) -> None:
    policy = browser.get("/tasks/")["Content-Security-Policy"]
    assert "script-src 'self'" in policy and "style-src 'self'" in policy and "unsafe" not in policy
    inline = re.compile(r"<style|<script(?![^>]*\bsrc=)|\sstyle=|\son[a-z]+=|hx-on|javascript:")
    for template in Path(settings.BASE_DIR, "templates").rglob("*.html"):
        html = re.sub(r"{%.*?%}", "", template.read_text())
        assert not inline.search(html), template


# ---- what is going on now ----


def test_every_phase_is_in_the_group_that_says_what_it_needs(browser: Client) -> None:
    for phase in Phase:
        TaskFactory.create(phase=phase, title=f"is {phase}")
    page = browser.get("/tasks/").text
    TaskFactory.create(phase=Phase.DONE, head_commit="b" * 40)
    page = browser.get("/tasks/").text
    order = [
        "Needs your answer", "To review", "Failed or interrupted", "Working", "Waiting for a worker",
        "Not started", "Finished",
    ]  # fmt: skip
    places_in_page = [page.index(f'">{title} <span class="number">') for title in order]
    assert places_in_page == sorted(places_in_page)
    for phase in Phase:
        shown = {Phase.PENDING: "not started", Phase.WAITING_FOR_INPUT: "needs your answer"}
        label = shown.get(phase, PHASE_DISPLAYS[phase].label)
        assert f"is {phase}</a>" in page and f"{label}</span>" in page


def test_what_one_may_not_answer_needs_others() -> None:
    """A badge and a headline that ask for what one cannot give are noise."""
    open_here, open_there = QuestionFactory.create(), QuestionFactory.create()
    for question in (open_here, open_there):
        Task.objects.filter(pk=question.task_id).update(phase=Phase.WAITING_FOR_INPUT)
    user = MembershipFactory.create(project=open_here.task.project, role="viewer").user
    browser = signed_in(user)
    page = browser.get("/tasks/").text
    assert '">Waiting for others <span class="number">1<' in page and "Needs your answer" not in page
    assert 'data-open="0"' in browser.get("/navigation/").text
    assert open_here.task.title in browser.get("/tasks/?group=others").text
    assert open_here.items[0]["question"] in browser.get("/inbox/").text
    MembershipFactory.create(project=open_there.task.project, user=user)
    page = browser.get("/tasks/").text
    assert (
        '">Needs your answer <span class="number">1<' in page
        and '">Waiting for others <span class="number">1<' in page
    )
    assert 'data-open="1"' in browser.get("/navigation/").text


def test_only_those_who_may_answer_read_that_their_answer_is_needed() -> None:
    question = QuestionFactory.create()
    task, step = question.task, question.step
    for waiting in (task, step):
        type(waiting).objects.filter(pk=waiting.pk).update(phase=Phase.WAITING_FOR_INPUT)
    for role, label in (("viewer", "waiting for input"), ("member", "needs your answer")):
        browser = signed_in(MembershipFactory.create(project=task.project, role=role).user)
        for address in ("/tasks/", page_of(task), reverse("project", args=[task.project_id]), "/tasks/all/"):
            page = re.sub(
                r'(?s)<div class="chips">.*?</div>|<fieldset class="chips">.*?</fieldset>',
                "",
                tidy(browser.get(address).text),
            )
            assert ("needs your answer" in page) == (role == "member"), (role, address)
            assert f"{label}</span>" in page or f"1 {label}" in page, (role, address)
    TaskFactory.create(project=task.project, phase=Phase.WAITING_FOR_INPUT)
    assert "2 need your answer<" in tidy(browser.get(reverse("project", args=[task.project_id])).text)


def test_who_waits_longest_comes_first_and_of_what_ended_the_last(browser: Client) -> None:
    """Not what was created last: a task that waited for a week and is done now is news."""
    now, day = timezone.now(), timedelta(days=1)
    for title, days in (("long ago", 9), ("lately", 1), ("before", 4)):
        ended = {"title": f"{title} ended", "phase": Phase.DONE, "ended_at": now - days * day}
        TaskFactory.create(**ended)
        TaskFactory.create(**{**ended, "title": f"{title} failed", "phase": Phase.FAILED})
        QuestionFactory.create(task__title=f"{title} asked", task__phase=Phase.WAITING_FOR_INPUT,
                        asked_at=now - days * day)  # fmt: skip
    shown = re.findall(r">((?:long ago|lately|before) \w+)</a>", browser.get("/tasks/").text)
    assert shown == [
        *("long ago asked", "before asked", "lately asked"),
        *("lately failed", "before failed", "long ago failed"),
        *("lately ended", "before ended", "long ago ended"),
    ]


def test_a_waiting_task_shows_its_question_and_a_failed_one_its_reason(browser: Client) -> None:
    QuestionFactory.create()
    TaskFactory.create(phase=Phase.FAILED, failure="The check <b> failed.")
    page = browser.get("/tasks/").text
    assert ROUNDING["question"] in page and "The check &lt;b&gt; failed." in page


def test_only_those_who_may_act_get_a_start_button(browser: Client) -> None:
    task = TaskFactory.create()
    viewer = signed_in(MembershipFactory.create(project=task.project, role="viewer").user)
    start = reverse("task_start", args=[task.pk])
    hint = "Start a task: an agent works on it"
    assert start in browser.get("/tasks/").text and hint in browser.get("/tasks/").text
    page = viewer.get("/tasks/").text
    assert task.title in page and start not in page and hint not in page


@pytest.mark.parametrize("group", ["", "?group=finished", "?group=answer", "?group=working"])
def test_the_cost_of_a_list_does_not_grow_with_it(count_queries: Callable[[str], int], group: str) -> None:
    address = f"/tasks/{group}"

    def add() -> None:
        for phase in Phase:
            TaskFactory.create(phase=phase)
        question = QuestionFactory.create()
        say(question.run, (EventKind.TEXT, {"text": "hello"}))
        say(RunFactory.create(), (EventKind.TEXT, {"text": "at work"}))

    add()
    few = count_queries(address)
    for _ in range(12):
        add()
    assert count_queries(address) == few <= 17


def test_long_groups_page_at_50(browser: Client) -> None:
    TaskFactory.create_batch(70, phase=Phase.DONE)
    assert "All 70" in browser.get("/tasks/").text
    first, second = (
        browser.get("/tasks/?group=finished").text,
        browser.get("/tasks/?group=finished&page=2").text,
    )
    assert (first.count('class="row task-row"'), second.count('class="row task-row"')) == (50, 20)
    assert browser.get("/tasks/?group=finished&page=nonsense").status_code == 200
    assert browser.get("/tasks/?group=nonsense").status_code == 404


def test_the_empty_dashboard_says_what_to_do_first(browser: Client) -> None:
    assert "Add a project" in browser.get("/tasks/").text
    ProjectFactory.create()
    assert "Create the first task" in browser.get("/tasks/").text
    nobody = signed_in(UserFactory.create())
    assert "not a member of any project" in nobody.get("/tasks/").text


# ---- new task ----


@pytest.fixture
def project(tmp_path: Path) -> Any:
    repository = GitRepository.make(tmp_path / "shop", **{"README.md": "# shop\n"})
    return add_project("shop", str(repository.path))


def create(client: Client, in_project: Any, **fields: str) -> Any:
    return client.post("/tasks/new/", {"project": in_project.pk, "threshold": "", "pipeline": "", **fields})


def test_a_task_is_created_and_started_with_one_click(browser: Client, project: Any) -> None:
    page = create(browser, project, text="# Round the totals\n\nPlease.", threshold="4", start="1")
    task = Task.objects.get()
    assert page["Location"] == page_of(task)
    assert (task.title, task.threshold) == ("Round the totals", 4)
    assert task.queued_at is not None


def test_a_task_can_be_created_only(browser: Client, project: Any) -> None:
    create(browser, project, text="# Round the totals", create="1")
    assert Task.objects.get().not_started


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"text": ""}, "Enter the task"),
        ({"text": "# A\n", "threshold": "6"}, "The threshold must be a whole number from 0 to 5, not “6”."),
        ({"text": "# A\n", "threshold": "high"}, "not “high”."),
        ({"text": "---\ninteractionThreshold: 9\n---\n# A <b>\n"}, "Line 2"),
        ({"text": "---\ntitle: x\n# never closed"}, "never closed with ---"),
        ({"text": "# A\n", "pipeline": "no-such-line"}, "no-such-line"),
        ({"text": "# A\n", "project": "999"}, "There is no such project"),
    ],
)
def test_a_bad_task_is_refused_with_the_reason_and_keeps_what_was_typed(
    browser: Client, project: Any, fields: dict[str, str], message: str
) -> None:
    page = create(browser, project, **{"start": "1", **fields})
    assert page.status_code == 400 and message in page.text
    assert fields["text"].replace("<", "&lt;").replace(">", "&gt;") in page.text
    assert not Task.objects.exists()


def test_a_repository_that_is_gone_is_named(browser: Client, project: Any, tmp_path: Path) -> None:
    (tmp_path / "shop").rename(tmp_path / "moved")
    page = create(browser, project, text="# A", start="1")
    assert page.status_code == 400 and "shop" in page.text and "# A</textarea>" in page.text


def test_without_a_project_the_form_says_how_to_add_one(browser: Client) -> None:
    assert "Add a project" in browser.get("/tasks/new/").text


# ---- a task ----


@pytest.mark.parametrize("phase", list(Phase))
def test_a_task_says_its_phase_in_a_sentence_and_offers_what_can_be_done(
    browser: Client, phase: Phase
) -> None:
    task = TaskFactory.create(phase=phase, started_at=timezone.now(), queued_at=timezone.now())
    page = browser.get(page_of(task)).text
    own = {
        Phase.FAILED: "Failed before step “plan” began.",
        Phase.CANCELLED: "Cancelled",
        Phase.DONE: "All steps finished. No checks were configured.",
    }
    assert own.get(phase, PHASE_DISPLAYS[phase].sentence) in page
    assert ("Cancel the task" in page) == (phase not in (Phase.DONE, Phase.FAILED, Phase.CANCELLED))
    resumable = (Phase.FAILED, Phase.INTERRUPTED, Phase.CANCELLED, Phase.WAITING_FOR_RESET)
    assert ("Resume</button>" in page) == (phase in resumable)


@pytest.mark.parametrize(("kind", "passed"), [("shell", True), ("none", False)])
def test_only_a_task_with_checks_says_that_they_passed(browser: Client, kind: str, passed: bool) -> None:
    task = TaskFactory.create(phase=Phase.DONE)
    check = {"type": kind, "command": "true"}
    task.steps.update(config={"name": "plan", "command": "self", "check": [check]})
    assert ("all checks passed" in browser.get(page_of(task)).text) == passed


def test_a_cancelled_task_says_who_cancelled_it_and_when(browser: Client) -> None:
    task = TaskFactory.create(phase=Phase.RUNNING, started_at=timezone.now())
    assert "Cancelled by" not in browser.get(page_of(task)).text
    page = tidy(browser.post(reverse("task_cancel", args=[task.pk]), follow=True).text)
    name = User.objects.get(is_superuser=True).shown_name
    assert re.search(rf"Cancelled by {name}, <time [^>]+>\d\d:\d\d</time>", page)
    assert f'<p class="row-question">by {name}</p>' in browser.get("/tasks/").text
    browser.post(reverse("task_resume", args=[task.pk]))
    assert f"by {name}</p>" not in browser.get("/tasks/").text


def test_start_cancel_and_resume_are_buttons(browser: Client) -> None:
    task = TaskFactory.create()
    for action, phase in (
        ("start", Phase.PENDING),
        ("cancel", Phase.CANCELLED),
        ("resume", Phase.PENDING),
    ):
        page = browser.post(reverse(f"task_{action}", args=[task.pk]), follow=True)
        task.refresh_from_db()
        assert (page.status_code, task.phase) == (200, phase)
    assert task.queued_at is not None


def test_a_button_that_comes_too_late_explains_itself(browser: Client) -> None:
    task = TaskFactory.create(phase=Phase.DONE)
    page = browser.post(reverse("task_cancel", args=[task.pk]), follow=True)
    assert "is done and cannot become cancelled" in page.text


def test_a_failure_is_shown_plainly(browser: Client) -> None:
    failure = "`make \x1b[1m<all>\x1b[0m` failed with exit 2.\n\x1b[31mNo rule\x1b[0m for <all>."
    task = TaskFactory.create(phase=Phase.FAILED, failure=failure)
    page = browser.get(page_of(task)).text
    assert "Why it failed" in page
    assert "<span><code>make &lt;all&gt;</code> failed with exit 2.</span>" in page
    assert "Resume with a message…" in page and 'id="message-failed"' in page
    assert '<span class="ansi-red">No rule</span> for &lt;all&gt;.</pre>' in page
    rows = browser.get(reverse("tasks")).text
    assert "<code>make &lt;all&gt;</code> failed with exit 2.</p>" in rows and "No rule" not in rows


def test_everything_that_others_wrote_is_harmless_on_the_page(browser: Client) -> None:
    item = {
        "question": HOSTILE,
        "header": HOSTILE,
        "options": [{"label": HOSTILE, "description": HOSTILE, "preview": HOSTILE}],
    }
    task = TaskFactory.create(phase=Phase.WAITING_FOR_INPUT, title=HOSTILE, body=HOSTILE, failure=HOSTILE)
    question = QuestionFactory.create(task=task, items=[item])
    text = {"text": HOSTILE}
    say(
        question.run,
        *((EventKind(kind), text) for kind in ("text", "thinking", "note", "error")),
        (EventKind.TOOL_USE, {"id": HOSTILE, "name": HOSTILE, "input": {"command": HOSTILE}}),
        (
            EventKind.TOOL_USE,
            {"id": "2", "name": "Edit", "input": {"file_path": HOSTILE, "old_string": HOSTILE}},
        ),
        (EventKind.TOOL_RESULT, {"tool_use_id": HOSTILE, "text": HOSTILE, "is_error": True}),
        (EventKind.QUESTION, {"question": HOSTILE, "number": HOSTILE}),
        (EventKind.ANSWER, {"text": HOSTILE, "by": HOSTILE, "via": HOSTILE}),
        (EventKind.CHECK, {"check": HOSTILE, "problem": HOSTILE, "output": HOSTILE, "exit_code": HOSTILE}),
        (EventKind.RESULT, {"text": HOSTILE, "is_error": True}),
    )
    at_work = RunFactory.create(task=TaskFactory.create(phase=Phase.RUNNING, title=HOSTILE))
    say(
        at_work,
        (EventKind.TEXT, text),
        (EventKind.TOOL_USE, {"name": HOSTILE, "input": {"command": HOSTILE}}),
    )
    for address in (
        page_of(task),
        "/tasks/",
        "/tasks/?group=working",
        "/tasks/all/",
        f"/questions/{question.pk}/",
    ):
        page = browser.get(address).text
        assert "&lt;script&gt;" in page
        for forbidden in ("<script>", "<img src=x", 'href="javascript'):
            assert forbidden not in page


def test_directions_that_agents_change_are_seen_on_pages_and_not_changed_in_forms(browser: Client) -> None:
    """R5: `⟨U+202E⟩` in question, options, calls, results and files; a choice is sent back as it was."""
    text = "safe\u202etxt.exe"
    item = {
        "question": text,
        "header": text,
        "options": [{"label": text, "description": text, "preview": text}],
    }
    task = TaskFactory.create(phase=Phase.WAITING_FOR_INPUT, title=text, body=text, failure=text)
    question = QuestionFactory.create(task=task, items=[item])
    say(
        question.run,
        *((EventKind(kind), {"text": text}) for kind in ("text", "thinking", "note", "error")),
        (EventKind.TOOL_USE, {"id": "1", "name": "Bash", "input": {"command": text}}),
        (EventKind.TOOL_USE, {"id": "2", "name": "Edit", "input": {"file_path": text, "old_string": text}}),
        (EventKind.TOOL_RESULT, {"tool_use_id": "1", "text": text, "is_error": True}),
        (EventKind.CHECK, {"check": text, "problem": text, "output": text}),
    )
    for address in (page_of(task), "/tasks/", f"/questions/{question.pk}/", "/inbox/"):
        page = browser.get(address).text
        assert "safe⟨U+202E⟩txt.exe" in page, address
        outside = re.sub(r"<(textarea)\b.*?</\1>|<[^>]*>", "", page, flags=re.DOTALL)
        assert "\u202e" not in outside
    page = browser.get(f"/questions/{question.pk}/").text
    assert f'value="{text}"' in page


def test_odd_events_do_not_break_the_page(browser: Client) -> None:
    run = RunFactory.create()
    say(run, *((kind, {}) for kind in EventKind), (EventKind.TOOL_USE, {"name": None, "input": "text"}))
    assert browser.get(page_of(run.step.task)).status_code == 200


def test_a_result_stands_with_its_call(browser: Client) -> None:
    run = RunFactory.create()
    say(
        run,
        (EventKind.TOOL_USE, {"id": "a", "name": "Bash", "input": {"command": "make test"}}),
        (EventKind.TOOL_USE, {"id": "b", "name": "Bash", "input": {"command": "make docs"}}),
        (EventKind.TOOL_RESULT, {"tool_use_id": "a", "text": "2 tests failed", "is_error": True}),
    )
    page = browser.get(page_of(run.step.task)).text
    calls = re.findall(r'<li class="entry entry-tool_use.*?</li>', page, re.S)
    assert "2 tests failed" in calls[0] and "entry-failed" in calls[0]
    assert "2 tests failed" not in calls[1] and "data-result-of" not in page


def test_what_follows_a_headline_is_its_context_and_not_shouted(browser: Client) -> None:
    """In the log and in the questions and answers, as on the card."""
    asked = "Which layout?\n\nThe printer has **42 columns**."
    question = QuestionFactory.create(items=[{**ROUNDING, "question": asked}])
    append(question.run, [NewEvent(EventKind.QUESTION, {"number": 1, "items": question.items})], seq=0)
    names = ("task", "task_questions")
    page = "".join(tidy(browser.get(reverse(name, args=[question.task_id])).text) for name in names)
    assert "**" not in re.sub(r' data-asked="[^"]*"', "", page), "what the card's script reads is no page"
    assert page.count("The printer has <strong>42 columns</strong>.") == 3
    assert page.count('<p class="said">Which layout?</p>') == 1
    asked_question = r'<p class="asked-question">(?:<span[^>]*>[^<]*</span>)? ?Which layout[?] …</p>'
    assert len(re.findall(asked_question, page)) == 1


def test_a_card_and_the_log_show_the_words_of_the_agent_in_their_order(browser: Client) -> None:
    """“How shall the check get it?” stood above the sentence that says what it is."""
    told = ("text-unidecode is missing.", "How shall the check get it?", "There is no `setup`.")
    question = QuestionFactory.create(items=[{**ROUNDING, "question": " ".join(told)}])
    append(question.run, [NewEvent(EventKind.QUESTION, {"number": 1, "items": question.items})], seq=0)
    for url in (reverse("question", args=[question.pk]), log_of(question.step.task)):
        page = tidy(re.sub(r"</?code>", "`", browser.get(url).text)).rpartition('id="log-box"')[2]
        places = [page.index(one) for one in told]
        assert places == sorted(places) and f">{told[1]}</" in page
    assert f"… {told[1]}" not in page
    shown = tidy(browser.get(reverse("inbox")).text)
    assert re.search(r"text-unidecode is missing\.</span> How shall the check get it", shown)


def test_where_a_run_begins_the_log_says_so_once(browser: Client) -> None:
    run = RunFactory.create()
    say(run, (EventKind.SYSTEM, {"subtype": "init"}), (EventKind.TEXT, {"text": "hello"}))
    task = run.step.task
    last = Event.objects.latest("pk")
    assert browser.get(page_of(task)).text.count('class="run-start"') == 1
    again = RunFactory.create(step=run.step, number=2, reason="answer")
    say(again, (EventKind.SYSTEM, {"subtype": "init"}))
    quiet = browser.get(log_of(task), {"after": last.pk}, headers=HTMX)
    assert "run-start" not in quiet.text
    say(again, (EventKind.TEXT, {"text": "on"}), (EventKind.UNKNOWN, {"type": "odd"}))
    part = browser.get(log_of(task), {"after": last.pk + 1}, headers=HTMX).text
    assert part.count('class="run-start"') == 1 and "run 2, resumed with an answer" in part


@pytest.mark.parametrize("query", ["after=x", "before=-1", "after=", "after=9999999999999999999999"])
def test_a_bad_place_in_the_log_is_404(browser: Client, query: str) -> None:
    assert browser.get(f"{log_of(TaskFactory.create())}?{query}").status_code == 404


def test_the_cost_of_a_task_page_does_not_grow_with_its_log(count_queries: Callable[[str], int]) -> None:
    run = RunFactory.create()
    task = run.step.task
    say(run, (EventKind.TEXT, {"text": "hello"}))
    few = count_queries(page_of(task))
    say(run, *((EventKind.TEXT, {"text": "hello"}) for _ in range(300)))
    for number in range(2, 9):
        say(RunFactory.create(step=run.step, number=number), (EventKind.TEXT, {"text": "hello"}))
    assert count_queries(page_of(task)) == few <= 18  # one of them: who watches it


def test_answers_are_listed_with_who_when_and_how(browser: Client, admin: User) -> None:
    question: Question = QuestionFactory.create(items=[ROUNDING, COLUMNS])
    answers = {"item-0": "Half up", "item-1": ["Name", "E-mail"], "notes": "hurry"}
    browser.post(reverse("question_answer", args=[question.pk]), answers)
    page = tidy(browser.get(reverse("task_questions", args=[question.task_id])).text)
    for part in ("Half up", "Name, E-mail", "hurry", "by Ada in the web", ROUNDING["question"]):
        assert part in page


def test_the_timeline_shows_runs_with_reason_outcome_and_cost(browser: Client) -> None:
    run = RunFactory.create(
        outcome="asked", input_tokens=200, cache_read_tokens=12_000, output_tokens=940, cost_usd=0.25
    )
    QuestionFactory.create(task=run.step.task, run=run)
    page = browser.get(reverse("task_timeline", args=[run.step.task_id])).text
    for part in ("first run", "the agent asked and stopped", "12.2k in, 940 out", "$0.25"):
        assert part in page
    for kind in ("output", "reasoning", "raw"):
        assert reverse("step_log", args=[run.step.task_id, 1, kind]) in page


def test_a_step_with_one_plain_run_says_its_cost_once(browser: Client) -> None:
    run = RunFactory.create(outcome="finished", input_tokens=200, cost_usd=0.25, ended_at=timezone.now())
    Step.objects.filter(pk=run.step_id).update(phase=Phase.DONE, started_at=timezone.now())
    page = browser.get(reverse("task_timeline", args=[run.step.task_id])).text
    assert page.count("$0.25") == 1 and "first run" not in page
    assert f"{reverse('task_log', args=[run.step.task_id])}?run={run.pk}" in page


def test_an_open_question_in_the_list_has_its_options_and_the_way_to_answer(browser: Client) -> None:
    question: Question = QuestionFactory.create()
    page = tidy(browser.get(reverse("task_questions", args=[question.task_id])).text)
    assert ROUNDING["options"][0]["label"] in page
    assert f"#question-{question.pk}" in page and "The agent asks" not in page


@pytest.mark.django_db(transaction=True)
def test_a_log_is_streamed_as_a_file(async_client: AsyncClient) -> None:
    """H8: downloadable, and never whole in memory."""
    run = RunFactory.create()
    said = [f"the <agent> spoke {number}" for number in range(1000)]
    say(run, *((EventKind.TEXT, {"text": text}) for text in said))
    async_client.force_login(UserFactory.create(is_superuser=True))

    async def download(kind: str) -> tuple[HttpResponseBase, list[bytes]]:
        file: HttpResponseBase = await async_client.get(reverse("step_log", args=[run.step.task_id, 1, kind]))
        assert isinstance(file, StreamingHttpResponse)
        parts = [part async for part in file]
        await sync_to_async(connections.close_all)()  # this loop's thread ends with it
        return file, parts

    for kind in ("output", "reasoning", "raw"):
        file, parts = asyncio.run(download(kind))
        assert file["Content-Type"] == "text/plain; charset=utf-8"
        name = f"task-{run.step.task_id}-step-1-{kind}.log"
        assert file["Content-Disposition"] == f'attachment; filename="{name}"'
        assert len(parts) > 1
        assert all(text in b"".join(parts).decode() for text in said)


# ---- changes ----


def test_the_diff_of_a_task_and_of_a_step_is_shown(browser: Client, project: Any, tmp_path: Path) -> None:
    source = GitRepository(tmp_path / "shop")
    base = source.git("rev-parse", "HEAD")
    middle = source.commit(**{"README.md": "# <shop>\n"})
    head = source.commit(**{"prices.py": "CENT = 1\n"})
    paths.repository(project).fetch()
    task = TaskFactory.create(project=project, base_commit=base, head_commit=head)
    task.steps.filter(position=1).update(base_commit=base, head_commit=middle)
    address = reverse("task_diff", args=[task.pk])
    whole, step = browser.get(address).text, browser.get(f"{address}?step=1", headers=HTMX).text
    whole, step = (re.sub("</?(mark|span)[^>]*>", "", page) for page in (whole, step))
    assert "# &lt;shop&gt;" in whole and "CENT = 1" in whole and "<html" in whole
    assert "# &lt;shop&gt;" in step and "CENT = 1" not in step and "<html" not in step
    fetch = f"git fetch {paths.repository(project).path} {task.branch}:{task.branch}"
    assert fetch in details_of(browser, task)


def test_a_large_file_is_loaded_when_it_is_wanted(browser: Client, project: Any, tmp_path: Path) -> None:
    source = GitRepository(tmp_path / "shop")
    base = source.git("rev-parse", "HEAD")
    name = "a [b] & c;.txt"
    head = source.commit(**{name: "".join(f"number {n}\n" for n in range(900)), "small.txt": "small\n"})
    paths.repository(project).fetch()
    task = TaskFactory.create(project=project, base_commit=base, head_commit=head)
    whole = browser.get(reverse("task_diff", args=[task.pk])).text
    assert "number 899" not in whole and "small</span>" in whole and "+900" in whole
    assert 'aria-label="Which changes"' not in whole, "without steps there is nothing to choose from"
    address = re.search(r'href="([^"]+)">Load 900 changed lines', whole)
    assert address
    part = browser.get(address[1].replace("&amp;", "&"), headers=HTMX).text
    assert "number 899" in part and "small</span>" not in part and "<html" not in part
    page = browser.get(address[1].replace("&amp;", "&")).text
    assert "<html" in page and "number 899" in page
    for missing in ("nothing.txt", "../../etc/passwd", "\0", ":(glob)*", "x" * 5000, ""):
        assert browser.get(reverse("task_diff", args=[task.pk]), {"file": missing}).status_code == 404


@pytest.fixture
def changed(project: Any, tmp_path: Path) -> Task:
    """A task of a sequence, with two steps that changed a text and made a file that is no text."""
    source = GitRepository(tmp_path / "shop")
    base = source.git("rev-parse", "HEAD")
    middle = source.commit(**{"README.md": "# shöp\n"})
    (source.path / "cat.png").write_bytes(bytes(range(256)) * 1000)
    head = source.commit()
    paths.repository(project).fetch()
    sequence = SequenceFactory.create(project=project, base_commit=base, head_commit=head)
    task = TaskFactory.create(project=project, sequence=sequence, base_commit=base, head_commit=head)
    task.steps.filter(position=1).update(base_commit=base, head_commit=middle)
    source.git("checkout", "--quiet", "--detach", base)
    return task


def _applied(patch: str, to: GitRepository) -> str:
    (to.path.parent / "it.patch").write_bytes(patch.encode("latin-1"))
    to.git("apply", "--index", "../it.patch")
    return to.git("write-tree")


@pytest.mark.parametrize("what", ["task", "sequence"])
def test_what_was_changed_can_be_taken_elsewhere_as_a_patch(
    browser: Client, changed: Task, tmp_path: Path, what: str
) -> None:
    """W2: a path on the portal's machine is of no use to who works on another."""
    source = GitRepository(tmp_path / "shop")
    number = changed.pk if what == "task" else changed.sequence_id
    address = reverse(f"{what}_patch", args=[number])
    page = browser.get(reverse("task_details" if what == "task" else what, args=[number])).text
    assert f'href="{address}" download' in page
    file = browser.get(address)
    assert file["Content-Type"] == "text/x-diff"
    assert file["Content-Disposition"] == f'attachment; filename="{what}-{number}.patch"'
    assert _applied(text_of(file, "latin-1"), source) == source.git(
        "rev-parse", f"{changed.head_commit}^{{tree}}"
    )


def test_the_patch_of_a_step_has_that_step_alone(browser: Client, changed: Task, tmp_path: Path) -> None:
    address = f"{reverse('task_patch', args=[changed.pk])}?step=1"
    assert address in browser.get(f"{reverse('task_diff', args=[changed.pk])}?step=1").text
    file = browser.get(address)
    assert file["Content-Disposition"] == f'attachment; filename="task-{changed.pk}-step-1.patch"'
    assert "shöp" in text_of(file) and "cat.png" not in text_of(browser.get(address))
    assert browser.get(f"{address}9").status_code == 404


def test_a_patch_that_cannot_be_made_says_why(browser: Client, project: Any) -> None:
    gone = TaskFactory.create(project=project, base_commit="a" * 40, head_commit="b" * 40)
    lost, nothing = "no longer has the commit aaaaaaaaaaaa", "There is nothing to compare yet."
    for task, why in ((gone, lost), (TaskFactory.create(), nothing)):
        answer = browser.get(reverse("task_patch", args=[task.pk]), follow=True)
        assert answer.redirect_chain == [(reverse("task", args=[task.pk]), 302)] and why in answer.text


def test_a_diff_that_cannot_be_made_says_why(browser: Client, project: Any) -> None:
    gone = TaskFactory.create(project=project, base_commit="a" * 40, head_commit="b" * 40)
    assert 'class="refusal"' in browser.get(reverse("task_diff", args=[gone.pk])).text
    nothing = reverse("task_diff", args=[TaskFactory.create().pk])
    assert "No changes yet" in browser.get(nothing).text
    assert browser.get(f"{nothing}?step=x").status_code == browser.get(f"{nothing}?step=9").status_code == 404


def details_of(browser: Client, task: Task) -> str:
    return browser.get(reverse("task_details", args=[task.pk])).text


def test_a_task_on_the_projects_own_branch_says_so(browser: Client) -> None:
    own, other = TaskFactory.create(checkout="trunk"), TaskFactory.create()
    said = "the project’s own branch"
    assert f'{said} <span class="machine">trunk</span>' in details_of(browser, own)
    assert said not in details_of(browser, other)


def test_h9_what_a_script_said_is_marked_also_where_a_real_model_works_now(browser: Client) -> None:
    """A task that was begun in a terminal without a key looked like one of the real model."""
    real = QuestionFactory.create()
    assert ">rehearsal<" not in browser.get(f"/tasks/{real.task_id}/").text
    rehearsed = QuestionFactory.create()
    Run.objects.filter(pk=rehearsed.run_id).update(rehearsed=True)
    page = browser.get(f"/tasks/{rehearsed.task_id}/").text
    assert page.count(">rehearsal<") == 2 and "a script played the model" in page
    assert ">rehearsal<" in browser.get(f"/questions/{rehearsed.pk}/").text
