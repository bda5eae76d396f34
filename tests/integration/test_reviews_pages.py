"""Reviewing on the page: comments beside lines, the draft, sending it (V3, V4, V5)."""

from __future__ import annotations

import re
import uuid
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from tasks_app.core.phases import Phase
from tasks_app.models import Review, ReviewThread, Role, Step, StepKind, Task, ThreadState, User
from tests.browser import signed_in
from tests.factories import MembershipFactory
from tests.fake_script import Turn, say, write
from tests.runner import Runner

HTMX: dict[str, Any] = {"headers": {"HX-Request": "true"}}


@pytest.fixture
def task(runner: Runner) -> Task:
    changes = [Turn(calls=(write("paint.txt", "red\ngreen\n"),)), say("Painted.")]
    task = runner.advance(runner.task(changes))
    assert task.phase == Phase.DONE
    return task


@pytest.fixture
def browser(runner: Runner) -> Client:
    return signed_in(runner.user)


def post(browser: Client, name: str, *args: object, htmx: bool = True, **fields: object) -> Any:
    return browser.post(reverse(name, args=args), fields, **(HTMX if htmx else {}))


def add(browser: Client, task: Task, text: str, **fields: Any) -> Any:
    place: dict[str, Any] = {
        "path": "paint.txt",
        "side": "new",
        "line": 1,
        "commit": task.head_commit,
        **fields,
    }
    return post(browser, "thread_add", task.pk, text=text, **place)


def diff_page(browser: Client, task: Task, query: str = "") -> str:
    page = browser.get(reverse("task_diff", args=[task.pk]) + query)
    assert page.status_code == 200
    return str(page.text)


def test_a_comment_stands_beside_its_line_and_only_its_author_sees_the_draft(
    browser: Client, task: Task
) -> None:
    answer = add(browser, task, "Why **red**?")
    assert answer.status_code == 200 and answer["HX-Trigger"] == "catherder:review"
    assert "Why <strong>red</strong>?" in answer.text and "only you see it" in answer.text
    page = diff_page(browser, task)
    assert re.search(r'data-side="new" data-line="1".*?Why <strong>red', page, re.DOTALL)
    assert "· 1 draft" in page
    other = MembershipFactory.create(project=task.project).user
    assert "Why <strong>red" not in diff_page(signed_in(other), task)


def test_v5_changes_are_requested_and_fetched_only_once_there_are_some(browser: Client, task: Task) -> None:
    def offered() -> tuple[bool, bool]:
        page = browser.get(reverse("task_details", args=[task.pk])).text
        return 'value="request_changes"' in diff_page(browser, task), "To fetch the branch" in page

    Task.objects.update(phase=Phase.WAITING_FOR_INPUT)
    assert offered() == (True, True)
    assert "waits for an answer" in diff_page(browser, task), "why it cannot be approved"
    Task.objects.update(head_commit=task.base_commit)
    Step.objects.update(kind=StepKind.CLARIFY)
    assert offered() == (False, False)
    assert 'id="review-form"' not in diff_page(browser, task, "?step=1"), "there is nothing to review"
    Task.objects.update(phase=Phase.DONE)  # then a person may say that something is missing
    assert offered() == (True, False)
    Task.objects.update(phase=Phase.CANCELLED)  # the service refuses it
    assert offered() == (False, False)


def test_v5_a_review_is_offered_only_once_there_is_something_to_review(browser: Client, task: Task) -> None:
    def offered() -> bool:
        return 'id="review-form"' in diff_page(browser, task)

    Task.objects.update(phase=Phase.WAITING_FOR_INPUT)
    assert offered()
    add(browser, task, "Why?")
    Task.objects.update(head_commit=task.base_commit)
    assert offered(), "there is a draft to send"
    ReviewThread.objects.all().delete()
    assert not offered()


def test_a_draft_is_edited_removed_and_sent(browser: Client, task: Task) -> None:
    add(browser, task, "One.")
    add(browser, task, "Two.", line=2)
    first, second = ReviewThread.objects.order_by("pk")
    assert "Better." in post(browser, "thread_change", task.pk, first.pk, text="Better.").text
    assert post(browser, "thread_remove", task.pk, second.pk).content == b""
    key = str(uuid.uuid4())
    for _ in range(2):  # sent twice
        sent = post(
            browser, "review_send", task.pk, verdict="request_changes", body="Nearly.", form_key=key,
            commit=task.head_commit,
        )  # fmt: skip
        assert sent["HX-Redirect"] == reverse("task", args=[task.pk])
    task.refresh_from_db()
    assert (task.phase, Review.objects.count(), ReviewThread.objects.count()) == (Phase.PENDING, 1, 1)
    assert "ann</strong> requested changes" in browser.get(reverse("review_part", args=[task.pk])).text


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"line": 99}, "no line 99"),
        ({"line": "x"}, "not the number of a line"),
        ({"path": "nope"}, "no file"),
    ],
)
def test_a_refusal_stands_at_the_form(
    browser: Client, task: Task, fields: dict[str, object], reason: str
) -> None:
    answer = add(browser, task, "?", **fields)
    assert answer.status_code == 400 and reason in answer.text
    assert answer["HX-Retarget"] == "find .thread-refusal"
    assert not ReviewThread.objects.exists()


