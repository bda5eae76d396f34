"""M6: a worker that lacks what a task needs of its machine leaves the task to another, and fails none."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from tasks_app import tasks
from tasks_app.core.labels import GIT_LFS, OFFLINE, Labels, labels_in_words
from tasks_app.core.phases import Phase
from tasks_app.engine.advance import advance
from tasks_app.engine.workers import machine
from tasks_app.models import Task, Transition, WorkerBeat
from tasks_app.operations import local_sandbox
from tasks_app.sandbox import Sandbox
from tasks_app.schemas.workers import WorkerOut
from tasks_app.services.workers.queue import queue_sentence
from tests.factories import WorkerBeatFactory
from tests.fake_agent import FakeAgent
from tests.fake_script import say
from tests.without_git import Rows

pytestmark = pytest.mark.django_db(transaction=True)

ABLE = Sandbox(Path("/usr/bin/bwrap"), network_reason="")
UNABLE = Sandbox(Path("/usr/bin/bwrap"), network_reason="there is no loopback")
NO_NETWORK = "network isolation"


@pytest.fixture
def rows(transactional_db: None, settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rows:
    settings.DATA_DIR = tmp_path / "data"
    made = Rows.of(tmp_path, monkeypatch)
    made.agent = FakeAgent(lambda prompt: [say("Done.")])
    return made


def due(rows: Rows, *, network: str | None = None, **fields: Any) -> Task:
    task = rows.rows(queued_at=timezone.now(), **fields)
    step = task.steps.get()
    step.config = {**step.config, "network": network}
    step.save()
    return task


def work(rows: Rows, task: Task, sandbox: Sandbox = UNABLE, **more: Any) -> Task:
    """Work on the task as a worker with this sandbox."""
    context = replace(rows.context, sandbox=sandbox, labels=machine.labels_of_machine(sandbox))
    advance(task.pk, owner="worker", context=context, **more)
    task.refresh_from_db()
    return task


NEEDS_NO_NETWORK: list[dict[str, Any]] = [
    {"network": "none"},
    {"network": "model"},
    {"setup": {"run": ["true"], "network": "none"}},
    {"network": "full", "installation": "model"},
]


@pytest.mark.parametrize("needs", NEEDS_NO_NETWORK)
def test_m6_a_worker_that_cannot_take_the_network_away_leaves_the_task_to_another(
    rows: Rows, settings: Any, needs: dict[str, Any]
) -> None:
    most = needs.get("installation", "full")
    settings.ENVIRONMENT = settings.ENVIRONMENT.model_copy(update={"network": most})
    task = due(rows, **{name: value for name, value in needs.items() if name != "installation"})
    assert work(rows, task).phase == Phase.PENDING and task.lease_epoch == 0, "nobody claimed it"
    beat = WorkerBeatFactory.create(labels=[GIT_LFS], busy=0)
    assert queue_sentence(task) == f"Next in line: waits for a worker with {NO_NETWORK}, and none is running."
    WorkerBeat.objects.filter(pk=beat.pk).update(labels=sorted(machine.labels_of_machine(ABLE)))
    assert "which will take it within seconds" in queue_sentence(task)
    assert work(rows, task, ABLE).phase == Phase.DONE, task.failure


def test_m6_a_task_that_may_use_the_network_needs_no_such_worker(rows: Rows) -> None:
    assert work(rows, due(rows, network="full")).phase == Phase.DONE
    assert work(rows, due(rows, setup={"run": ["true"], "network": "full"})).phase == Phase.DONE


def test_m6_a_worker_without_git_lfs_leaves_a_task_that_needs_it_to_another(
    rows: Rows, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    settings.ENVIRONMENT = settings.ENVIRONMENT.model_copy(update={"git_filters": ()})
    task = due(rows, lfs=True)
    assert work(rows, task).phase == Phase.PENDING and task.lease_epoch == 0
    WorkerBeatFactory.create(labels=[OFFLINE])
    assert "waits for a worker with Git LFS (git-lfs, and lfs in CATHERDER_GIT_FILTERS), and" in (
        queue_sentence(task)
    )
    filters = (("lfs", "git-lfs filter-process"),)
    settings.ENVIRONMENT = settings.ENVIRONMENT.model_copy(update={"git_filters": filters})
    monkeypatch.setattr(machine, "is_installed", lambda: False)
    assert work(rows, task).phase == Phase.PENDING and task.lease_epoch == 0
    monkeypatch.setattr(machine, "is_installed", lambda: True)
    assert work(rows, task).phase == Phase.DONE, task.failure


def test_m6_what_a_worker_lost_after_its_claim_fails_no_task(
    rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if git-lfs was removed just now: it leaves the task to others, and does not claim it again."""
    installed = [True]
    monkeypatch.setattr(machine, "has_git_lfs", lambda: installed[0])
    task = due(rows, lfs=True)
    work(rows, task, when_claimed=lambda: installed.__setitem__(0, False))
    assert (task.phase, task.lease_epoch) == (Phase.PENDING, 1)
    reason = Transition.objects.filter(task=task, step=None).latest("pk").reason
    assert reason.startswith("step “do” needs a worker with Git LFS")


def test_m6_in_a_terminal_it_fails_with_the_reason(rows: Rows) -> None:
    """Somebody chose this machine, and no other goes on."""
    task = due(rows, network="none")
    advance(task.pk, owner="terminal", context=replace(rows.context, sandbox=UNABLE))
    task.refresh_from_db()
    assert task.phase == Phase.FAILED
    assert "impossible here: there is no loopback" in task.failure


def test_m6_heartbeats_say_what_the_machine_can_do_and_pages_show_it_in_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tasks, "labels", frozenset({"gpu"}))
    for sandbox, expected in ((ABLE, {"gpu", OFFLINE}), (UNABLE, {"gpu"})):
        monkeypatch.setattr(local_sandbox, "sandbox", partial(replace, sandbox))
        told: Labels = tasks.labels_here()
        assert {label for label in told if not label.startswith("toolchain:")} - {GIT_LFS} == expected
    shown = WorkerOut.from_row(WorkerBeatFactory.create(labels=["gpu", GIT_LFS, OFFLINE]))
    assert shown.labels == ["gpu"] and shown.toolchains == []
    assert labels_in_words({"gpu", OFFLINE}) == f"gpu and {NO_NETWORK}"
