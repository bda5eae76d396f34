"""Faults that pass fail no task: it waits, or is put back and tried again with growing pauses (R2, R3)."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from django.core.management import call_command
from django.db import DatabaseError, IntegrityError, OperationalError, connection, transaction
from django.utils import timezone

from tasks_app.agent.port import RunResult
from tasks_app.core.errors import TemporaryFault, WorkspaceError
from tasks_app.core.phases import Phase
from tasks_app.engine import temporary_faults
from tasks_app.engine.runs import conclude, steps
from tasks_app.engine.stopping import StopReason
from tasks_app.engine.temporary_faults import retry_pause, temporary_fault
from tasks_app.git import Workspace
from tasks_app.history.transitions import move_both
from tasks_app.models import Outcome, Task, User
from tasks_app.schemas.tasks import TaskOut
from tests import machine
from tests.browser import signed_in
from tests.fake_script import Turn, ask, say
from tests.runner import Runner, runs, step

SAYS = [say("First."), say("Second.")]


def same_database() -> str:
    """The address of the tests' database, for a connection that is not Django's."""
    name = connection.settings_dict["NAME"]
    return urlsplit(machine.POSTGRES)._replace(path=f"/{name}").geturl()


class Lock:
    """Keeps everybody else from writing, until `pauses` pauses were made by who waits.

    The clock of the waiting is this one's too, so nobody really waits.
    """

    def __init__(self, holder: Any) -> None:
        self._holder = holder
        self.pauses = 0
        self.now = 0.0
        self.lasts = 3

    def begin(self) -> None:
        if connection.vendor == "sqlite":
            self._holder.execute("BEGIN IMMEDIATE")
        else:
            self._holder.execute("LOCK TABLE tasks_app_task IN ACCESS EXCLUSIVE MODE")

    def pause(self, seconds: float) -> None:
        self.now += seconds
        self.pauses += 1
        if self.pauses == self.lasts:
            self._holder.rollback()


@pytest.fixture
def lock(monkeypatch: pytest.MonkeyPatch, runner: Runner) -> Iterator[Lock]:
    options = {"timeout": 0.05}
    if machine.ON_POSTGRES:
        options = {"options": "-c lock_timeout=50ms"}  # type: ignore[dict-item]
        holder: Any = psycopg.connect(same_database())
    else:
        holder = sqlite3.connect(connection.settings_dict["NAME"], isolation_level=None)
    for name, value in options.items():
        monkeypatch.setitem(connection.settings_dict["OPTIONS"], name, value)
    connection.close()
    with closing(holder):
        lock = Lock(holder)
        clock = SimpleNamespace(monotonic=lambda: lock.now, sleep=lock.pause)
        monkeypatch.setattr(temporary_faults, "time", clock)
        yield lock
    connection.close()


def locked_once_at_work(runner: Runner, lock: Lock) -> None:
    original = runner.fake.run

    def run(order, recorder):  # type: ignore[no-untyped-def]
        runner.fake.run = original  # type: ignore[method-assign]
        lock.begin()
        return original(order, recorder)

    runner.fake.run = run  # type: ignore[method-assign]


def pass_the_pause(task: Task) -> None:
    assert not Task.objects.due().exists()
    Task.objects.filter(pk=task.pk).update(retry_at=timezone.now() - timedelta(seconds=1))


def test_while_the_database_is_locked_the_agent_waits_and_nothing_of_it_is_lost(
    runner: Runner, lock: Lock
) -> None:
    """Longer than the database's own time-out: one run, each of its events once."""
    task = runner.task(SAYS)
    locked_once_at_work(runner, lock)
    assert runner.advance(task).phase == Phase.DONE
    assert lock.pauses == lock.lasts
    (run,) = runs(task)
    texts = [event.payload["text"] for event in run.events.filter(kind="text")]
    assert (run.outcome, texts) == (Outcome.FINISHED, ["First.", "Second."])
    assert (task.faults, task.fault, task.retry_at) == (0, "", None)


