"""Results that their pipelines publish by themselves, with pull requests (V6, V7)."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from django.urls import reverse

from tasks_app.config.repository_settings import PublishConfig, publish_to_json
from tasks_app.config.validation import Report
from tasks_app.core.phases import Phase
from tasks_app.engine.publishing import publisher
from tasks_app.engine.publishing.publisher import ask_for_due, carry_out
from tasks_app.forges.port import ForgeError
from tasks_app.models import (
    Action,
    AuditEntry,
    Channel,
    EventType,
    Notice,
    Project,
    Publication,
    PublicationState,
    PublishCredential,
    PullRequest,
    ReviewVerdict,
    Role,
    Task,
    User,
)
from tasks_app.notifications.message import message_of
from tasks_app.notifications.notices import create_notifications
from tasks_app.services.publishing.publications import (
    publish,
    record_refused,
    tasks_to_publish,
    with_publishing,
)
from tasks_app.services.reviews import counted_approvals, send_review
from tests.browser import signed_in
from tests.factories import MembershipFactory, ReviewFactory, SequenceFactory, TaskFactory, UserFactory
from tests.fake_script import End, Turn, say, write
from tests.forges.fake import FakeForge
from tests.git_servers import bare_repository, count_pushes, refuse_pushes
from tests.integration.conftest import Manage
from tests.integration.git_repository import GitRepository
from tests.integration.test_notifications import hook
from tests.people import acting
from tests.results import Result
from tests.runner import Runner

CONFIG = """\
pipelines:
  feature:
    publish: {squash: true}
    steps:
      - {name: do, command: self}
"""
WORK = [Turn(calls=(write("paint.txt", "blue\n"),)), say("Painted.")]
MORE = [Turn(calls=(write("paint.txt", "red\n"),)), say("Painted again.")]


def finish(done: Result, user: User | None = None, **options: Any) -> Task:
    """Let the task be done again, as one that the user started with a pipeline that publishes."""
    snapshot = publish_to_json(PublishConfig(**options))
    owner = user or MembershipFactory.create(project=done.task.project).user
    Task.objects.update(publish=snapshot, publish_due=True, created_by=owner, pipeline="feature")
    done.task.refresh_from_db()
    return done.task


def publish_all() -> list[Publication]:
    """Do what the worker's thread does in a round; return the publications that its pipelines asked for."""
    due = tasks_to_publish().values_list("pk", flat=True)
    asked = [made for task_id in due if (made := ask_for_due(task_id))]
    for publication in Publication.objects.due():
        carry_out(publication.pk)
    for publication in asked:
        publication.refresh_from_db()
    return asked


def bare_target(runner: Runner, task: Task) -> GitRepository:
    remote = GitRepository(bare_repository(runner.folder / "remote.git"))
    GitRepository(Path(task.project.source)).git("push", "--quiet", str(remote.path), "HEAD:main")
    Project.objects.update(publish_url=str(remote.path))
    return remote


@pytest.mark.both
def test_v7_a_task_that_is_done_is_published_once(runner: Runner) -> None:
    task = runner.task(WORK, config=CONFIG)
    remote = bare_target(runner, task)
    assert publish_all() == []
    runner.advance(task)
    assert (task.phase, task.publish_due) == (Phase.DONE, True)
    (publication,) = publish_all()
    assert (publication.state, publication.squash, publication.by) == ("pushed", True, runner.user)
    assert remote.git("show", f"{task.branch}:paint.txt") == "blue"
    assert publish_all() == [] and Publication.objects.count() == 1


def test_v7_what_was_sent_back_is_published_again_when_it_is_done(runner: Runner) -> None:
    task = runner.task([*WORK, End(), *MORE], config=CONFIG)
    remote = bare_target(runner, task)
    runner.advance(task)
    publish_all()
    assert remote.git("show", f"{task.branch}:paint.txt") == "blue"
    send_review(task, ReviewVerdict.REQUEST_CHANGES, by=acting(runner.user), via=Channel.WEB, body="Red.")
    assert publish_all() == []
    runner.advance(task)
    (again,) = publish_all()
    assert again.state == "pushed" and remote.git("show", f"{task.branch}:paint.txt") == "red"
    assert Publication.objects.count() == 2


