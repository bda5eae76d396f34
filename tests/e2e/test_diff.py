"""The diff page in a browser: the tree, files that load, threads that appear while somebody writes."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.conftest import SignIn
from tests.portal import UpPortal

pytestmark = pytest.mark.browser

#: A done task whose result adds 30 files, made with git alone.
RESULT = """
from tasks_app.core.phases import Phase
from tasks_app.models import paths
from tasks_app.permissions import Principal
from tasks_app.services.tasks import create_task
project = Project.objects.get(name="sample")
admin = Principal.unrestricted(User.objects.get(username="admin"))
task = create_task(project, "# Thirty files", by=admin, where="test")
git = paths.repository(project).git
identity = ("-c", "user.name=x", "-c", "user.email=x@example.org")

def commit(content):
    blob = git.run("hash-object", "-w", "--stdin", stdin=content).decode().strip()
    entries = "".join(f"100644 blob {blob}\\tfile{n:02}.py\\n" for n in range(30)).encode()
    tree = git.run("mktree", stdin=entries).decode().strip()
    return git.run(*identity, "commit-tree", tree, "-m", "x").decode().strip()

base = commit(b"one = 1\\ntwo = 2\\n")
head = commit(b"one = 1\\ntwo = 3\\n" + b"more = 4\\n" * 40)
Task.objects.filter(pk=task.pk).update(phase=Phase.DONE, base_commit=base, head_commit=head)
result = task.pk
"""
#: Somebody else sends a review with a thread on line 2 of the first file, and one on the whole result.
REVIEW = """
from tasks_app.models import Channel, ReviewVerdict
from tasks_app.permissions import Principal
from tasks_app.services.reviews import NewThread, send_review
task = Task.objects.get(pk={task})
other, _ = User.objects.get_or_create(username="reviewer", is_superuser=True)
threads = [NewThread("Why three?", "file00.py", line=2), NewThread("Thirty files?")]
by = Principal.unrestricted(other)
send_review(task, ReviewVerdict.COMMENT, by=by, via=Channel.WEB, threads=threads)
"""


@pytest.fixture
def diff(portal: UpPortal, sign_in: SignIn) -> tuple[int, Page]:
    task = portal.rows(RESULT)
    page = sign_in(portal)
    page.goto(f"{portal.url}/tasks/{task}/diff/")
    return task, page


def test_files_load_when_they_come_into_view_and_viewed_ones_are_folded(diff: tuple[int, Page]) -> None:
    """V2: with the keyboard in the tree."""
    _, page = diff
    last = page.locator(".file-box", has_text="file29.py")
    expect(last.locator(".dl")).to_have_count(0)
    page.locator(".tree-filter").fill("29")
    expect(page.locator(".tree-row:visible")).to_have_count(1)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(last.locator(".dl-add")).to_have_count(41)
    expect(last.locator(".s-n").first).to_have_text("1")
    last.get_by_role("checkbox").check()
    expect(last.locator(".dl").first).to_be_hidden()
    expect(page.locator("#viewed-count")).to_have_text("1/30 viewed")
    page.reload()
    expect(last.get_by_role("checkbox")).to_be_checked()
    expect(last.locator("details")).not_to_have_attribute("open", "")


def test_a_mark_that_is_refused_is_not_shown(portal: UpPortal, diff: tuple[int, Page]) -> None:
    """V2: the file was changed since the page was loaded, of which the page was not told."""
    task, page = diff
    page.wait_for_load_state("networkidle")
    page.route("**/diff/threads/", lambda route: route.abort())  # or it would show the new result at once
    portal.rows(
        "from django.db.models import F\n"
        f"Task.objects.filter(pk={task}).update(base_commit=F('head_commit'), head_commit=F('base_commit'))"
    )
    file = page.locator(".file-box", has_text="file00.py")
    file.get_by_role("checkbox").click()
    expect(page.locator(".diff-news")).to_contain_text("file00.py has changed since this page was loaded.")
    expect(file.get_by_role("checkbox")).not_to_be_checked()
    expect(file.locator(".dl").first).to_be_visible()
    page.locator(".diff-news button").click()
    expect(page.locator(".diff-news")).to_be_hidden()


def test_a_refused_review_says_why(portal: UpPortal, diff: tuple[int, Page]) -> None:
    """V3: also where the portal has no words for it, and what was typed stays."""
    task, page = diff
    page.locator("#review-title").click()
    body = page.locator("#review-body")
    body.fill("Nearly there.")
    page.route("**/review/send/", lambda route: route.abort())
    page.get_by_role("button", name="Comment", exact=True).click()
    expect(page.locator("#review-form .refusal")).to_contain_text("could not be reached")
    page.unroute("**/review/send/")
    portal.rows(f"Task.objects.filter(pk={task}).update(head_commit=Task.objects.get(pk={task}).base_commit)")
    page.get_by_role("button", name="Approve", exact=True).click()
    expect(page.locator("#review-form .refusal")).to_contain_text("has changed since you looked")
    expect(body).to_have_value("Nearly there.")


def test_threads_of_others_appear_while_somebody_writes(portal: UpPortal, diff: tuple[int, Page]) -> None:
    """V3: live for everybody who looks; what is being typed stays, through a reload too."""
    task, page = diff
    file = page.locator(".file-box", has_text="file00.py")
    file.locator(".dl[data-line='1'] .dn").first.click()
    page.keyboard.type("half a comm")
    portal.rows(REVIEW.format(task=task))
    expect(file.locator(".dl[data-line='2'] + .thread")).to_contain_text("Why three?")
    expect(page.locator(".threads-elsewhere")).to_contain_text("Thirty files?")
    expect(page.locator(".diff-news")).to_contain_text("2 threads were updated.")
    expect(page.locator(".tree-row", has_text="file00.py").locator(".tree-threads")).to_have_text("1")
    form = page.locator(".thread-form[data-new] textarea")
    expect(form).to_have_value("half a comm")
    assert form.evaluate("one => one === document.activeElement")

    reply = file.locator(".thread details")
    reply.locator("summary").click()
    reply.locator("textarea").fill("Because")
    portal.rows(
        f"thread = ReviewThread.objects.get(task={task}, number=1)\n"
        "ThreadComment.objects.create(thread=thread, author=thread.review.author, text='Never mind.')\n"
        f"Change.objects.create(task_id={task}, kind='task')"
    )
    expect(file.locator(".thread-open")).to_contain_text("Never mind.")
    expect(reply.locator("textarea")).to_have_value("Because")
    page.reload()
    expect(reply.locator("textarea")).to_have_value("Because")
    expect(form).to_have_value("half a comm")


def test_a_file_and_the_whole_result_are_commented_on(diff: tuple[int, Page]) -> None:
    """V3"""
    _, page = diff
    file = page.locator(".file-box", has_text="file01.py")
    file.locator("[data-comment-file]").click()
    page.keyboard.type("About this file.")
    page.keyboard.press("Control+Enter")
    expect(file.locator(".thread-draft")).to_contain_text("About this file.")
    page.locator("#review-title").click()
    page.locator("[data-comment-whole]").click()
    page.keyboard.type("About it all.")
    page.keyboard.press("Control+Enter")
    expect(page.locator("#drafted")).to_contain_text("2 drafts")
    page.locator("#review-title").click()
    page.get_by_role("button", name="Comment", exact=True).click()
    page.wait_for_url("**/tasks/*/")
    page.get_by_role("link", name="Changes", exact=True).click()
    expect(page.locator(".threads-elsewhere")).to_contain_text("About it all.")
    expect(file.locator(".thread-open")).to_contain_text("About this file.")


def test_a_review_is_done_from_the_keyboard(diff: tuple[int, Page]) -> None:
    """V2: files with ] and [, changes with n and p, v for viewed, c for a comment."""
    _, page = diff
    boxes = page.locator(".file-box")
    page.locator("main").focus()
    page.keyboard.press("]")
    expect(boxes.nth(0).locator("summary")).to_be_focused()
    page.keyboard.press("]")
    expect(boxes.nth(1).locator("summary")).to_be_focused()
    page.keyboard.press("[")
    page.keyboard.press("v")
    expect(page.locator("#viewed-count")).to_have_text("1/30 viewed")
    expect(boxes.nth(0).get_by_role("checkbox")).to_be_checked()
    page.keyboard.press("n")
    expect(page.locator(".dl.is-chosen")).to_be_in_viewport()
    page.keyboard.press("c")
    expect(page.locator(".thread-form textarea")).to_be_focused()
    page.keyboard.type("n is a letter here")
    expect(page.locator(".thread-form textarea")).to_have_value("n is a letter here")
    bar = page.locator(".diff-bar")
    expect(bar).to_be_in_viewport()
    page.locator("#review-title").click()
    expect(page.get_by_role("button", name="Approve and publish")).to_be_visible()
