"""Publishing the result of a task, from the request to the remote's answer (V6)."""

from __future__ import annotations

import errno
import time
from datetime import timedelta

import pytest
from django.utils import timezone

from tasks_app.core.errors import BadInput, IllegalMove, NotAllowed
from tasks_app.core.phases import Phase
from tasks_app.engine.publishing.publisher import MAX_ATTEMPTS, Publisher, _keep_claimed, carry_out
from tasks_app.history.events.blocks import append_one
from tasks_app.models import (
    Action,
    AuditEntry,
    Change,
    Channel,
    EventKind,
    Outcome,
    Project,
    Publication,
    PublicationState,
    ReviewVerdict,
    Role,
    Task,
    paths,
)
from tasks_app.services.publishing import publications
from tasks_app.services.publishing.publications import (
    CannotPublish,
    publication_hindrances,
    publish,
)
from tasks_app.services.publishing.pull_request_text import pull_request_title
from tasks_app.services.publishing.settings import change_publishing
from tasks_app.services.reviews import send_review
from tests.factories import MembershipFactory, RunFactory, SequenceFactory, TaskFactory
from tests.git_servers import bare_repository, count_pushes, refuse_pushes
from tests.integration.conftest import Manage
from tests.integration.git_repository import GitRepository
from tests.people import acting
from tests.results import Result


def actions(task: Task) -> list[str]:
    wanted = (Action.PUBLISH_REQUESTED, Action.PUBLISHED, Action.NOT_PUBLISHED)
    return list(
        AuditEntry.objects.filter(task=task, action__in=wanted)
        .order_by("pk")
        .values_list("action", flat=True)
    )


def test_the_result_arrives_with_its_checkpoints(done: Result) -> None:
    before = Change.objects.count()
    publication = done.publish()
    assert (publication.state, publication.published_commit) == ("pushed", done.task.head_commit)
    assert done.head == done.task.head_commit
    assert done.remote.git("show", f"{done.head}:paint.txt") == "blue"
    assert actions(done.task) == [Action.PUBLISH_REQUESTED, Action.PUBLISHED]
    entry = AuditEntry.objects.get(action=Action.PUBLISHED)
    assert entry.actor == done.runner.user and entry.detail["published_commit"] == done.head
    assert Change.objects.count() == before + 2


def test_v6_the_terminal_says_what_became_of_the_result(done: Result, manage: Manage) -> None:
    """Neither the approval nor the publication was told there."""
    status = ("status", done.task.pk)
    assert "Approved by" not in manage(*status)[1] and "ublished" not in manage(*status)[1]
    send_review(done.task, ReviewVerdict.APPROVE, by=acting(done.runner.user), via=Channel.WEB)
    publication = done.publish()
    told = manage(*status)[1]
    assert "Approved by ann" in told and f"Published as {publication.branch}" in told


def test_without_another_url_the_source_is_published_to(done: Result) -> None:
    Project.objects.update(publish_url="")
    done.task.project.refresh_from_db()
    assert done.publish().url == done.task.project.source
    assert done.source.git("rev-parse", done.task.branch) == done.task.head_commit


def test_new_work_replaces_what_the_portal_published(done: Result) -> None:
    first = done.publish().published_commit
    done.work_on("red\n")
    second = done.publish()
    assert second.state == PublicationState.PUSHED and done.head == done.task.head_commit != first


def test_squashed_checkpoints_become_one_commit_of_the_configured_author(done: Result) -> None:
    Project.objects.update(publish_author="Release Bot <bot@example.org>")
    publication = done.publish(squash=True)
    assert done.head == publication.published_commit != publication.commit == done.task.head_commit
    log = done.remote.git("log", "--format=%an <%ae>|%cn|%B", f"main..{done.task.branch}")
    assert log == "Release Bot <bot@example.org>|Release Bot|Paint it\n\nIn some colour."
    assert done.remote.git("rev-parse", f"{done.head}^{{tree}}") == paths.repository(done.task.project).tree(
        done.task.head_commit
    )


WORDS = "It says so in so many words " * 3
WIDE = f"- {WORDS}\n```\n{WORDS}\n```\n| {WORDS}|\nhttps://example.org/{'x' * 80}"
WRAPPED = f"""\
- It says so in so many words It says so in so many words It says so in
  so many words
```
{WORDS}
```
| {WORDS}|
https://example.org/{"x" * 80}"""