def test_without_the_key_nothing_is_published(runner: Runner) -> None:
    task = runner.task(WORK)
    runner.advance(task)
    assert (task.phase, task.publish, publish_all()) == (Phase.DONE, None, [])


def test_v7_the_pull_request_is_opened_as_the_key_says_and_updated_later(
    done: Result, forge: FakeForge
) -> None:
    options: dict[str, Any] = {"pull_request": True, "draft": True, "reviewers": ("octocat", "acme/team")}
    finish(done, **options)
    (first,) = publish_all()
    assert first.opened and (first.opened.draft, forge.reviewers) == (True, {1: ["octocat", "acme/team"]})
    done.work_on("red\n")
    finish(done, **options)
    (second,) = publish_all()
    assert second.opened == first.opened and forge.calls.count("open") == 1
    assert done.head == done.task.head_commit and PullRequest.objects.count() == 1


def test_v7_it_is_audited_as_done_by_the_pipeline(done: Result, forge: FakeForge) -> None:
    task = finish(done, pull_request=True)
    publish_all()
    wanted = [Action.PUBLISH_REQUESTED, Action.PULL_REQUEST_OPENED, Action.PUBLISHED]
    entries = AuditEntry.objects.filter(task=task, action__in=wanted).order_by("pk")
    assert [entry.action for entry in entries] == wanted
    assert task.created_by is not None
    name = f"the pipeline feature on behalf of {task.created_by.shown_name}"
    assert {(entry.actor, entry.actor_name) for entry in entries} == {(None, name)}


def test_v5_it_waits_for_the_required_approvals(done: Result) -> None:
    Project.objects.update(required_approvals=2)
    task = finish(done)
    assert publish_all() == []
    assert task.created_by is not None
    send_review(task, ReviewVerdict.APPROVE, by=acting(task.created_by), via=Channel.WEB)
    for _ in range(2):
        assert publish_all() == []
        reviewer = MembershipFactory.create(project=task.project).user
        send_review(task, ReviewVerdict.APPROVE, by=acting(reviewer), via=Channel.WEB)
    assert [one.state for one in publish_all()] == ["pushed"]
    assert publish_all() == []


def test_v5_fewer_required_approvals_are_enough_at_once(done: Result) -> None:
    Project.objects.update(required_approvals=1)
    finish(done)
    assert publish_all() == []
    Project.objects.update(required_approvals=0)
    assert len(publish_all()) == 1


def test_an_approval_of_an_earlier_result_is_not_enough(done: Result) -> None:
    Project.objects.update(required_approvals=1)
    task = finish(done)
    reviewer = MembershipFactory.create(project=task.project).user
    send_review(task, ReviewVerdict.APPROVE, by=acting(reviewer), via=Channel.WEB)
    done.work_on("red\n")
    assert publish_all() == []


def test_v5_an_approval_that_its_author_took_back_is_not_counted(done: Result) -> None:
    """The query counted it, so that the same task was looked at every second for ever."""
    Project.objects.update(required_approvals=1)
    task = finish(done)
    reviewer = MembershipFactory.create(project=task.project).user
    verdicts = [
        (ReviewVerdict.APPROVE, True),
        (ReviewVerdict.COMMENT, True),
        (ReviewVerdict.REQUEST_CHANGES, False),
        (ReviewVerdict.COMMENT, False),
        (ReviewVerdict.APPROVE, True),
    ]
    for number, (verdict, counts) in enumerate(verdicts, start=1):
        ReviewFactory.create(
            task=task, author=reviewer, number=number, verdict=verdict, commit=task.head_commit
        )
        assert tasks_to_publish().filter(pk=task.pk).exists() == counts, number
        assert counted_approvals(task) == counts, number
    assert [one.state for one in publish_all()] == ["pushed"]


