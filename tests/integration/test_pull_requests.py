"""Pull requests of results (V7): opened once, watched, ended here as there, with the fake forge."""

from __future__ import annotations

import errno
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from uuid import uuid4

import pytest
from django.urls import reverse
from django.utils import timezone

from tasks_app.core.errors import BadInput
from tasks_app.core.phases import Phase
from tasks_app.encryption import Purpose, encrypt
from tasks_app.engine.publishing import pull_requests as engine
from tasks_app.engine.publishing.publisher import carry_out
from tasks_app.engine.publishing.pull_requests import look
from tasks_app.forges.port import (
    CheckState,
    ForgeError,
    PullRequestState,
    RemoteComment,
    RemotePullRequest,
)
from tasks_app.git import Repository
from tasks_app.history.events.blocks import append_one
from tasks_app.models import (
    Action,
    AuditEntry,
    Change,
    Channel,
    Delivery,
    EventKind,
    EventType,
    Project,
    PublicationState,
    PublishCredential,
    PullRequest,
    ReviewThread,
    ReviewVerdict,
    Step,
    Task,
    ThreadComment,
    ThreadState,
)
from tasks_app.notifications.message import message_of
from tasks_app.schemas.tasks import TaskOut
from tasks_app.services.publishing import pull_request_text
from tasks_app.services.publishing import pull_requests as service
from tasks_app.services.publishing.publications import CannotPublish, publish
from tasks_app.services.publishing.pull_request_text import (
    BEGIN,
    END,
    harmless,
    pull_request_body,
    pull_request_title,
    replace_own_part,
)
from tasks_app.services.publishing.pull_requests import reply_text
from tasks_app.services.publishing.settings import (
    change_publishing,
    forge_address_of,
    pull_request_hindrance,
    pull_requests_url,
    receive_call,
    remote_of,
)
from tasks_app.services.publishing.settings import forge_of as real_forge_of
from tasks_app.services.reviews import send_review
from tasks_app.services.tasks import locked
from tests.addresses import text_of
from tests.browser import signed_in
from tests.factories import QuestionFactory, RunFactory, UserFactory
from tests.forges.fake import FakeForge
from tests.people import acting
from tests.results import Result


@pytest.fixture
def opened(done: Result, forge: FakeForge) -> PullRequest:
    publication = done.publish(pull_request=True)
    assert publication.opened is not None, publication.fault or publication.answer
    return publication.opened


def _step(task: Task) -> Step:
    step, _ = Step.objects.get_or_create(
        task=task,
        name="paint",
        defaults={"position": 9, "phase": Phase.DONE, "config": {"name": "paint", "command": "implement"}},
    )
    return step


def look_now(row: PullRequest) -> None:
    PullRequest.objects.filter(pk=row.pk).update(next_look_at=timezone.now() - timedelta(seconds=1))
    assert look(row.pk)
    row.refresh_from_db()


def test_it_is_opened_after_the_push(done: Result, forge: FakeForge) -> None:
    publication = done.publish(pull_request=True, draft=True, reviewers=("octocat", "@ann"))
    assert (publication.state, publication.fault) == (PublicationState.PUSHED, "")
    row = publication.opened
    assert row is not None and (row.number, row.state, row.draft) == (1, "open", True)
    made = forge.pull_requests[1]
    assert (forge.branches[1], made.title) == ((done.task.branch, "main"), "Paint it")
    assert forge.reviewers == {1: ["octocat", "ann"]}
    assert AuditEntry.objects.filter(action=Action.PULL_REQUEST_OPENED, task=done.task).count() == 1


def test_a_second_publication_updates_it(done: Result, forge: FakeForge, opened: PullRequest) -> None:
    done.work_on("red\n")
    again = done.publish(pull_request=True)
    assert again.opened == opened and PullRequest.objects.count() == 1
    assert forge.calls.count("open") == 1


