"""Who works on a task: one at a time, whoever held it before is refused, and nobody is forgotten (R2)."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Collection
from contextlib import ExitStack
from datetime import datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
from django.db import OperationalError, connection
from django.utils import timezone

from tasks_app.agent.port import AgentEvent, Ending, RunResult
from tasks_app.core.errors import IllegalMove, LeaseLost
from tasks_app.core.phases import Phase
from tasks_app.engine import sweeper
from tasks_app.engine.lease import SECONDS, Lease, keep_renewed, renewer
from tasks_app.engine.runs.conclude import fail, halt, may_try_again, pause, store_result
from tasks_app.engine.runs.recovery import DEATHS
from tasks_app.engine.runs.run_recorder import RunRecorder
from tasks_app.engine.stopping import never
from tasks_app.engine.sweeper import CHANGES_KEPT, Sweeper, sweep
from tasks_app.engine.workspaces import cleaning
from tasks_app.models import Change, Event, Outcome, Question, Run, SessionEntry, Task
from tasks_app.models.task import TaskQuerySet
from tasks_app.sandbox import Sandbox
from tasks_app.services.tasks import resume_task
from tests import machine
from tests.fake_script import Turn, ask, say
from tests.people import acting
from tests.runner import Runner, runs, step
from tests.waiting import wait_until

SESSION = "12345678-1234-4234-8234-123456789012"
ASKS = [Turn(calls=(ask("Red?"),)), say("Painted.")]


def expire(task: Task) -> None:
    Task.objects.filter(pk=task.pk).update(lease_expires=timezone.now() - timedelta(seconds=1))


def claim(task: Task, owner: str) -> Lease:
    lease = Lease.claim(task.pk, owner=owner)
    assert lease is not None
    return lease


def test_of_two_at_once_one_works(runner: Runner) -> None:
    """A fault of the reference tool: two runs of one task at once."""
    task = runner.task([say("Done.")])
    together = threading.Barrier(4)

    def go(owner: str) -> None:
        try:
            together.wait()
            runner.advance(Task.objects.get(pk=task.pk), owner=owner)
        finally:
            connection.close()

    threads = [threading.Thread(target=go, args=(f"worker-{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    task.refresh_from_db()
    assert task.phase == Phase.DONE
    assert len(runs(task)) == 1


def test_who_has_the_lease_keeps_others_out(runner: Runner) -> None:
    task = runner.task([say("Done.")])
    lease = claim(task, "first")
    assert Lease.claim(task.pk, owner="second") is None
    assert runner.advance(task, owner="second").phase == Phase.PENDING
    lease.release()
    assert runner.advance(task, owner="second").phase == Phase.DONE


def test_an_expired_lease_is_taken_over_and_the_old_holder_is_refused(runner: Runner) -> None:
    """Fencing: its events, its transcript, its halt and its moves do not count."""
    task = runner.task([])
    old = claim(task, "old")
    Task.objects.update(phase=Phase.RUNNING)
    task.steps.update(phase=Phase.RUNNING)
    run = Run.objects.create(step=step(task), number=1, reason="first", session_id=SESSION)
    recorder = RunRecorder(old, run, stop_signal=never, timeout=60)
    expire(task)
    new = claim(task, "new")
    assert new.epoch == old.epoch + 1
    event = AgentEvent("text", {"text": "late"}, timezone.now())
    result = RunResult(Ending.ASKED)
    for late in (
        lambda: recorder.record([event]),
        lambda: recorder.append_transcript({"project_key": "p", "session_id": "s"}, [{"n": 1}]),
        lambda: recorder.tick(),
        lambda: halt(old, run, result, recorder),
        lambda: fail(old, step(task), "late"),
        lambda: pause(old, step(task), Phase.PENDING, "late"),
        lambda: old.phase(),
    ):
        with pytest.raises(LeaseLost):
            late()
    old.release()
    task.refresh_from_db()
    assert (task.phase, task.lease_owner) == (Phase.RUNNING, "new")
    assert (Event.objects.count(), SessionEntry.objects.count(), Question.objects.count()) == (0, 0, 0)


@pytest.mark.parametrize("is_known", [True, False])
def test_a_run_ended_when_its_process_did(runner: Runner, is_known: bool) -> None:
    """How long its result took to be stored is no part of it."""
    task = runner.task([])
    lease = claim(task, "worker")
    run = Run.objects.create(step=step(task), number=1, reason="first", session_id=SESSION)
    exited_at = timezone.now()
    result = RunResult(Ending.FAILED, exited_at=exited_at if is_known else None)
    with lease.fenced():
        store_result(run, result, RunRecorder(lease, run, stop_signal=never, timeout=60))
    run.refresh_from_db()
    assert run.ended_at and (run.ended_at == exited_at) is is_known


def test_a_holder_that_was_taken_over_leaves_quietly(runner: Runner) -> None:
    task = runner.task([say("Half."), say("Done.")])
    original = runner.fake.run

    def run(order, recorder):  # type: ignore[no-untyped-def]
        expire(task)
        claim(task, "thief")
        return original(order, recorder)

    runner.fake.run = run  # type: ignore[method-assign]
    runner.advance(task, owner="old")
    assert (task.phase, task.lease_owner) == (Phase.RUNNING, "thief")
    assert runs(task)[0].outcome == ""


def test_a_task_whose_worker_died_is_taken_up_again(runner: Runner) -> None:
    """R2, R3: from what its events and its transcript say."""
    task = runner.task([say("First."), say("Second.")])
    original = runner.fake.run

    def run(order, recorder):  # type: ignore[no-untyped-def]
        runner.fake.run = original  # type: ignore[method-assign]
        record = recorder.record

        def dying(events: list[AgentEvent]) -> None:
            record(events)
            if any(event.kind == "text" for event in events):
                raise SystemExit

        recorder.record = dying
        return original(order, recorder)

    runner.fake.run = run  # type: ignore[method-assign]
    with pytest.raises(SystemExit):
        runner.advance(task)
    assert Task.objects.get().phase == Phase.RUNNING
    assert runner.advance(task).phase == Phase.DONE
    first, second = runs(task)
    assert (first.outcome, second.outcome) == (Outcome.CRASHED, Outcome.FINISHED)
    assert first.input_tokens == 100, "the tokens of the run that died count"
    assert second.session_id == first.session_id


def test_a_run_that_cannot_be_read_again_does_not_keep_its_task_for_ever(runner: Runner) -> None:
    """R3: neither as running nor in a circle."""
    task = runner.task([say("Done.")])
    Task.objects.update(phase=Phase.RUNNING)
    task.steps.update(phase=Phase.RUNNING)
    run = Run.objects.create(step=step(task), number=1, reason="first", session_id=SESSION)
    Event.objects.create(run=run, seq=0, kind="text", at=timezone.now(), raw=["not", "a", "message"])
    assert runner.advance(task).phase == Phase.FAILED
    resume_task(task, by=acting(runner.user))
    assert runner.advance(task).phase == Phase.DONE


def test_advance_twice_is_harmless(runner: Runner) -> None:
    task = runner.advance(runner.task(ASKS))
    before = (Event.objects.count(), len(runs(task)), task.lease_epoch)
    assert runner.advance(task).phase == Phase.WAITING_FOR_INPUT
    runner.answer_all(task)
    assert runner.advance(task).phase == Phase.DONE
    assert runner.advance(task).phase == Phase.DONE
    assert len(runs(task)) == 2
    assert before[1] == 1


def test_a_waiting_task_holds_nothing(runner: Runner) -> None:
    """H4."""
    task = runner.advance(runner.task(ASKS))
    assert (task.lease_expires, task.lease_owner) == (None, "")
    assert not [thread.name for thread in threading.enumerate() if "agent" in thread.name]


def test_a_sweep_notifies_of_exactly_what_is_due(runner: Runner) -> None:
    project = runner.project()
    tasks = {phase: runner.task([], project=project) for phase in Phase}
    held = runner.task([], project=project)
    lost = runner.task([], project=project)
    reset_came = runner.task([], project=project)
    not_started = runner.task([], project=project)
    for phase, task in tasks.items():
        Task.objects.filter(pk=task.pk).update(phase=phase)
    claim(held, "somebody")
    claim(lost, "somebody")
    Task.objects.filter(pk=lost.pk).update(phase=Phase.RUNNING)
    expire(lost)
    past = timezone.now() - timedelta(seconds=1)
    Task.objects.filter(pk=reset_came.pk).update(phase=Phase.WAITING_FOR_RESET, resets_at=past)
    Task.objects.filter(pk=not_started.pk).update(queued_at=None)
    rung: list[int] = []
    assert sweep(rung.append, pending=lambda: 0) == 4
    assert sorted(rung) == sorted(
        task.pk for task in (tasks[Phase.PENDING], tasks[Phase.RUNNING], lost, reset_came)
    )


def test_a_sweep_notifies_first_of_what_was_queued_first(runner: Runner) -> None:
    project = runner.project()
    later, first, last = (runner.task([], project=project) for _ in range(3))
    for task, minutes in ((first, 3), (later, 2), (last, 1)):
        Task.objects.filter(pk=task.pk).update(queued_at=timezone.now() - timedelta(minutes=minutes))
    rung: list[int] = []
    sweep(rung.append, pending=lambda: 0)
    assert rung == [first.pk, later.pk, last.pk]


def test_sweeps_do_not_flood_the_queue_while_all_workers_are_busy(runner: Runner) -> None:
    runner.task([])
    unheard: list[int] = []
    for _ in range(10):
        sweep(unheard.append, pending=lambda: len(unheard))
    assert len(unheard) == 2


@pytest.mark.parametrize("part", ["end_waits_for_budgets", "end_decided_tasks", "apply_missed_decisions"])
def test_a_part_of_a_sweep_that_fails_stops_no_other(
    runner: Runner, part: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(sweeper, part, broken)
    task = runner.task([])
    rung: list[int] = []
    assert sweep(rung.append, pending=lambda: 0) == 1
    assert rung == [task.pk] and "a sweep failed in broken (broken)" in caplog.text


@pytest.mark.parametrize("fault", ["", "before", "queue"])
def test_a_sweep_forgets_old_notices_but_not_the_newest(runner: Runner, fault: str) -> None:
    """W3: browsers count from its number, also after an hour in which nothing happened, or all failed."""
    runner.task([])
    newest = Change.objects.latest("pk").pk
    Change.objects.update(at=timezone.now() - 2 * CHANGES_KEPT)

    def part(name: str) -> None:
        if name == fault:
            raise RuntimeError("broken")

    running = Sweeper(lambda task_id: part("queue"), pending=int, before=lambda: part("before"))
    running.start()
    running.stop()
    running.join()
    assert list(Change.objects.values_list("pk", flat=True)) == [newest]


def test_after_a_sweep_free_memory_goes_back_to_the_system(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    returned: list[str] = []
    monkeypatch.setattr("tasks_app.engine.sweeper.return_free_memory", lambda: returned.append("returned"))
    running = Sweeper(lambda task_id: None, pending=int)
    running.start()
    running.stop()
    running.join()
    assert returned == ["returned"]


CHECKED = """\
pipelines:
  default:
    - name: do
      command: self
      check: {type: shell, command: "false"}
      retry: 17