def test_v5_others_do_not_end_an_approval(done: Result) -> None:
    Project.objects.update(required_approvals=1)
    task = finish(done)
    first, second = (MembershipFactory.create(project=task.project).user for _ in range(2))
    approval = {"task": task, "commit": task.head_commit, "verdict": ReviewVerdict.APPROVE}
    ReviewFactory.create(**approval, author=first, number=1)
    ReviewFactory.create(task=task, author=second, number=2, verdict=ReviewVerdict.REQUEST_CHANGES)
    elsewhere = TaskFactory.create(project=task.project)
    ReviewFactory.create(task=elsewhere, author=first, number=3, verdict=ReviewVerdict.REQUEST_CHANGES)
    assert list(tasks_to_publish()) == [task] and counted_approvals(task) == 1


@pytest.mark.parametrize("why", ["viewer", "removed", "inactive", "unknown"])
def test_the_rights_of_who_created_the_task_hold(done: Result, why: str) -> None:
    member = MembershipFactory.create(project=done.task.project, role=Role.MEMBER)
    task = finish(done, user=member.user)
    if why == "viewer":
        member.role = Role.VIEWER
        member.save()
    elif why == "removed":
        member.delete()
    elif why == "inactive":
        User.objects.filter(pk=member.user_id).update(is_active=False)
    else:
        Task.objects.update(created_by=None)
    (publication,) = publish_all()
    assert publication.state == PublicationState.REFUSED and not done.head
    assert "author" in publication.answer
    assert publish_all() == [] and task.publications.count() == 1


def test_protected_names_hold(done: Result) -> None:
    Project.objects.update(protected_branches="cat-herder/*")
    finish(done)
    (publication,) = publish_all()
    assert publication.state == PublicationState.REFUSED and "protected by" in publication.answer


def test_commits_of_others_are_left_alone(done: Result) -> None:
    finish(done)
    clone = GitRepository(done.runner.folder / "clone")
    GitRepository(done.runner.folder).git("clone", "--quiet", str(done.remote.path), "clone")
    theirs = clone.commit(**{"theirs.txt": "x"})
    clone.git("push", "--quiet", "origin", f"HEAD:{done.task.branch}")
    (publication,) = publish_all()
    assert publication.state == PublicationState.REFUSED and done.head == theirs


def test_without_a_forge_it_is_refused_and_can_be_published_by_hand(done: Result) -> None:
    finish(done, pull_request=True)
    (publication,) = publish_all()
    assert publication.state == PublicationState.REFUSED and not done.head
    assert "at no forge that the portal knows" in publication.answer
    assert done.publish().state == PublicationState.PUSHED


def test_a_result_without_changes_is_not_published(done: Result) -> None:
    finish(done)
    Task.objects.update(head_commit=done.task.base_commit)
    assert publish_all() == [] and not Publication.objects.exists()
    assert not Task.objects.get().publish_due


def test_of_a_sequence_the_last_task_is_published_when_all_are_done(done: Result) -> None:
    task = finish(done)
    sequence = SequenceFactory.create(
        project=task.project, branch=task.branch, phase=Phase.RUNNING, base_commit=task.base_commit
    )
    Task.objects.update(sequence=sequence, file="01.md")
    assert publish_all() == []
    last = TaskFactory.create(
        project=task.project, sequence=sequence, file="02.md", branch=task.branch, phase=Phase.DONE,
        base_commit=task.base_commit, head_commit=task.head_commit, created_by=task.created_by,
        publish=task.publish, publish_due=True,
    )  # fmt: skip
    sequence.phase = Phase.DONE
    sequence.save()
    (publication,) = publish_all()
    assert (publication.task, publication.state) == (last, "pushed")
    assert publication.asked_by.startswith("the pipeline feature on behalf of "), "that of the first task"
    assert not Task.objects.filter(publish_due=True).exists()


def test_while_it_is_published_by_hand_the_pipeline_waits(done: Result) -> None:
    by_hand = publish(done.task, by=done.by)
    finish(done)
    pushes = count_pushes(done.remote.path)
    assert publish_all() == [] and Publication.objects.get() == by_hand
    (own,) = publish_all()
    assert own.state == "pushed" and len(pushes.read_text().splitlines()) == 1