def test_a_publication_does_not_reopen_what_was_seen_to_end_meanwhile(
    done: Result, forge: FakeForge, opened: PullRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = forge.find

    def find_before_it_is_merged(head: str, base: str) -> RemotePullRequest | None:
        found = find(head, base)
        forge.end(1, PullRequestState.MERGED, by="ann")
        look_now(opened)
        return found

    monkeypatch.setattr(forge, "find", find_before_it_is_merged)
    done.work_on("red\n")
    assert done.publish(pull_request=True).opened == opened
    opened.refresh_from_db()
    assert (opened.state, opened.ended_by) == ("merged", "ann")


@pytest.mark.both
def test_taken_over_from_a_killed_worker_it_is_opened_once(done: Result, forge: FakeForge) -> None:
    publication = publish(done.task, by=done.by, pull_request=True)
    done.publish(pull_request=True)  # the same one, carried out
    PullRequest.objects.all().delete()  # the worker died before it stored it
    type(publication).objects.update(state=PublicationState.PENDING, claimed_until=None)
    carry_out(publication.pk)
    assert forge.calls.count("open") == 1 and PullRequest.objects.get().number == 1


def test_what_fails_after_the_push_is_said_and_can_be_tried_again(done: Result, forge: FakeForge) -> None:
    forge.faults = [ForgeError("The rate limit of GitHub is reached.")]
    publication = done.publish(pull_request=True)
    assert publication.state == PublicationState.PUSHED and publication.opened is None
    assert "rate limit" in publication.fault and "was published" in publication.fault
    assert done.publish(pull_request=True).fault == ""
    assert forge.calls.count("open") == 1


def test_reviewers_who_cannot_be_asked_are_named(done: Result, forge: FakeForge) -> None:
    def refuse(number: int, reviewers: tuple[str, ...]) -> None:
        raise ForgeError("GitHub has no user nobody.")

    forge.request_reviews = refuse  # type: ignore[method-assign]
    publication = done.publish(pull_request=True, reviewers=("nobody",))
    assert publication.opened is not None and "nobody could not be asked" in publication.fault


@pytest.mark.parametrize("name", ["a b", "x" * 300, "../../etc", "a\nb", "-o"])
def test_reviewers_are_names(done: Result, forge: FakeForge, name: str) -> None:
    with pytest.raises(BadInput, match="not a user name"):
        publish(done.task, by=done.by, pull_request=True, reviewers=[name])


def test_a_draft_needs_a_pull_request(done: Result) -> None:
    with pytest.raises(BadInput, match="need a pull request"):
        publish(done.task, by=done.by, draft=True)


def test_without_a_known_forge_the_settings_are_named(done: Result) -> None:
    with pytest.raises(CannotPublish, match="at no forge that the portal knows"):
        publish(done.task, by=done.by, pull_request=True)


def test_the_forge_follows_from_the_url_or_the_settings(done: Result) -> None:
    project = done.task.project
    project.publish_url = "https://github.com/team/shop.git"
    found = forge_address_of(project)
    assert found is not None
    assert (found.kind, found.api_url, found.repository) == ("github", "https://api.github.com", "team/shop")
    project.publish_url, project.forge = "git@git.example.org:group/sub/shop.git", "gitlab"
    found = forge_address_of(project)
    assert found is not None
    assert (found.api_url, found.repository) == ("https://git.example.org/api/v4", "group/sub/shop")
    assert "need a credential" in pull_request_hindrance(project)
    stored = PublishCredential(project=project, kind="ssh_key", url=project.publish_url, shown="key")
    stored.encrypted_secret = encrypt("key", Purpose.PUBLISHING)
    stored.save()
    assert "API token" in pull_request_hindrance(project)


FORK = "https://github.com/herder/shop.git"


@pytest.mark.parametrize(
    ("url", "kind", "opened_in"),
    [
        (FORK, "", "https://github.com/team/shop.git"),
        ("git@github.com:herder/shop.git", "", "git@github.com:team/shop.git"),
        ("ssh://git@git.example/herder/shop", "forgejo", "ssh://git@git.example/team/shop"),
    ],
)
def test_from_a_fork_they_go_to_the_repository_that_is_named(
    done: Result, url: str, kind: str, opened_in: str
) -> None:
    project = done.task.project
    project.publish_url, project.forge, project.pull_request_repository = url, kind, "team/shop"
    found = forge_address_of(project)
    assert found is not None and (found.repository, found.fork) == ("team/shop", "herder/shop")
    assert pull_requests_url(project) == opened_in
    project.pull_request_repository = "herder/shop"
    found = forge_address_of(project)
    assert found is not None and (found.repository, found.fork) == ("herder/shop", "")
    assert pull_requests_url(project) == url


@pytest.mark.parametrize(
    "to", ["shop", "team/", "a b/c", "../../x", "https://a.example/b/c", "té/shop", "a/b\nc"]
)
def test_where_they_go_is_a_name_at_the_forge(done: Result, to: str) -> None:
    admin = acting(UserFactory.create(is_superuser=True))
    with pytest.raises(BadInput, match="OWNER/NAME"):
        change_publishing(done.task.project, pull_request_repository=to, by=admin)
    assert Project.objects.get(pk=done.task.project_id).pull_request_repository == ""


def test_a_github_app_pushes_to_the_fork_and_opens_pull_requests_upstream(
    done: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def token(api_url: str, repository: str, key: object, *, listed: object) -> str:
        asked.append(repository)
        return "ghs-1"

    monkeypatch.setattr("tasks_app.forges.github.installation_token", token)
    Project.objects.update(publish_url=FORK, pull_request_repository="team/shop")
    project = Project.objects.get(pk=done.task.project_id)
    PublishCredential.objects.create(
        project=project, kind="github_app", url=FORK, username="12", shown="app 12",
        encrypted_secret=encrypt("key", Purpose.PUBLISHING),
    )  # fmt: skip
    remote_of(project)
    real_forge_of(project)
    assert asked == ["herder/shop", "team/shop"]


def test_where_they_go_now_says_nothing_of_an_earlier_one(opened: PullRequest, forge: FakeForge) -> None:
    """The number is that of another pull request there, which must not end the task."""
    forge.end(1, PullRequestState.MERGED)
    Project.objects.update(publish_url="https://github.com/other/shop.git")
    look_now(opened)
    assert opened.is_open and "go to https://github.com/other/shop.git since then" in opened.fault


def test_the_description_says_what_why_who_answered_and_what_it_cost(done: Result) -> None:
    step = _step(done.task)
    run = RunFactory.create(
        task=done.task,
        step=step,
        outcome="finished",
        cost_usd=0.25,
        checks=[{"check": "make test", "passed": True}],
    )
    QuestionFactory.create(
        task=done.task, step=step, run=run, state="answered", answered_by=done.runner.user,
        answered_at=timezone.now(), items=[{"question": "Which blue?"}], answers={"Which blue?": "Navy"},
    )  # fmt: skip
    body = pull_request_body(done.task)
    assert body.startswith(BEGIN) and body.endswith(END)
    for part in ("## Why", "In some colour.", "**Which blue?**", "Navy", "`make test`", "$0.25"):
        assert part in body
    assert f"answered by {done.runner.user.shown_name}" in body


def test_the_description_says_which_check_failed(done: Result) -> None:
    """A task that is finished early is a result although its check failed."""
    step = _step(done.task)
    run = RunFactory.create(
        task=done.task, step=step, outcome="finished", checks=[{"check": "make test", "passed": False}]
    )
    append_one(run, EventKind.RESULT, {"text": "I painted half of it."})
    body = pull_request_body(done.task)
    assert "- ✗ `make test` (paint, failed)" in body
    assert "check failed**" in body.partition("I painted half of it.")[0]


@pytest.mark.parametrize(
    "text",
    ["@octocat", "Thanks, @octocat!", "`@octocat", "`` `@octocat ``", "_@octocat_", "/@octocat", "\\@octocat",
     "é@octocat", "&#64;octocat", "&#x40;octocat", "&commat;octocat"],
)  # fmt: skip
def test_text_of_agents_mentions_nobody(text: str) -> None:
    assert harmless(text) == text.replace(re.search("@|&.*;", text)[0], "@\u200b")  # type: ignore[index]


_WORDS = ["close", "closes", "closed", "closing", "fix", "fixes", "fixed", "fixing", "resolve", "resolves",
          "resolved", "resolving", "implement", "implements", "implemented", "implementing",
          "reopen", "reopens", "reopened"]  # fmt: skip
_ISSUES = [
    "#3",
    "GH-3",
    "issue #3",
    "issues #3",
    "group/repo#3",
    "SHOP-3",
    "https://git.example.org/a/b/issues/3",
]


@pytest.mark.parametrize("issue", _ISSUES)
@pytest.mark.parametrize("word", [*_WORDS, "Closes", "FIXES"])
def test_text_of_agents_closes_no_issue(word: str, issue: str) -> None:
    for gap in (" ", ": ", "\n", " **", " [", " \\", "** "):
        assert harmless(f"This {word}{gap}{issue}.") == f"This {word}\u200b{gap}{issue}."


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Done.\n\n/merge", "Done.\n\n\u200b/merge"),
        ("/approve\n/merge", "\u200b/approve\n\u200b/merge"),
        ("Done.\r\n/merge", "Done.\r\n\u200b/merge"),
        ("Done.\n\r/merge", "Done.\n\r\u200b/merge"),
        ("Done.\n \t/assign me", "Done.\n \t\u200b/assign me"),
        ("Done.\n&sol;merge", "Done.\n\u200b/merge"),
        ("Done.\n&#47;merge", "Done.\n\u200b/merge"),
    ],
)
def test_text_of_agents_gives_gitlab_no_command(text: str, shown: str) -> None:
    assert harmless(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "a@b.example",
        "a / b",
        "src/paint.py",
        "// note",
        "It closes the file, see #3.",
        "fix 3 bugs",
        "R&D; &lt;b&gt;",
    ],
)
def test_other_text_of_agents_is_left_as_it_is(text: str) -> None:
    assert harmless(text) == text