def test_a_squashed_commit_tells_what_the_task_changed(done: Result) -> None:
    """Its subject is one short line, whatever the title is, and its text the agent's account."""
    title = "Paint the whole house, also the shed that stands behind it, in a colour that lasts"
    Task.objects.update(title=title, body=f"{title}\n\nIn some colour.\n")
    done.task.refresh_from_db()
    step = done.task.steps.get(name="implement")
    run = RunFactory.create(task=done.task, step=step, outcome=Outcome.FINISHED)
    append_one(run, EventKind.RESULT, {"text": f"`paint.txt` is blue.\n\nFixes #3.\n\n{WIDE}"})
    done.publish(squash=True)
    subject, body = done.remote.git("log", "-1", "--format=%B", done.head).strip().split("\n\n", 1)
    assert subject == "Paint the whole house, also the shed that stands behind it, in a colour…"
    told, _, wide = body.replace("\N{ZERO WIDTH SPACE}", "").partition("\n\nFixes #3.\n\n")
    assert " ".join(told.split()) == f"{title} `paint.txt` is blue."
    assert wide == WRAPPED
    assert "Fixes #3" not in body and "some colour" not in body
    assert pull_request_title(done.task) == subject


def test_a_squashed_commit_has_the_message_that_somebody_wrote(done: Result) -> None:
    first = done.publish(squash=True, message="Paint the door\r\n\nFixes #3\x1b[2J.\n")
    assert done.remote.git("log", "-1", "--format=%B", done.head).strip() == "Paint the door\n\nFixes #3."
    assert first.message == "Paint the door\n\nFixes #3."
    second = done.publish(squash=True, message="Paint the shed")
    assert second.published_commit != first.published_commit and done.head == second.published_commit
    for given in ({"message": "No squash."}, {"squash": True, "message": "x" * 20_001}):
        with pytest.raises(BadInput):
            done.publish(**given)


def test_the_message_of_a_squashed_commit_closes_no_issue(done: Result) -> None:
    """V6: who writes a task need not be somebody who may close issues of the repository."""
    Task.objects.update(title="Fix #3", body="# Fix #3\n\nIt closes shop/sums#12, as @octocat said.\n")
    done.task.refresh_from_db()
    done.publish(squash=True)
    message = done.remote.git("log", "-1", "--format=%B", done.head).strip()
    assert (
        message.replace("\N{ZERO WIDTH SPACE}", "") == "Fix #3\n\nIt closes shop/sums#12, as @octocat said."
    )
    assert "Fix #3" not in message and "closes shop" not in message and "@octocat" in message


def test_squashed_again_it_is_still_one_commit(done: Result) -> None:
    done.publish(squash=True)
    done.work_on("red\n")
    done.publish(squash=True)
    assert done.remote.git("rev-list", "--count", f"main..{done.task.branch}") == "1"
    assert done.remote.git("show", f"{done.head}:paint.txt") == "red"


@pytest.mark.parametrize("squash", [False, True])
def test_the_same_commit_is_pushed_once(done: Result, squash: bool) -> None:
    pushes = count_pushes(done.remote.path)
    first, second = done.publish(squash=squash), done.publish(squash=squash)
    assert second.state == PublicationState.PUSHED and "already" in second.answer
    assert second.published_commit == first.published_commit
    assert len(pushes.read_text().splitlines()) == 1


@pytest.mark.both
def test_asked_for_twice_it_is_one_publication(done: Result) -> None:
    first = publish(done.task, by=done.by)
    assert publish(done.task, by=done.by) == first
    assert actions(done.task) == [Action.PUBLISH_REQUESTED]
    with pytest.raises(IllegalMove, match="wait until that has ended"):
        publish(done.task, by=done.by, squash=True)


def test_a_branch_that_was_deleted_there_is_published_again(done: Result) -> None:
    done.publish()
    done.remote.git("update-ref", "-d", f"refs/heads/{done.task.branch}")
    assert done.publish().state == PublicationState.PUSHED
    assert done.head == done.task.head_commit


@pytest.mark.parametrize("published_before", [False, True])
def test_commits_of_others_are_left_alone(done: Result, published_before: bool) -> None:
    ours = done.publish().published_commit if published_before else ""
    clone = GitRepository(done.runner.folder / "clone")
    GitRepository(done.runner.folder).git("clone", "--quiet", str(done.remote.path), "clone")
    theirs = clone.commit(**{"theirs.txt": "x"})
    clone.git("push", "--quiet", "--force", "origin", f"HEAD:{done.task.branch}")
    publication = done.publish()
    assert publication.state == PublicationState.REFUSED
    assert f"refs/heads/{done.task.branch}" in publication.answer
    assert theirs in publication.answer and ours in publication.answer
    assert done.head == theirs