@pytest.mark.both
def test_two_workers_ask_for_it_once(done: Result) -> None:
    task = finish(done)
    assert ask_for_due(task.pk) is not None
    Publication.objects.update(state=PublicationState.PUSHED)
    assert ask_for_due(task.pk) is None


@pytest.mark.both
def test_a_task_that_cannot_be_looked_at_holds_up_no_other(
    done: Result, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its error ended each round before anything was published or any pull request looked at."""
    started: list[int] = []

    def start(_: object, number: int, fault: str) -> threading.Thread:
        started.append(number)
        return threading.Thread()

    monkeypatch.setattr(publisher, "_start_thread", start)
    faulty = finish(done)
    other = TaskFactory.create(
        project=faulty.project, phase=Phase.DONE, created_by=faulty.created_by, publish_due=True,
        base_commit=faulty.base_commit, head_commit=faulty.head_commit, publish=faulty.publish,
    )  # fmt: skip
    Task.objects.filter(pk=faulty.pk).update(publish={"squash": "what no version wrote"})
    thread = publisher.Publisher()
    assert thread._run_once() == publisher.POLL_SECONDS
    assert started == [Publication.objects.get(task=other).pk]
    thread._run_once()
    logged = [one.getMessage() for one in caplog.records if f"task {faulty.pk}" in one.getMessage()]
    assert len(logged) == 1, "it is tried again later, not each second"
    assert Task.objects.get(pk=faulty.pk).publish_due
    Task.objects.filter(pk=faulty.pk).update(publish=other.publish)
    monkeypatch.setattr(publisher, "FAULT_SECONDS", 0.0)
    thread._run_once()
    assert Publication.objects.filter(task=faulty).exists()


# What failed is told.


def test_a_refusal_is_told_to_the_owner_once(done: Result) -> None:
    refuse_pushes(done.remote.path, "not on a Friday")
    task = finish(done)
    onlooker = MembershipFactory.create(project=task.project).user
    publish_all()
    assert (create_notifications(), create_notifications()) == (1, 0)
    notice = Notice.objects.get()
    assert (notice.user, notice.event_type) == (task.created_by, EventType.NOT_PUBLISHED)
    assert "not on a Friday" in notice.headline and notice.user != onlooker
    page = signed_in(notice.user).get(reverse("notices")).content.decode()
    assert "Not published" in page and f"{reverse('task', args=[task.pk])}#publishing-title" in page


def test_a_failure_is_told_to_who_asked_for_it_too(done: Result, forge: FakeForge) -> None:
    owner, other = (MembershipFactory.create(project=done.task.project).user for _ in range(2))
    Task.objects.update(created_by=owner)

    def refuse(number: int, reviewers: tuple[str, ...]) -> None:
        raise ForgeError("GitHub has no user nobody.")

    forge.request_reviews = refuse  # type: ignore[method-assign]
    publication = publish(done.task, by=acting(other), pull_request=True, reviewers=["nobody"])
    carry_out(publication.pk)
    create_notifications()
    assert {notice.user for notice in Notice.objects.all()} == {owner, other}
    assert "nobody could not be asked" in Notice.objects.all()[0].headline


def test_what_was_published_is_told_to_nobody_and_settles_earlier_failures(done: Result) -> None:
    refuse_pushes(done.remote.path, "not on a Friday")
    finish(done)
    publish_all()
    create_notifications()
    assert Notice.objects.unread().count() == 1
    (done.remote.path / "hooks" / "pre-receive").unlink()
    assert done.publish().state == "pushed"
    assert create_notifications() == 0 and not Notice.objects.unread().exists()


def test_the_message_of_a_failure_has_the_reason(done: Result) -> None:
    refuse_pushes(done.remote.path, "not on a Friday")
    task = finish(done)
    target = hook(task, EventType.NOT_PUBLISHED)
    publish_all()
    create_notifications()
    message = message_of(target.deliveries.get()).as_json()
    assert (message["event"], message["headline"]) == ("not_published", f"Not published: {task.title}")
    assert "not on a Friday" in str(message["failure"])
    assert str(message["url"]).endswith(f"/tasks/{task.pk}/#publishing-title")
    assert str(message["by"]).startswith("the pipeline feature on behalf of ")


# Pages, API and terminal.


def test_the_page_says_what_the_pipeline_will_do_and_what_it_did(done: Result) -> None:
    Project.objects.update(required_approvals=1)
    task = finish(done, squash=True)
    browser = signed_in(UserFactory.create(is_superuser=True))
    url = reverse("task", args=[task.pk])
    page = browser.get(url).content.decode()
    assert "The pipeline feature publishes this result by itself" in page
    assert "the branch is pushed as one commit" in page and "0 of 1 required approval" in page
    Project.objects.update(required_approvals=0)
    publish_all()
    page = browser.get(url).content.decode()
    assert task.created_by is not None
    assert f"by the pipeline feature on behalf of {task.created_by.shown_name}" in page
    assert "publishes this result by itself" not in page


def test_after_a_refusal_the_form_offers_what_the_pipeline_wanted(done: Result, forge: FakeForge) -> None:
    """V7: it can be tried again by hand, with the same draft and reviewers."""
    Project.objects.update(forge="gitlab", publish_url="https://git.example/acme/shop.git")
    task = finish(done, pull_request=True, draft=True, reviewers=("octocat", "ann"))
    PublishCredential.objects.create(
        project=task.project, kind="token", url="https://git.example/acme/shop.git", username="robot"
    )
    asked = ask_for_due(task.pk)
    assert asked is not None
    record_refused(asked, "The forge is away.")
    browser = signed_in(UserFactory.create(is_superuser=True))
    page = " ".join(browser.get(reverse("task", args=[task.pk])).text.split())
    assert "The forge is away." in page and 'value="octocat, ann"' in page
    assert 'name="draft" value="yes" checked' in page and 'name="pull_request" value="yes" checked' in page


def test_the_api_and_the_project_page_show_the_key(runner: Runner) -> None:
    task = runner.task(WORK, config=CONFIG)
    browser = signed_in(UserFactory.create(is_superuser=True))
    wanted = {"squash": True, "update": False, "pullRequest": False, "draft": False, "reviewers": []}
    pipelines = browser.get(f"/api/v1/projects/{task.project.name}/pipelines").json()
    assert [one["publish"] for one in pipelines["items"]] == [wanted]
    assert browser.get(f"/api/v1/tasks/{task.pk}").json()["publish"] == wanted
    page = browser.get(reverse("project", args=[task.project_id])).content.decode()
    assert "When a task is done, the branch is pushed as one commit." in page


def test_a_project_without_a_forge_gets_a_warning(runner: Runner, manage: Manage) -> None:
    config = CONFIG.replace("{squash: true}", "{pullRequest: true}")
    project = runner.project(config)
    code, out, _ = manage("validate", project.name)
    assert code == 0 and "cat-herder.yaml:3: pipelines.feature.publish.pullRequest cannot work yet." in out
    browser = signed_in(UserFactory.create(is_superuser=True))
    (found,) = browser.get(f"/api/v1/projects/{project.name}/validation").json()["warnings"]
    assert (found["line"], found["key"]) == (3, "pipelines.feature.publish.pullRequest")
    assert "at no forge" in browser.get(reverse("project", args=[project.pk])).content.decode()
    plain = runner.project(CONFIG)
    assert "cannot work yet" not in manage("validate", plain.name)[1]


def test_lfs_and_a_repository_that_is_reached_over_ssh_get_a_warning(runner: Runner, manage: Manage) -> None:
    project = runner.project(CONFIG, **{".gitattributes": "*.bin filter=lfs diff=lfs merge=lfs -text\n"})
    assert "over ssh" not in manage("validate", project.name)[1]
    Project.objects.update(publish_url="git@example.org:shop.git")
    code, out, _ = manage("validate", project.name)
    assert code == 0 and ".gitattributes" in out and "over ssh" in out


def test_a_broken_file_has_its_own_findings(runner: Runner) -> None:
    project = runner.project()
    for text in (None, "pipelines: 3\n", "pipelines:\n  a: {publish: {pullRequest: true}}\n"):
        assert with_publishing(Report(()), project, text).findings == ()