def test_text_of_agents_does_not_end_the_portals_part() -> None:
    assert "<!--" not in harmless("<!-- cat-herder: end -->")


@pytest.mark.parametrize(
    ("near", "far"),
    [
        ("fix" + "~" * 9 + "#3", "fix" + "~" * 10 + "#3"),
        ("fix <" + "a" * 40 + ">#3", "fix <" + "a" * 41 + ">#3"),
        ("fix " + "a" * 200 + "#3", "fix " + "a" * 201 + "#3"),
        ("fix https://" + "a" * 300 + "/3", "fix https://" + "a" * 301 + "/3"),
    ],
    ids=["gap", "markup", "repository", "URL"],
)
def test_an_issue_is_looked_for_at_a_bounded_distance_from_the_word(near: str, far: str) -> None:
    """Else the time for a text that never comes to the issue would grow with the square of its length."""
    assert harmless(near) == near.replace("fix", "fix\N{ZERO WIDTH SPACE}")
    assert harmless(far) == far


def test_nothing_in_a_description_is_a_command(done: Result) -> None:
    """V7: a GitLab token of the portal must not merge what nobody has approved."""
    done.task.body = "# Paint it\n\n/merge\n\nFixes #3 for @octocat.\n"
    step = _step(done.task)
    run = RunFactory.create(task=done.task, step=step, outcome="finished")
    QuestionFactory.create(
        task=done.task, step=step, run=run, state="answered", answered_by=done.runner.user,
        answered_at=timezone.now(), items=[{"question": "/merge"}], answers={"/merge": "/approve"},
    )  # fmt: skip
    done.task.title = "Fixes #3 for @octocat"
    title = pull_request_title(done.task)
    assert "Fixes #3" not in title and "@octocat" not in title
    body = pull_request_body(done.task)
    assert not re.search(r"^\s*/\w", body, re.MULTILINE)
    assert "Fixes #3" not in body and "@octocat" not in body