def test_what_the_remote_says_is_kept(done: Result) -> None:
    hook = done.remote.path / "hooks" / "post-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\necho 'Create a merge request: https://git.example/new'\n")
    hook.chmod(0o755)
    assert done.publish().answer == "Create a merge request: https://git.example/new"


def test_a_refusal_of_the_remote_is_shown_and_can_be_tried_again(done: Result) -> None:
    refuse_pushes(done.remote.path, "not on a Friday")
    publication = done.publish()
    assert publication.state == PublicationState.REFUSED and "not on a Friday" in publication.answer
    assert actions(done.task) == [Action.PUBLISH_REQUESTED, Action.NOT_PUBLISHED]
    (done.remote.path / "hooks" / "pre-receive").unlink()
    assert done.publish().state == PublicationState.PUSHED


def test_an_update_merges_what_is_new_in_the_projects_branch(done: Result) -> None:
    main = done.source.commit(**{"news.txt": "new\n"})
    pushes = count_pushes(done.remote.path)
    publication = done.publish(update=True)
    assert (publication.state, publication.merged_commit) == ("pushed", main), publication.answer
    assert done.remote.git("log", "-1", "--format=%P|%s", done.head) == (
        f"{done.task.head_commit} {main}|Merge branch 'main' into {done.task.branch}"
    )
    assert done.remote.git("show", f"{done.head}:paint.txt") == "blue"
    assert done.remote.git("show", f"{done.head}:news.txt") == "new"
    assert "already" in done.publish(update=True).answer
    assert len(pushes.read_text().splitlines()) == 1


def test_updated_and_squashed_it_is_one_commit_after_the_newest(done: Result) -> None:
    main = done.source.commit(**{"news.txt": "new\n"})
    done.publish(update=True, squash=True)
    assert done.remote.git("log", "-1", "--format=%P|%s", done.head) == f"{main}|Paint it"
    assert done.remote.git("show", f"{done.head}:news.txt") == "new"


def test_an_update_without_news_changes_nothing(done: Result) -> None:
    assert done.publish(update=True).published_commit == done.task.head_commit


def test_a_conflict_names_the_files_and_nothing_is_published(done: Result) -> None:
    done.source.commit(**{"paint.txt": "red\n"})
    publication = done.publish(update=True)
    assert publication.state == PublicationState.REFUSED and not done.head
    assert "main" in publication.answer and "These files conflict: paint.txt." in publication.answer


def test_each_attempt_merges_the_same_commit(done: Result) -> None:
    publication = publish(done.task, by=done.by, update=True)
    first = done.source.commit(**{"news.txt": "new\n"})
    Publication.objects.update(merged_commit=first)
    done.source.commit(**{"later.txt": "later\n"})
    paths.repository(done.task.project).fetch()
    carry_out(publication.pk)
    assert done.remote.git("log", "-1", "--format=%P", done.head) == f"{done.task.head_commit} {first}"


def test_a_protected_branch_is_never_published_to(done: Result) -> None:
    change_publishing(
        done.task.project, url=str(done.remote.path), protected_branches="cat-*/*", author="", by=done.by
    )
    with pytest.raises(CannotPublish, match="protected by “cat-\\*/\\*”"):
        publish(done.task, by=done.by)


def test_the_default_branch_of_the_remote_is_never_published_to(done: Result) -> None:
    done.remote.git("branch", done.task.branch, "main")
    done.remote.git("symbolic-ref", "HEAD", f"refs/heads/{done.task.branch}")
    publication = done.publish()
    assert publication.state == PublicationState.REFUSED and "the default branch" in publication.answer
    assert done.head == done.remote.git("rev-parse", "main")


def test_a_pattern_that_was_added_meanwhile_holds(done: Result) -> None:
    publication = publish(done.task, by=done.by)
    Project.objects.update(protected_branches="cat-herder/*")
    carry_out(publication.pk)
    publication.refresh_from_db()
    assert publication.state == PublicationState.REFUSED and not done.head


def test_what_hinders_since_it_was_asked_for_holds(done: Result) -> None:
    publication = publish(done.task, by=done.by)
    Task.objects.update(phase=Phase.RUNNING)
    carry_out(publication.pk)
    publication.refresh_from_db()
    assert publication.state == PublicationState.REFUSED and "this one is running" in publication.answer
    assert not done.head