"""


def ends_of_leases() -> dict[int, datetime]:
    return {task.pk: task.lease_expires for task in Task.objects.all() if task.lease_expires}


def dsn_of_connection() -> str:
    """The address of this test's own PostgreSQL database."""
    return urlsplit(machine.POSTGRES)._replace(path=f"/{connection.settings_dict['NAME']}").geturl()


@pytest.fixture
def quick_renewals(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Renew every 10 ms; counts renewals, and the leases that each of them renewed."""
    counted: Counter[str] = Counter()
    renew = TaskQuerySet.renew

    def counting(self: TaskQuerySet, leases: Collection[tuple[int, int]], *, seconds: float) -> int:
        done = renew(self, leases, seconds=seconds)
        counted.update(renewals=1, leases=len(leases))
        return done

    monkeypatch.setattr(TaskQuerySet, "renew", counting)
    monkeypatch.setattr("tasks_app.engine.lease.RENEW_SECONDS", 0.01)
    return counted


if machine.ON_POSTGRES:  # SQLite locks no single rows

    @pytest.mark.django_db(transaction=True)
    def test_a_locked_row_costs_no_other_task_its_lease(runner: Runner, quick_renewals: Counter[str]) -> None:
        """R2: a transaction of somebody else that holds one row is nobody else's delay."""
        tasks = [runner.task([]) for _ in range(3)]
        leases = [Lease.claim(task.pk, owner="w") for task in tasks]
        with ExitStack() as stack, psycopg.connect(dsn_of_connection()) as other:
            other.execute("SELECT FROM tasks_app_task WHERE id = %s FOR UPDATE", [tasks[0].pk])
            before = ends_of_leases()
            for lease in leases:
                assert lease is not None
                stack.enter_context(keep_renewed(lease))
            wait_until(lambda: quick_renewals["renewals"] > 3)
            during = ends_of_leases()
            other.rollback()
            wait_until(lambda: ends_of_leases()[tasks[0].pk] > before[tasks[0].pk])
        assert [during[task.pk] > before[task.pk] for task in tasks] == [False, True, True]


@pytest.mark.once(on="sqlite")
def test_many_phases_shorter_than_the_renewal_interval_do_not_add_up(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R2: a lease of 3 s, renewed every 0.5 s; 18 runs of 0.25 s each, with a check and a recording each."""
    monkeypatch.setattr("tasks_app.engine.lease.SECONDS", 3.0)
    monkeypatch.setattr("tasks_app.engine.lease.RENEW_SECONDS", 0.5)
    task = runner.task([say("Done.")], config=CHECKED)
    original, lapsed = runner.fake.run, []

    def run(order, recorder):  # type: ignore[no-untyped-def]
        time.sleep(0.25)
        lapsed.append(Task.objects.free().exists())
        return original(order, recorder)

    runner.fake.run = run  # type: ignore[method-assign]
    assert runner.advance(task).phase == Phase.FAILED
    assert lapsed == [False] * 18


def test_a_lease_is_renewed_in_every_phase_by_one_thread(
    runner: Runner, quick_renewals: Counter[str]
) -> None:
    """R2: reading an old run again, cloning, running, checking, recording: none of them renews by itself."""
    task = runner.task([say("Done.")])
    threads: set[str] = set()
    original = runner.fake.run

    def run(order, recorder):  # type: ignore[no-untyped-def]
        before = quick_renewals["renewals"]
        expire(task)
        wait_until(lambda: quick_renewals["renewals"] > before + 1)
        assert not Task.objects.free().exists()
        threads.update(thread.name for thread in threading.enumerate() if "lease" in thread.name)
        return original(order, recorder)

    runner.fake.run = run  # type: ignore[method-assign]
    assert runner.advance(task).phase == Phase.DONE
    assert threads == {"lease-renewer"}
    assert not [thread for thread in threading.enumerate() if "lease" in thread.name]
    after = quick_renewals["renewals"]
    assert Task.objects.get().lease_expires is None
    assert quick_renewals["renewals"] == after, "who let go does not renew"


def test_all_leases_of_a_process_are_renewed_in_one_statement(
    runner: Runner, quick_renewals: Counter[str]
) -> None:
    """Four slots cost one thread and one write every 5 s."""
    project = runner.project()
    tasks = [runner.task([], project=project) for _ in range(4)]
    with ExitStack() as all_of_them:
        for task in tasks:
            all_of_them.enter_context(keep_renewed(claim(task, "slow")))
            expire(task)
        wait_until(lambda: not Task.objects.free().exists())
        assert len([thread for thread in threading.enumerate() if thread.name == "lease-renewer"]) == 1
        before = quick_renewals.copy()
        wait_until(lambda: quick_renewals["renewals"] >= before["renewals"] + 3)
    since = quick_renewals - before
    assert since["leases"] == 4 * since["renewals"]


def test_a_lease_that_was_let_go_is_not_renewed(runner: Runner) -> None:
    """A renewal that was on its way must not hold a task for nobody."""
    lease = claim(runner.task([]), "slow")
    lease.release()
    assert Task.objects.renew([lease.key], seconds=SECONDS) == 0
    assert Task.objects.get().lease_expires is None


def test_the_keeper_notices_that_a_lease_is_lost_and_the_work_stops(
    runner: Runner, quick_renewals: Counter[str]
) -> None:
    """The other lease is renewed; whoever works under the lost one stops at the next tick."""
    project = runner.project()
    lost, other = claim(runner.task([], project=project), "a"), claim(runner.task([], project=project), "b")
    with keep_renewed(lost), keep_renewed(other):
        expire(Task.objects.get(pk=lost.task_id))
        Task.objects.filter(pk=lost.task_id).update(lease_epoch=lost.epoch + 1)
        wait_until(lambda: not renewer.holds(lost.task_id))
        assert renewer.holds(other.task_id)
        with pytest.raises(LeaseLost):
            lost.phase()
    for fence in (lost.fenced, lost.locked):
        with pytest.raises(LeaseLost), fence():
            raise AssertionError("not reached")


def test_a_renewal_that_fails_is_tried_again(
    runner: Runner, quick_renewals: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The database was locked for a while: the lease is held all the same, and one line is logged."""
    counting, failures = TaskQuerySet.renew, [OperationalError("database is locked")] * 3

    def failing(self: TaskQuerySet, leases: Collection[tuple[int, int]], *, seconds: float) -> int:
        if failures:
            raise failures.pop()
        return counting(self, leases, seconds=seconds)

    monkeypatch.setattr(TaskQuerySet, "renew", failing)
    lease = claim(runner.task([]), "slow")
    with keep_renewed(lease):
        wait_until(lambda: quick_renewals["renewals"] > 0)
        assert lease.phase() == Phase.PENDING


def test_cleaning_keeps_its_lease_like_everybody_else(
    runner: Runner, quick_renewals: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may take minutes, and holds the task no longer than others if it dies."""
    task = runner.advance(runner.task([say("Done.")]))
    remove = cleaning._clean

    def slowly(task: Task, path: Path, sandbox: Sandbox) -> cleaning.Cleaned:
        expire(task)
        wait_until(lambda: not Task.objects.free().exists())
        return remove(task, path, sandbox)

    monkeypatch.setattr(cleaning, "_clean", slowly)
    (cleaned,) = cleaning.clean_workspaces(older_than=timedelta(0), sandbox=runner.sandbox)
    assert (cleaned.task, cleaned.kept) == (task, "")
    assert Task.objects.get().lease_expires is None


def test_a_process_does_not_take_a_task_from_itself(runner: Runner) -> None:
    """After a database that was locked for long the lease has lapsed: the sweeper notifies of the task."""
    task = runner.task([say("Done.")])
    with keep_renewed(claim(task, "this process")):
        expire(task)
        assert runner.advance(task, owner="another thread").phase == Phase.PENDING
    assert runner.advance(task, owner="another thread").phase == Phase.DONE


@pytest.mark.parametrize("phase", [Phase.RUNNING, Phase.PENDING])
def test_a_clock_that_was_set_back_does_not_keep_a_task_from_being_taken_up(
    runner: Runner, phase: Phase
) -> None:
    """R2, R3: its holder died, and the lease ends in an hour by the clock as it is now."""
    task = runner.task([say("Done.")])
    claim(task, "died")
    Task.objects.update(phase=phase, lease_expires=timezone.now() + timedelta(hours=1))
    assert Task.objects.due().get() == task
    assert runner.advance(task).phase == Phase.DONE


def test_a_lease_just_renewed_by_a_clock_a_little_ahead_is_a_lease(runner: Runner) -> None:
    task = runner.task([])
    claim(task, "alive")
    Task.objects.update(lease_expires=timezone.now() + timedelta(seconds=SECONDS + 10))
    assert Lease.claim(task.pk, owner="other") is None


def test_a_task_that_kills_its_workers_fails_in_the_end(runner: Runner) -> None:
    """R3: it must not be taken up for ever, at some dollars each time; a human may let it go on."""
    task = runner.task([say("Done.")])

    def die(order: object, recorder: object) -> RunResult:
        raise SystemExit(137)

    runner.fake.run = die  # type: ignore[method-assign]
    for _ in range(DEATHS):
        with pytest.raises(SystemExit):
            runner.advance(task)
    runner.advance(task)
    task.refresh_from_db()
    assert task.phase == Phase.FAILED
    assert f"died {DEATHS} times" in task.failure
    resume_task(task, by=acting(runner.user), notify=False)
    with pytest.raises(SystemExit):
        runner.advance(task)
    task.refresh_from_db()
    assert task.phase == Phase.RUNNING


def test_a_failure_is_not_counted_against_fresh_attempts(runner: Runner) -> None:
    """Cancelled and let go on while its check was judged: the old failure is nobody's."""
    task = runner.task([say("Done.")])
    lease = claim(task, "slow")
    stale = step(task)
    type(stale).objects.filter(pk=stale.pk).update(phase=Phase.PENDING, failures=0)
    with pytest.raises(IllegalMove):
        may_try_again(stale, lease, "too late")
    assert step(task).failures == 0