def test_a_refused_review_keeps_the_draft(browser: Client, task: Task) -> None:
    add(browser, task, "Look at this.")
    Task.objects.update(head_commit=task.base_commit)  # the code has changed since
    answer = post(browser, "review_send", task.pk, verdict="approve", commit=task.head_commit)
    assert answer.status_code == 409 and "has changed since you looked" in answer.text
    assert answer["HX-Retarget"] == "find .thread-refusal"
    assert Review.objects.drafts().get().threads.count() == 1
    assert post(browser, "review_send", task.pk, verdict="like it").status_code == 400


def test_replies_and_resolving_on_the_page(browser: Client, task: Task) -> None:
    add(browser, task, "Why?")
    post(browser, "review_send", task.pk, verdict="comment")
    assert "And why not?" in post(browser, "thread_reply", task.pk, 1, text="And why not?").text
    assert "Reopen" in post(browser, "thread_resolve", task.pk, 1).text
    thread = ReviewThread.objects.get()
    assert thread.state == ThreadState.RESOLVED
    assert "Resolve" in post(browser, "thread_resolve", task.pk, 1, reopen="yes").text
    assert post(browser, "thread_reply", task.pk, 1, text=" ").status_code == 400


def test_without_javascript_a_form_leads_back(browser: Client, task: Task) -> None:
    place = {"path": "paint.txt", "line": 1, "text": "Hm."}
    sent = browser.post(reverse("thread_add", args=[task.pk]), place)
    assert (sent.status_code, sent["Location"]) == (302, reverse("task_diff", args=[task.pk]))
    sent = browser.post(reverse("review_send", args=[task.pk]), {"verdict": "comment"}, follow=True)
    assert "Your review was sent." in sent.text


def test_since_my_last_review_shows_only_what_changed_since(
    browser: Client, task: Task, runner: Runner
) -> None:
    add(browser, task, "Blue, please.")
    post(browser, "review_send", task.pk, verdict="request_changes")
    runner.fake.script = lambda prompt: [
        Turn(calls=(write("paint.txt", "red\ngreen\n"),)),
        say("Painted."),
        Turn(calls=(write("blue.txt", "blue\n"),)),
        say("Blue."),
    ]
    runner.advance(task)
    page = diff_page(browser, task)
    assert "Since my last review" in page and "paint.txt" in page and "blue.txt" in page
    since = diff_page(browser, task, "?since=1")
    assert "blue.txt" in since and 'data-path="paint.txt"' not in since
    assert browser.get(reverse("task_diff", args=[task.pk]) + "?since=9").status_code == 404
    task.refresh_from_db()
    post(browser, "review_send", task.pk, verdict="comment", body="Fine.", commit=task.head_commit)
    assert "Since my last review" not in diff_page(browser, task), "nothing has changed since that one"


def test_a_viewer_reads_threads_and_gets_no_form(browser: Client, task: Task) -> None:
    add(browser, task, "Why?")
    post(browser, "review_send", task.pk, verdict="comment")
    viewer: User = MembershipFactory.create(project=task.project, role=Role.VIEWER).user
    page = diff_page(signed_in(viewer), task)
    assert "Why?" in page and "review-form" not in page and "new-thread" not in page
    assert add(signed_in(viewer), task, "Mine.").status_code == 403
    refused = post(signed_in(viewer), "review_send", task.pk, verdict="comment", body="Mine.")
    assert refused.status_code == 403 and refused["HX-Retarget"] == "find .thread-refusal"
    assert "does not allow" in refused.text or "may not" in refused.text


def test_what_agents_and_people_write_is_text(browser: Client, task: Task) -> None:
    """R4"""
    answer = add(browser, task, "<script>alert(1)</script><img src=x onerror=alert(1)>")
    assert "<script>alert" not in answer.text and "<img" not in answer.text