def test_what_has_arrived_is_published_whatever_hinders_now(done: Result) -> None:
    publication = publish(done.task, by=done.by)
    done.source.git(
        "push", "--quiet", str(done.remote.path), f"{done.task.head_commit}:refs/heads/{done.task.branch}"
    )
    Task.objects.update(phase=Phase.RUNNING)
    carry_out(publication.pk)
    publication.refresh_from_db()
    assert publication.state == PublicationState.PUSHED


def test_only_a_finished_result_is_published(done: Result) -> None:
    Task.objects.update(phase=Phase.FAILED)
    with pytest.raises(CannotPublish, match="done"):
        publish(done.task, by=done.by)
    Task.objects.update(phase=Phase.DONE, head_commit=done.task.base_commit)
    with pytest.raises(CannotPublish, match="has changed nothing"):
        publish(done.task, by=done.by)
    assert not Publication.objects.exists()


def test_of_a_sequence_the_last_task_is_published(done: Result) -> None:
    sequence = SequenceFactory.create(project=done.task.project, branch=done.task.branch)
    Task.objects.update(sequence=sequence, file="01.md")
    task = Task.objects.get()
    assert publication_hindrances(task, task.head_commit) == []
    TaskFactory.create(project=task.project, sequence=sequence, file="02.md", branch=task.branch)
    assert "Publish that task." in publication_hindrances(task, task.head_commit)[0]


def test_hindrances_are_found_for_a_commit(done: Result, monkeypatch: pytest.MonkeyPatch) -> None:
    assert publication_hindrances(done.task, done.task.head_commit) == []
    monkeypatch.setattr(publications, "publication_hindrances", lambda task, commit: [f"Not {commit}."])
    with pytest.raises(CannotPublish, match=f"Not {done.task.head_commit}"):
        publish(done.task, by=done.by)


def test_a_viewer_may_not_publish(done: Result) -> None:
    viewer = MembershipFactory.create(project=done.task.project, role=Role.VIEWER).user
    with pytest.raises(NotAllowed):
        publish(done.task, by=acting(viewer))


def test_a_url_that_changes_meanwhile_gets_nothing(done: Result) -> None:
    publication = publish(done.task, by=done.by)
    Project.objects.update(publish_url=str(bare_repository(done.runner.folder / "other.git")))
    carry_out(publication.pk)
    publication.refresh_from_db()
    assert publication.state == PublicationState.REFUSED and "since then" in publication.answer


@pytest.mark.both
def test_a_publication_is_carried_out_by_one_worker(done: Result) -> None:
    publication = publish(done.task, by=done.by)
    assert Publication.objects.claim(publication.pk)
    assert not carry_out(publication.pk)


@pytest.mark.both
def test_a_worker_that_lost_its_claim_says_nothing(done: Result) -> None:
    slow = Publication.objects.claim(publish(done.task, by=done.by).pk)
    assert slow
    Publication.objects.update(claimed_until=None)
    carry_out(slow.pk)
    publications.record_refused(slow, "too late")
    slow.refresh_from_db()
    assert slow.state == PublicationState.PUSHED
    assert actions(done.task) == [Action.PUBLISH_REQUESTED, Action.PUBLISHED]