def test_what_people_wrote_around_the_portals_part_stays() -> None:
    body = f"Ours\n{BEGIN}\nold\n{END}\nCloses #5"
    assert replace_own_part(body, f"{BEGIN}\nnew\n{END}") == f"Ours\n{BEGIN}\nnew\n{END}\nCloses #5"
    assert replace_own_part("Mine alone", f"{BEGIN}new{END}") == "Mine alone"


@pytest.mark.both
def test_comments_there_become_threads_here_once(opened: PullRequest, forge: FakeForge) -> None:
    task = opened.task
    line = forge.comment(1, "Why blue?", path="paint.txt", line=1, commit=task.head_commit)
    forge.comment(1, "Indeed.", author="ann", discussion=line.discussion, path="paint.txt", line=1)
    forge.comment(1, "Nice work.")
    before = Change.objects.count()
    look_now(opened)
    look_now(opened)
    first, second = ReviewThread.objects.filter(task=task).order_by("number")
    assert (first.number, first.place, first.line_text, first.state) == (1, "paint.txt:1", "blue", "open")
    assert [comment.by for comment in first.comments.all()] == ["octocat on GitHub", "ann on GitHub"]
    assert (second.place, [comment.text for comment in second.comments.all()]) == ("", ["Nice work."])
    assert Change.objects.count() == before + 1


def test_a_new_comment_opens_a_thread_again(opened: PullRequest, forge: FakeForge) -> None:
    asked = forge.comment(1, "Why blue?")
    look_now(opened)
    ReviewThread.objects.update(state=ThreadState.ANSWERED)
    forge.comment(1, "Still not clear.", discussion=asked.discussion)
    look_now(opened)
    assert ReviewThread.objects.get().state == ThreadState.OPEN


@pytest.mark.parametrize("path", ["../../etc/passwd", "/etc/passwd", "gone.txt", "a\0b"])
def test_a_comment_on_a_file_that_is_not_here_is_about_the_whole(
    opened: PullRequest, forge: FakeForge, path: str
) -> None:
    forge.comment(1, "Look.", path=path, line=3, commit="f" * 40)
    look_now(opened)
    assert ReviewThread.objects.get().place == ""


def test_comments_from_there_ride_along_when_changes_are_requested(
    done: Result, opened: PullRequest, forge: FakeForge
) -> None:
    forge.comment(1, "Make it red.", path="paint.txt", line=1, commit=done.task.head_commit)
    look_now(opened)
    step = _step(done.task)
    RunFactory.create(task=done.task, step=step, outcome="finished")
    done.task.refresh_from_db()
    review = send_review(done.task, ReviewVerdict.REQUEST_CHANGES, by=done.by, via=Channel.WEB, notify=False)
    from tasks_app.engine.prompts.review_requests import request_text

    step.refresh_from_db()
    text = str(request_text(step, [review]))
    assert "Make it red." in text and "octocat on GitHub" in text and "paint.txt" in text