def test_a_lock_longer_than_the_patience_puts_the_run_back(
    runner: Runner, lock: Lock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent is ended, and when the database is there again the rows say so (R3)."""
    task = runner.task(SAYS)
    lock.lasts = 8
    monkeypatch.setattr("tasks_app.engine.runs.run_recorder.PATIENCE", 1.0)
    monkeypatch.setattr("tasks_app.engine.runs.run_recorder.SECONDS", 1.0)
    locked_once_at_work(runner, lock)
    assert runner.advance(task).phase == step(task).phase == Phase.PENDING
    assert "database" in task.fault
    assert (task.faults, task.failure, task.lease_owner) == (1, "", "")
    (run,) = runs(task)
    assert run.outcome == Outcome.INTERRUPTED
    pass_the_pause(task)
    assert runner.advance(task).phase == Phase.DONE
    assert step(task).failures == 0


def test_a_database_that_stays_away_lets_the_lease_lapse(
    runner: Runner, lock: Lock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing at all can be written: the next one that comes takes the run up as if the worker had died."""
    task = runner.task(SAYS)
    lock.lasts = 60
    for name in ("runs.run_recorder.PATIENCE", "runs.run_recorder.SECONDS", "temporary_faults.PATIENCE"):
        monkeypatch.setattr(f"tasks_app.engine.{name}", 1.0)
    locked_once_at_work(runner, lock)
    from tasks_app.engine.advance import advance

    assert advance(task.pk, owner="first", context=runner.context)
    assert not advance(task.pk, owner="second", context=runner.context), "it cannot be claimed either"
    lock._holder.rollback()
    task.refresh_from_db()
    assert (task.phase, task.lease_owner) == (Phase.RUNNING, "first")
    Task.objects.update(lease_expires=timezone.now() - timedelta(seconds=1))
    assert runner.advance(task).phase == Phase.DONE


if machine.ON_POSTGRES:  # a file has no connection

    def test_a_connection_that_is_lost_is_made_anew(runner: Runner) -> None:
        task = runner.task(SAYS)
        original = runner.fake.run

        def run(order, recorder):  # type: ignore[no-untyped-def]
            with psycopg.connect(same_database()) as other:
                other.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE datname = current_database() AND pid <> pg_backend_pid()"
                )
            return original(order, recorder)

        runner.fake.run = run  # type: ignore[method-assign]
        assert runner.advance(task).phase == Phase.DONE
        assert len(runs(task)) == 1


def test_a_full_disk_is_tried_again_with_growing_pauses(runner: Runner) -> None:
    task = runner.task(SAYS)
    original, full = runner.fake.run, [1, 2, 3]

    def run(order, recorder):  # type: ignore[no-untyped-def]
        if full:
            full.pop()
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "orders.json")
        return original(order, recorder)

    runner.fake.run = run  # type: ignore[method-assign]
    pauses = []
    for _ in range(3):
        assert runner.advance(task).phase == step(task).phase == Phase.PENDING
        assert task.retry_at and task.fault_at
        pauses.append(round((task.retry_at - task.fault_at).total_seconds()))
        pass_the_pause(task)
    assert pauses == [5, 10, 20]
    assert runner.advance(task).phase == Phase.DONE
    assert (task.faults, task.fault, step(task).failures) == (0, "", 0)
    assert [run.outcome for run in runs(task)] == [Outcome.INTERRUPTED] * 3 + [Outcome.FINISHED]


def test_pauses_grow_to_five_minutes_and_no_further() -> None:
    assert [retry_pause(n).total_seconds() for n in (1, 2, 3, 7, 8, 30_000)] == [5, 10, 20, 300, 300, 300]


