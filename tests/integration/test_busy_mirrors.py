"""M1, M4: while a worker host copies a repository for one task, others of the project use no slot."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from types import SimpleNamespace

import pytest
from django.utils import timezone

from tasks_app.core.phases import Phase
from tasks_app.git import mirror
from tasks_app.git.mirror import Mirror
from tasks_app.models import Task
from tests.integration.worker_host import Host, host_at, serving
from tests.runner import Runner

pytestmark = pytest.mark.django_db(transaction=True)

OWNER = "build-2@there:7:Worker-2"


@pytest.fixture
def host(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    """A host whose mirror the engine uses."""
    monkeypatch.setattr(mirror, "BUSY_SECONDS", 0.1)
    monkeypatch.setattr(mirror, "_FETCH_PAUSES", (3600.0,))
    with serving() as url:
        host = host_at(url, runner)
        here = SimpleNamespace(repository=lambda project: host.mirror)
        monkeypatch.setattr("tasks_app.engine.advance.paths", here)  # the portal is in this process, too
        yield host


@contextmanager
def downloading(there: Mirror) -> Iterator[None]:
    """Lock the mirror as another process does that fetches a large repository."""
    there.path.parent.mkdir(parents=True, exist_ok=True)
    with there.lock_file.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def waiting(host: Host, runner: Runner) -> Task:
    """Another task of the project, which was put back because of the download."""
    task = runner.task([], project=host.task.project)
    with downloading(host.mirror):
        return runner.advance(task, owner=OWNER)


def test_a_task_whose_repository_is_being_copied_gives_its_slot_back(host: Host, runner: Runner) -> None:
    task = waiting(host, runner)
    assert (task.phase, task.lease_owner) == (Phase.PENDING, "")
    assert not Task.objects.worked_on().filter(pk=task.pk).exists(), "its place is free"
    assert "fetching the repository of mirror for another task" in task.fault
    assert task.waits_for_retry


def test_it_is_tried_again_soon_however_long_the_copy_takes(host: Host, runner: Runner) -> None:
    task = waiting(host, runner)
    for _ in range(3):
        Task.objects.filter(pk=task.pk).update(retry_at=timezone.now() - timedelta(seconds=1))
        with downloading(host.mirror):
            runner.advance(task, owner=OWNER)
        assert task.retry_at is not None and task.retry_at < timezone.now() + timedelta(seconds=10)


def test_it_goes_on_when_the_copy_has_ended(host: Host, runner: Runner) -> None:
    task = waiting(host, runner)
    Task.objects.filter(pk=task.pk).update(retry_at=timezone.now() - timedelta(seconds=1))
    with host.mirror.held_for(host.key, branch=host.task.branch):
        assert runner.advance(task, owner=OWNER).phase != Phase.PENDING
    task.refresh_from_db()
    assert task.phase != Phase.PENDING and task.fault == ""