@pytest.mark.both
def test_the_agents_replies_are_posted_once(done: Result, opened: PullRequest, forge: FakeForge) -> None:
    forge.comment(1, "Why blue?")
    look_now(opened)
    thread = ReviewThread.objects.get()
    run = RunFactory.create(task=done.task, step=_step(done.task))
    reply = ThreadComment.objects.create(thread=thread, run=run, text="Because of @ann.", key="1")
    done.publish(pull_request=True)
    (posted,) = [comment for comment in forge.written[1] if comment.author == "cat-herder[bot]"]
    assert posted.text.startswith("Because of") and "@ann" not in posted.text
    reply.refresh_from_db()
    assert reply.forge_id == posted.id and reply.text == "Because of @ann."
    ThreadComment.objects.filter(pk=reply.pk).update(forge_id="")  # the worker died before it stored it
    done.publish(pull_request=True)
    look_now(opened)
    assert forge.calls.count("reply") == 1 and thread.comments.count() == 2


@pytest.fixture
def reply(opened: PullRequest, forge: FakeForge) -> ThreadComment:
    """A reply of the agent that is not posted yet, to a comment on the whole."""
    forge.comment(1, "Why blue?")
    look_now(opened)
    run = RunFactory.create(task=opened.task, step=_step(opened.task))
    return ThreadComment.objects.create(thread=ReviewThread.objects.get(), run=run, text="Because.", key="1")


@pytest.mark.both
def test_a_reply_outside_of_its_discussion_is_posted_once(
    done: Result, reply: ThreadComment, forge: FakeForge
) -> None:
    """At GitHub and Forgejo, a comment on the whole begins a discussion of its own."""
    posted = forge.comment(
        1, reply_text(reply), author="cat-herder[bot]"
    )  # the worker died before it stored it
    done.publish(pull_request=True)
    assert "reply" not in forge.calls
    reply.refresh_from_db()
    assert reply.forge_id == posted.id
    assert ReviewThread.objects.count() == 1


@pytest.mark.both
def test_a_worker_that_lost_its_claim_posts_no_more(
    done: Result, reply: ThreadComment, forge: FakeForge
) -> None:
    """Another one posts the rest: it has looked at what is there."""
    ThreadComment.objects.create(thread=reply.thread, run=reply.run, text="And more.", key="2")
    post = forge.reply

    def lose_claim(number: int, comment: RemoteComment, text: str) -> str:
        done.task.publications.update(claim=uuid4(), claimed_until=None)
        return post(number, comment, text)

    forge.reply = lose_claim  # type: ignore[method-assign]
    publication = done.publish(pull_request=True, reviewers=["octocat"])
    assert publication.is_pending and forge.calls.count("reply") == 1
    assert "request_reviews" not in forge.calls
    forge.reply = post  # type: ignore[method-assign]
    assert carry_out(publication.pk)
    assert forge.calls.count("reply") == 2


@pytest.mark.both
def test_a_worker_that_lost_its_claim_opens_nothing(done: Result, forge: FakeForge) -> None:
    def lose_claim(head: str, base: str) -> None:
        done.task.publications.update(claim=uuid4(), claimed_until=None)

    forge.find = lose_claim  # type: ignore[method-assign]
    assert done.publish(pull_request=True).is_pending and "open" not in forge.calls


@pytest.mark.parametrize("mark", ["{} and more", "{}\n> quoted", "²", "٣", "0", "9" * 30])
def test_what_somebody_else_wrote_is_not_taken_for_a_reply(
    opened: PullRequest, reply: ThreadComment, forge: FakeForge, mark: str
) -> None:
    ending = f"<!-- cat-herder: comment {mark} -->"
    forge.comment(1, reply_text(reply) + mark[2:] if mark.startswith("{}") else f"Mine. {ending}")
    look_now(opened)
    reply.refresh_from_db()
    assert reply.forge_id == "" and ReviewThread.objects.count() == 2


def test_a_copy_of_a_posted_reply_is_a_comment(
    done: Result, opened: PullRequest, reply: ThreadComment, forge: FakeForge
) -> None:
    done.publish(pull_request=True)
    reply.refresh_from_db()
    forge.comment(1, reply_text(reply), author="ann")
    look_now(opened)
    assert ThreadComment.objects.get(forge_author="ann")
    assert ThreadComment.objects.get(pk=reply.pk).forge_id == reply.forge_id


