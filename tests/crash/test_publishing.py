"""A worker dies at each point of a publication; its successor pushes what is missing, once, and says so once.

V6, R2.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from django.utils import timezone

from tasks_app.config.repository_settings import PublishConfig, publish_to_json
from tasks_app.core.phases import Phase
from tasks_app.engine.publishing.publisher import ask_for_due, carry_out
from tasks_app.engine.publishing.pull_requests import look
from tasks_app.forges.port import ForgeKind
from tasks_app.models import (
    Action,
    AuditEntry,
    Publication,
    PullRequest,
    ReviewThread,
    Step,
    Task,
    ThreadComment,
)
from tasks_app.services.publishing.publications import publish, tasks_to_publish
from tests.crash.points import (
    PIPELINE_PUBLISHING_POINTS,
    PUBLISHING_POINTS,
    PULL_REQUEST_POINTS,
    REPLY_POINTS,
)
from tests.crash.test_sweep import dies_at
from tests.factories import RunFactory
from tests.forges.servers import forge_server
from tests.git_servers import count_pushes
from tests.integration.git_repository import GitRepository
from tests.people import acting
from tests.results import make_result
from tests.runner import Runner

FORGE_OF = "tasks_app.engine.publishing.pull_requests.forge_of"


@pytest.fixture
def task(runner: Runner) -> Task:
    return make_result(runner).task


def bury() -> None:
    """The dead worker's claim has run out."""
    Publication.objects.update(claimed_until=timezone.now() - timedelta(seconds=1))


def assert_published_once(task: Task, pushes: Path) -> None:
    publication = Publication.objects.get()
    assert (publication.state, publication.task_id) == ("pushed", task.pk), publication.answer
    (line,) = pushes.read_text().splitlines()
    assert line.split()[1:] == [publication.published_commit, f"refs/heads/{task.branch}"]
    assert AuditEntry.objects.filter(action=Action.PUBLISHED).count() == 1
    assert not AuditEntry.objects.filter(action=Action.NOT_PUBLISHED).exists()


@pytest.mark.parametrize("squash", [False, True])
@pytest.mark.parametrize("point", PUBLISHING_POINTS)
def test_a_death_at_any_point(runner: Runner, task: Task, point: str, squash: bool) -> None:
    pushes = count_pushes(Path(task.project.publish_url))
    publication = publish(task, by=acting(runner.user), squash=squash)
    assert dies_at(point, lambda: carry_out(publication.pk)) == 137
    assert not carry_out(publication.pk), "the claim of the dead worker still holds"
    bury()
    assert carry_out(publication.pk)
    assert_published_once(task, pushes)


@pytest.mark.parametrize("point", [*PIPELINE_PUBLISHING_POINTS, *PUBLISHING_POINTS])
def test_v7_a_death_while_a_pipeline_publishes(runner: Runner, task: Task, point: str) -> None:
    """The mark on the task and the publication change in one transaction; the next worker does the rest."""
    pushes = count_pushes(Path(task.project.publish_url))
    Task.objects.update(
        publish=publish_to_json(PublishConfig()), publish_due=True, created_by=runner.user, pipeline="paint"
    )

    def work() -> None:
        for task_id in tasks_to_publish().values_list("pk", flat=True):
            ask_for_due(task_id)
        for publication in Publication.objects.due():
            carry_out(publication.pk)

    assert dies_at(point, work) == 137
    bury()
    work()
    work()
    assert_published_once(task, pushes)
    assert AuditEntry.objects.filter(action=Action.PUBLISH_REQUESTED).count() == 1


@pytest.mark.parametrize("point", PULL_REQUEST_POINTS)
def test_v7_a_death_after_a_pull_request_was_opened(
    runner: Runner, task: Task, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The forge outlives the worker; the next one finds the pull request by its branch."""
    pushes = count_pushes(Path(task.project.publish_url))
    monkeypatch.setattr("tasks_app.services.publishing.publications.pull_request_hindrance", lambda _: "")
    with forge_server(ForgeKind.FORGEJO) as server:
        monkeypatch.setattr(FORGE_OF, lambda project: server.forge)
        publication = publish(task, by=acting(runner.user), pull_request=True)
        assert dies_at(point, lambda: carry_out(publication.pk)) == 137
        bury()
        assert carry_out(publication.pk)
        assert server.people.calls.count("open") == 1
        assert server.description.problems == []
    assert PullRequest.objects.get().number == 1
    assert_published_once(task, pushes)


@pytest.mark.parametrize("point", REPLY_POINTS)
@pytest.mark.parametrize("kind", [ForgeKind.GITHUB, ForgeKind.FORGEJO, ForgeKind.GITLAB])
@pytest.mark.parametrize("path", ["", "paint.txt"])
def test_v7_a_death_after_a_reply_was_posted(
    runner: Runner, task: Task, kind: ForgeKind, point: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next worker finds the reply by its mark, also where it is not in the discussion of the comment."""
    monkeypatch.setattr("tasks_app.services.publishing.publications.pull_request_hindrance", lambda _: "")
    with forge_server(kind) as server:
        monkeypatch.setattr(FORGE_OF, lambda project: server.forge)
        carry_out(publish(task, by=acting(runner.user), pull_request=True).pk)
        line, commit = (1, task.head_commit) if path else (None, "")
        server.people.comment(1, "Why blue?", path=path, line=line, commit=commit)
        PullRequest.objects.update(next_look_at=timezone.now() - timedelta(seconds=1))
        assert look(PullRequest.objects.get().pk)
        step = Step.objects.create(task=task, name="paint", position=9, phase=Phase.DONE, config={})
        run = RunFactory.create(task=task, step=step)
        reply = ReviewThread.objects.get().comments.create(run=run, text="Because.", key="1")
        publication = publish(task, by=acting(runner.user), pull_request=True)
        assert dies_at(point, lambda: carry_out(publication.pk)) == 137
        bury()
        assert carry_out(publication.pk)
        assert sum("Because." in one.text for one in server.people.written[1]) == 1
        assert server.description.problems == []
    reply.refresh_from_db()
    publication.refresh_from_db()
    assert reply.forge_id and publication.fault == ""
    assert ThreadComment.objects.count() == 2


def test_the_push_of_a_dead_worker_may_arrive_late(runner: Runner, task: Task) -> None:
    """git goes on without the worker that started it: here it is first, between the look and the push."""
    remote = GitRepository(Path(task.project.publish_url))
    pushes = count_pushes(remote.path)
    publication = publish(task, by=acting(runner.user))
    own = runner.folder / "data" / "repositories"
    (repository,) = own.glob("*.git")
    late = ("git", "-C", str(repository), "push", "--quiet", str(remote.path))
    hook = remote.path / "hooks" / "pre-receive"
    # The successor's push waits in the hook until the late one has arrived, and then finds another state.
    hook.write_text(
        "#!/bin/sh\nunset GIT_DIR GIT_QUARANTINE_PATH GIT_OBJECT_DIRECTORY GIT_ALTERNATE_OBJECT_DIRECTORIES\n"
        f"rm {hook}\n{' '.join(late)} {task.head_commit}:refs/heads/{task.branch}\n"
    )
    hook.chmod(0o755)
    assert carry_out(publication.pk)
    assert_published_once(task, pushes)