def test_a_disk_that_is_full_for_git_does_not_repeat_the_run(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is published, nothing has failed, and the agent is not asked to do it again."""

    task = runner.task(SAYS)
    snapshot = Workspace.snapshot

    def full(self: Workspace, **more: Any) -> str:
        raise WorkspaceError("The clone cannot be recorded: error: No space left on device")

    monkeypatch.setattr(Workspace, "snapshot", full)
    assert runner.advance(task).phase == Phase.PENDING
    assert task.fault == "The disk is full"
    monkeypatch.setattr(Workspace, "snapshot", snapshot)
    pass_the_pause(task)
    assert runner.advance(task).phase == Phase.DONE
    assert len(runs(task)) == 1


@pytest.mark.parametrize("error", [IntegrityError("a row is there"), TypeError("no such thing")])
def test_what_does_not_pass_fails_the_task_and_says_what_to_do(runner: Runner, error: Exception) -> None:
    task = runner.task(SAYS)

    def run(order: object, recorder: object) -> RunResult:
        raise error

    runner.fake.run = run  # type: ignore[method-assign]
    assert runner.advance(task).phase == Phase.FAILED
    assert str(error) in task.failure
    assert "Resume the task" in task.failure
    assert f"task {task.pk}" in task.failure


ASKS = [Turn(calls=(ask("Red?"),)), say("Painted.")]


def test_a_fault_while_a_question_is_stored_neither_loses_it_nor_fails_its_task(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """H4: the phases were moved already when the transaction was lost."""
    faults = iter([OperationalError("database is locked")])

    def moved(*args: Any, **options: Any) -> None:
        move_both(*args, **options)
        for fault in faults:
            raise fault

    monkeypatch.setattr(conclude, "move_both", moved)
    task = runner.advance(runner.task(ASKS))
    assert (task.phase, task.failure) == (Phase.WAITING_FOR_INPUT, "")
    assert task.questions.count() == 1
    assert [run.outcome for run in runs(task)] == [Outcome.ASKED]


def test_a_question_whose_commit_was_not_confirmed_is_stored_once_although_the_worker_ends(
    runner: Runner, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    halts = []

    def halt(*args: Any) -> None:
        halts.append(args)
        conclude.halt(*args)
        raise OperationalError("database is locked")

    monkeypatch.setattr(steps, "halt", halt)
    runner.stop_signal = lambda: StopReason.SHUTDOWN if halts else None
    task = runner.advance(runner.task(ASKS))
    assert (task.phase, task.failure) == (Phase.WAITING_FOR_INPUT, "")
    assert task.questions.count() == 1 and len(halts) == 1
    assert "bug in the portal" not in caplog.text


def test_a_pause_does_not_outlast_a_clock_that_was_set_back(runner: Runner) -> None:
    task = runner.task(SAYS)
    Task.objects.update(retry_at=timezone.now() + timedelta(seconds=250))
    assert not Task.objects.due().exists()
    Task.objects.update(retry_at=timezone.now() + timedelta(hours=1))
    assert Task.objects.due().get() == task


def test_pages_show_what_prevents_a_task_and_when_it_is_tried_again(
    runner: Runner, capsys: pytest.CaptureFixture[str]
) -> None:
    """R3: on the page, in the terminal and in the API."""
    task = runner.task(SAYS)

    def run(order: object, recorder: object) -> RunResult:
        raise TemporaryFault("The disk is full.")

    runner.fake.run = run  # type: ignore[method-assign]
    runner.advance(task)
    assert task.retry_at and task.fault_at
    told = f"The disk is full ({task.fault_at:%H:%M} UTC). Tried again at {task.retry_at:%H:%M} UTC."
    User.objects.filter(pk=runner.user.pk).update(is_superuser=True)
    page = signed_in(User.objects.get(pk=runner.user.pk)).get(f"/tasks/{task.pk}/")
    assert told in page.text
    call_command("status", str(task.pk))
    assert told in " ".join(capsys.readouterr().out.split())
    call_command("status")
    assert f"Task {task.pk}: {told}" in " ".join(capsys.readouterr().out.split())
    known = TaskOut.from_row(task)
    assert (known.fault, known.retry_at) == ("The disk is full", task.retry_at)


def test_the_error_itself_says_whether_it_is_temporary() -> None:
    """Only a few of the errors of a class pass: a missing table is an OperationalError of SQLite, too."""
    assert temporary_fault(OSError(errno.ENOSPC, "full")) == "The disk is full"
    assert temporary_fault(OSError(errno.ENOENT, "gone")) == ""
    assert temporary_fault(TemporaryFault("Something is left.")) == "Something is left"
    assert temporary_fault(TypeError("No")) == ""
    wrapped = WorkspaceError("git cannot be started")
    wrapped.__cause__ = OSError(errno.EMFILE, "too many")
    assert temporary_fault(wrapped) == "The portal has too many open files"


@pytest.mark.django_db
@pytest.mark.parametrize("statement", ["SELECT * FROM nowhere", "SELEC 1"])
def test_a_mistake_in_a_statement_does_not_pass(statement: str) -> None:
    with pytest.raises(DatabaseError) as raised, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement)
    assert temporary_fault(raised.value) == ""


if not machine.ON_POSTGRES:  # only SQLite has a full disk on demand

    @pytest.mark.django_db(transaction=True)
    def test_a_full_disk_of_the_database_passes() -> None:
        """As SQLite says it itself when it gets no further page."""
        with connection.cursor() as cursor:
            cursor.execute("VACUUM")  # pages that earlier tests have left free would be used first
            cursor.execute("PRAGMA page_count")
            cursor.execute(f"PRAGMA max_page_count = {cursor.fetchone()[0]}")
        try:
            with pytest.raises(OperationalError) as raised:
                User.objects.create(username="x", first_name="y" * 3_000_000)
            assert temporary_fault(raised.value) == "The disk of the database is full"
        finally:
            connection.close()