def test_what_is_posted_gives_no_command(reply: ThreadComment) -> None:
    reply.text = "Done.\n\n/merge\n\nCloses #3, @ann."
    text = reply_text(reply)
    assert not re.search(r"^\s*/\w", text, re.MULTILINE) and "Closes #3" not in text and "@ann" not in text


def test_beyond_the_most_threads_known_discussions_go_on(
    opened: PullRequest, forge: FakeForge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks_app.services.publishing.pull_requests.MOST_THREADS", 1)
    first = forge.comment(1, "Why blue?")
    forge.comment(1, "Why paint?")
    forge.comment(1, "Why not red?", discussion=first.discussion)
    look_now(opened)
    assert [one.text for one in ReviewThread.objects.get().comments.all()] == ["Why blue?", "Why not red?"]


@pytest.mark.both
def test_git_is_not_run_in_the_transaction(
    opened: PullRequest, forge: FakeForge, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows of task and pull request are locked in it."""
    events: list[str] = []

    def read(repository: Repository, *, commit: str, path: str) -> str:
        events.append("git")
        return "blue\n"

    def lock(task: Task) -> Task:
        events.append("lock")
        return locked(task)

    monkeypatch.setattr(service, "committed_text", read)
    monkeypatch.setattr(service, "locked", lock)
    forge.comment(1, "Why blue?", path="paint.txt", line=1, commit=opened.task.head_commit)
    forge.comment(1, "Why one line?", path="paint.txt", line=1, commit=opened.task.head_commit)
    look_now(opened)
    assert events == ["git", "lock"] and ReviewThread.objects.count() == 2


def test_an_unexpected_error_after_the_push_is_told_and_ends_the_publication(
    done: Result, forge: FakeForge, caplog: pytest.LogCaptureFixture
) -> None:
    forge.faults = [TypeError("a bug")]  # type: ignore[list-item]
    publication = done.publish(pull_request=True)
    assert publication.state == PublicationState.PUSHED
    assert "The portal failed (TypeError)" in publication.fault and "a bug" in caplog.text


def test_a_temporary_fault_after_the_push_is_tried_again(done: Result, forge: FakeForge) -> None:
    forge.faults = [OSError(errno.ENOSPC, "No space left on device")]  # type: ignore[list-item]
    with pytest.raises(OSError, match="No space"):
        done.publish(pull_request=True)
    type(pending := done.task.publications.get()).objects.update(claimed_until=None)
    assert carry_out(pending.pk)
    pending.refresh_from_db()
    assert (pending.state, pending.fault) == (PublicationState.PUSHED, "")


def test_replies_that_cannot_be_posted_are_told(done: Result, reply: ThreadComment, forge: FakeForge) -> None:
    def refuse(number: int, comment: RemoteComment, text: str) -> str:
        raise ForgeError("GitHub is away.")

    forge.reply = refuse  # type: ignore[method-assign]
    publication = done.publish(pull_request=True, reviewers=("ann",))
    assert publication.opened and "replies were not all posted: GitHub is away." in publication.fault
    assert forge.reviewers == {1: ["ann"]}


def test_an_unexpected_error_of_a_look_is_told(opened: PullRequest, forge: FakeForge) -> None:
    forge.faults = [KeyError("a bug")]  # type: ignore[list-item]
    look_now(opened)
    assert "The portal failed (KeyError)" in opened.fault


def test_results_of_ci_are_shown(done: Result, opened: PullRequest, forge: FakeForge) -> None:
    forge.pull_requests[1] = replace(forge.pull_requests[1], head_commit="a" * 40)
    forge.report("a" * 40, "tests", CheckState.FAILED)
    forge.report("a" * 40, "lint", CheckState.PASSED)
    look_now(opened)
    assert (opened.checks_state, opened.checks_in_words) == ("failed", "1 failed, 1 passed")
    board = text_of(signed_in(done.runner.user).get(reverse("tasks")))
    assert "GitHub #1 is open, CI: 1 failed, 1 passed" in board


def test_of_many_results_of_ci_the_failed_one_is_stored(opened: PullRequest, forge: FakeForge) -> None:
    forge.pull_requests[1] = replace(forge.pull_requests[1], head_commit="a" * 40)
    for number in range(110):
        forge.report("a" * 40, f"job {number}", CheckState.PASSED)
    forge.report("a" * 40, "last", CheckState.FAILED)
    look_now(opened)
    assert len(opened.checks) == 100 and opened.checks_state == "failed"


@pytest.mark.parametrize("state", [PullRequestState.MERGED, PullRequestState.CLOSED])
def test_ended_there_it_is_ended_here(opened: PullRequest, forge: FakeForge, state: PullRequestState) -> None:
    forge.end(1, state, by="ann")
    look_now(opened)
    assert (opened.state, opened.ended_by) == (state, "ann")
    entry = AuditEntry.objects.get(action=Action.PULL_REQUEST_ENDED)
    assert entry.actor is None and entry.actor_name == "ann on GitHub"
    assert Task.objects.get(pk=opened.task_id).phase == Phase.DONE
    assert not PullRequest.objects.due().exists()


@pytest.mark.parametrize(("by", "said"), [("ann", "Merged by ann on GitHub"), ("", "Merged on GitHub")])
def test_a_merged_result_is_shown_as_merged(
    done: Result, opened: PullRequest, forge: FakeForge, by: str, said: str
) -> None:
    client = signed_in(done.runner.user)
    page, board = reverse("task", args=[opened.task_id]), reverse("tasks")
    assert said not in text_of(client.get(page)) and "GitHub #1 is open" in text_of(client.get(board))
    forge.end(1, PullRequestState.MERGED, by=by)
    look_now(opened)
    assert said in text_of(client.get(page)) and said in text_of(client.get(board))


def test_programs_see_that_a_result_was_merged(opened: PullRequest, forge: FakeForge) -> None:
    before = TaskOut.from_row(opened.task).pull_request
    assert before is not None and before.state == "open"
    forge.end(1, PullRequestState.MERGED, by="ann")
    look_now(opened)
    for found in (TaskOut.from_row(opened.task), *TaskOut.of_each([opened.task])):
        assert found.pull_request is not None
        assert (found.pull_request.state, found.pull_request.ended_by) == ("merged", "ann")


@pytest.mark.parametrize("phase", [Phase.RUNNING, Phase.WAITING_FOR_INPUT, Phase.PENDING])
def test_work_that_goes_on_ends_with_the_merge(opened: PullRequest, forge: FakeForge, phase: Phase) -> None:
    Task.objects.update(phase=phase, queued_at=timezone.now())
    forge.end(1, PullRequestState.MERGED, by="ann")
    look_now(opened)
    task = Task.objects.get(pk=opened.task_id)
    assert task.phase == Phase.CANCELLED
    assert "ann merged" in task.transitions.order_by("-pk")[0].reason
    cancelled = AuditEntry.objects.get(action=Action.TASK_CANCELLED, task=task)
    assert cancelled.actor is None and cancelled.actor_name == "ann on GitHub"


@pytest.mark.parametrize(("by", "how"), [("ann", "merged by ann on GitHub"), ("", "merged on GitHub")])
def test_a_notification_says_that_a_merge_cancelled_the_task(
    opened: PullRequest, forge: FakeForge, by: str, how: str
) -> None:
    Task.objects.update(phase=Phase.RUNNING, queued_at=timezone.now())
    forge.end(1, PullRequestState.MERGED, by=by)
    look_now(opened)
    transition = opened.task.transitions.order_by("-pk")[0]
    message = message_of(Delivery(transition=transition, event_type=EventType.CANCELLED))
    assert message.headline == f"Cancelled, {how}: {opened.task.title}"


def test_a_look_that_fails_is_said_and_waits_for_the_rate_limit(
    opened: PullRequest, forge: FakeForge
) -> None:
    forge.faults = [ForgeError("The rate limit of GitHub is reached.", retry_after=1800)]
    look_now(opened)
    assert "rate limit" in opened.fault
    assert opened.next_look_at > timezone.now() + timedelta(seconds=1700)
    look_now(opened)
    assert opened.fault == ""


@pytest.mark.both
def test_two_workers_do_not_look_at_the_same_time(opened: PullRequest, forge: FakeForge) -> None:
    PullRequest.objects.update(next_look_at=timezone.now() - timedelta(seconds=1))
    assert PullRequest.objects.claim(opened.pk) is not None
    assert not look(opened.pk)


class WhileReading(FakeForge):
    """Something happens after the forge was asked for the state and before its answer is stored."""

    happens: list[Callable[[], object]]

    def comments(self, number: int) -> list[RemoteComment]:
        if self.happens:
            self.happens.pop()()
        return super().comments(number)


@pytest.fixture
def slow(opened: PullRequest, forge: FakeForge, monkeypatch: pytest.MonkeyPatch) -> WhileReading:
    """The same forge."""
    slow = WhileReading(**vars(forge))
    slow.happens = []
    monkeypatch.setattr(engine, "forge_of", lambda project: slow)
    return slow


def called(row: PullRequest) -> None:
    """Let a signed call come from the forge about it."""
    receive_call(row.project, b'{"number": %d}' % row.number)


def time_passes(row: PullRequest, seconds: float) -> None:
    """Let what is stored of the pull request be so much older."""
    row.refresh_from_db()
    for name in ("looked_at", "state_as_of", "next_look_at"):
        if at := getattr(row, name):
            setattr(row, name, at - timedelta(seconds=seconds))
    row.save()


@pytest.mark.both
def test_what_the_later_look_was_told_stays(opened: PullRequest, slow: WhileReading) -> None:
    """The first look ends last: it does not open the pull request again, nor is there a second end."""
    Task.objects.update(phase=Phase.RUNNING, queued_at=timezone.now())

    def merged_and_looked_at() -> None:
        slow.end(1, PullRequestState.MERGED, by="ann")
        look_now(opened)
        Task.objects.update(phase=Phase.RUNNING)  # somebody resumed it

    slow.happens = [merged_and_looked_at]
    look_now(opened)
    assert slow.calls.count("read") == 2 and opened.state == "merged"
    assert not PullRequest.objects.watched().exists()
    assert AuditEntry.objects.filter(action=Action.PULL_REQUEST_ENDED).count() == 1
    assert Task.objects.get(pk=opened.task_id).phase == Phase.RUNNING


@pytest.mark.both
def test_the_fault_of_an_earlier_look_is_not_that_of_the_later(
    opened: PullRequest, slow: WhileReading
) -> None:
    def looked_at_and_away() -> None:
        look_now(opened)
        slow.faults = [ForgeError("GitHub is away.")]

    slow.happens = [looked_at_and_away]
    look_now(opened)
    assert slow.calls.count("read") == 2 and opened.fault == ""


@pytest.mark.both
def test_a_call_during_a_look_begins_no_other_one(opened: PullRequest, slow: WhileReading) -> None:
    seen = []

    def calls_come() -> None:
        for _ in range(3):
            called(opened)
            seen.append(PullRequest.objects.due().exists())

    slow.happens = [calls_come]
    look_now(opened)
    assert seen == [False] * 3


@pytest.mark.both
def test_a_call_during_a_look_is_not_lost(opened: PullRequest, slow: WhileReading) -> None:
    PullRequest.objects.update(changed_at=timezone.now() - timedelta(days=2))
    slow.happens = [lambda: called(opened)]
    look_now(opened)
    assert not PullRequest.objects.due().exists()
    assert opened.next_look_at < timezone.now() + timedelta(seconds=11)
    time_passes(opened, 11)
    assert look(opened.pk) and not look(opened.pk)
    opened.refresh_from_db()
    assert opened.next_look_at > timezone.now() + timedelta(seconds=800)


def test_a_look_that_hangs_does_not_delay_calls_for_long(opened: PullRequest, slow: WhileReading) -> None:
    PullRequest.objects.update(next_look_at=timezone.now() - timedelta(seconds=1))
    hangs = PullRequest.objects.claim(opened.pk)
    assert hangs is not None
    called(opened)
    time_passes(opened, 61)
    assert PullRequest.objects.due().exists()


def test_a_clock_that_was_set_back_does_not_end_the_looks(opened: PullRequest, forge: FakeForge) -> None:
    look_now(opened)
    time_passes(opened, -3600)
    forge.end(1, PullRequestState.MERGED, by="ann")
    look_now(opened)
    assert opened.state == "merged"


def test_where_nothing_happens_looks_become_rare(opened: PullRequest) -> None:
    look_now(opened)
    assert opened.next_look_at < timezone.now() + timedelta(seconds=61)
    PullRequest.objects.update(changed_at=timezone.now() - timedelta(days=2))
    look_now(opened)
    assert opened.next_look_at > timezone.now() + timedelta(seconds=800)


def test_a_project_that_changed_its_forge_says_so(
    opened: PullRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tasks_app.services.publishing.settings import forge_of

    monkeypatch.setattr(engine, "forge_of", forge_of)
    Project.objects.update(publish_url="")
    look_now(opened)
    assert "no forge" in opened.fault


@pytest.mark.parametrize(
    ("text", "added"),
    [
        ("```\n~~~", "\n```"),
        ("````\n```\n~~~", "\n````"),
        ("~~~\n```\n~~~", ""),
        ("```py\nx\n```py", "\n```"),
        ("```\nx\n````", ""),
        ("``` a ` b", ""),
    ],
)
def test_a_code_block_that_an_agent_left_open_ends_with_its_message(text: str, added: str) -> None:
    message = SimpleNamespace(text=text, check_failed=False)
    account = SimpleNamespace(messages=[message], current=message, earlier=[])
    assert pull_request_text._said(account, limit=1_000) == text + added  # type: ignore[arg-type]