@pytest.mark.both
def test_a_claim_is_renewed_while_the_worker_pushes(done: Result, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks_app.engine.publishing.publisher._RENEW_SECONDS", 0.02)
    publication = Publication.objects.claim(publish(done.task, by=done.by).pk)
    assert publication
    Publication.objects.update(claimed_until=timezone.now())
    with _keep_claimed(publication):
        until = time.monotonic() + 30
        while Publication.objects.due().exists() and time.monotonic() < until:
            time.sleep(0.02)
    assert not Publication.objects.due().exists()


@pytest.mark.both
def test_a_claim_of_a_clock_that_was_set_back_does_not_count(done: Result) -> None:
    publication = Publication.objects.claim(publish(done.task, by=done.by).pk)
    assert publication
    Publication.objects.update(claimed_until=timezone.now() + timedelta(hours=1))
    assert carry_out(publication.pk)


def test_a_fault_of_the_portal_ends_the_publication(done: Result, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("tasks_app.engine.publishing.publisher.remote_of", fail)
    publication = done.publish()
    assert publication.state == PublicationState.REFUSED and "ZeroDivisionError" in publication.answer


@pytest.mark.both
def test_a_publication_whose_workers_die_ends_with_a_sentence(done: Result) -> None:
    publication = publish(done.task, by=done.by)
    for _ in range(MAX_ATTEMPTS):
        assert Publication.objects.claim(publication.pk)
        Publication.objects.update(claimed_until=timezone.now() - timedelta(seconds=1))
    assert carry_out(publication.pk)
    publication.refresh_from_db()
    assert publication.state == PublicationState.REFUSED and "died or failed 5 times" in publication.answer
    assert not done.head and actions(done.task) == [Action.PUBLISH_REQUESTED, Action.NOT_PUBLISHED]
    assert done.publish().state == PublicationState.PUSHED, "asked for again, it is tried again"


def test_the_last_attempt_of_those_whose_workers_die_publishes(done: Result) -> None:
    publication = publish(done.task, by=done.by)
    Publication.objects.update(attempts=MAX_ATTEMPTS - 1)  # those before died
    assert carry_out(publication.pk)
    publication.refresh_from_db()
    assert publication.state == PublicationState.PUSHED


def test_temporary_faults_are_not_counted_as_deaths(done: Result, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    publication = publish(done.task, by=done.by)
    with monkeypatch.context() as full_disk:
        full_disk.setattr("tasks_app.engine.publishing.publisher._publish", fail)
        for _ in range(MAX_ATTEMPTS + 1):
            with pytest.raises(OSError, match="no space left"):
                carry_out(publication.pk)
            Publication.objects.update(claimed_until=timezone.now() - timedelta(seconds=1))
    assert carry_out(publication.pk)
    publication.refresh_from_db()
    assert publication.state == PublicationState.PUSHED


@pytest.mark.both
def test_what_was_never_tried_comes_before_what_had_a_fault(
    done: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = publish(done.task, by=done.by)
    Publication.objects.update(claimed_until=timezone.now() - timedelta(seconds=1))
    fresh = Publication.objects.create(
        task=TaskFactory.create(project=done.task.project), commit="a" * 40, url="x", branch="y"
    )
    begun: list[int] = []
    monkeypatch.setattr("tasks_app.engine.publishing.publisher.carry_out", begun.append)
    monkeypatch.setattr(
        "tasks_app.engine.publishing.publisher._start_thread", lambda what, number, fault: what(number)
    )
    Publisher()._run_once()
    assert begun == [fresh.pk, tried.pk]


@pytest.mark.both
def test_the_workers_thread_finds_what_is_due(done: Result) -> None:
    publication = publish(done.task, by=done.by)
    publisher = Publisher()
    publisher.start()
    try:
        until = time.monotonic() + 30
        while publication.is_pending and time.monotonic() < until:
            time.sleep(0.05)
            publication.refresh_from_db()
    finally:
        publisher.stop()
        publisher.join()
    assert done.head == done.task.head_commit


def test_only_a_site_admin_says_where_results_go(done: Result) -> None:
    maintainer = acting(MembershipFactory.create(project=done.task.project, role=Role.MAINTAINER).user)
    project = done.task.project
    url = project.publish_url
    change_publishing(project, url=url, protected_branches="main", author="", by=maintainer)
    with pytest.raises(NotAllowed, match="site admin"):
        change_publishing(project, url="/elsewhere", protected_branches="main", author="", by=maintainer)
    with pytest.raises(BadInput, match="Name <address"):
        change_publishing(project, url=url, protected_branches="main", author="nobody", by=maintainer)
    project.refresh_from_db()
    assert (project.publish_url, project.protected_branches, project.publish_author) == (url, "main", "")


def test_v5_a_project_may_require_approvals_not_by_who_started_the_task(done: Result) -> None:
    task, project = done.task, done.task.project
    Task.objects.update(created_by=done.runner.user)
    change_publishing(
        project, url=project.publish_url, protected_branches="main", author="", required_approvals=1,
        by=done.by,
    )  # fmt: skip
    own = send_review(task, ReviewVerdict.APPROVE, by=done.by, via=Channel.WEB)
    assert own.approves
    with pytest.raises(CannotPublish, match="has 0 of 1 required approval"):
        publish(task, by=done.by)
    other = MembershipFactory.create(project=project).user
    send_review(task, ReviewVerdict.APPROVE, by=acting(other), via=Channel.WEB)
    assert done.publish().state == PublicationState.PUSHED
    done.work_on("red\n")
    with pytest.raises(CannotPublish, match="0 of 1"):
        publish(done.task, by=done.by)
    with pytest.raises(BadInput, match="less than or equal to 20"):
        change_publishing(
            project, url=project.publish_url, protected_branches="main", author="", required_approvals=21,
            by=done.by,
        )  # fmt: skip
