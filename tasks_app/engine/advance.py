"""`advance(task)`: the one function that moves a task."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from django.db import connection
from django.utils import timezone

from tasks_app.core.errors import (
    CatHerderError,
    IllegalMove,
    InUse,
    LeaseLost,
    SubmodulesUnavailable,
    TemporaryFault,
    WorkspaceError,
)
from tasks_app.core.phases import Phase
from tasks_app.core.trace_context import log_context, log_for
from tasks_app.engine.crashpoints import crash_point
from tasks_app.engine.lease import Lease, keep_renewed, renewer
from tasks_app.engine.runs.conclude import fail, postpone
from tasks_app.engine.runs.gates import end_early_if_due
from tasks_app.engine.runs.recovery import close_crashed_run, close_interrupted_run, recover
from tasks_app.engine.runs.steps import work_on
from tasks_app.engine.stopping import Stopped, StopReason
from tasks_app.engine.temporary_faults import retry_during_faults, temporary_fault
from tasks_app.engine.traces.spans import context_of_task
from tasks_app.engine.worker_context import WorkerContext
from tasks_app.engine.workers.leaving import is_left_to_others, leave_to_other_host, leave_to_other_worker
from tasks_app.engine.workspaces.recording import commit_for_sequence, tidy_repository
from tasks_app.history.deeds import FINISHED_EARLY
from tasks_app.history.transitions import move
from tasks_app.models import EarlyEnd, Outcome, Run, Step, Task, paths
from tasks_app.services.difference import difference_of
from tasks_app.services.reviews import hand_over_waiting
from tasks_app.services.sequences import look_for_next, proceed
from tasks_app.services.usage.cost_limits import end_if_decided

logger = logging.getLogger(__name__)


def advance(
    task_id: int, *, owner: str, context: WorkerContext, when_claimed: Callable[[], None] = lambda: None
) -> bool:
    """Work on the task until it must wait or has ended. Return whether there was anything to do.

    The worker, the sweeper and the terminal all call it. Whatever happens to a task only makes it worth
    calling again, and calling it twice is harmless: the holder of the lease works, and any other caller
    returns at once. `when_claimed` is called once, when the lease was claimed.
    """
    if renewer.holds(task_id):
        return False
    worked = False
    while (lease := _claim_lease(task_id, owner, context)) is not None:
        if not worked:
            when_claimed()
        worked = True
        crash_point("claimed")
        try:
            with keep_renewed(lease), log_context():
                _work(lease, context)
        except LeaseLost as lost:
            logger.warning("%s", lost)
            return worked
        except Exception as error:
            if not (fault := temporary_fault(error)):
                raise
            # The fault could not even be stored. The task is due again once the lease has lapsed.
            logger.warning("task %s is retried when its lease has lapsed: %s", task_id, fault)
            return worked
        finally:
            _release(lease)
        if context.stop_signal():
            return worked
        # An answer may have come while the lease was still held: then the task is due again.
    if worked:
        tidy_repository(task_id)
    return worked


def _claim_lease(task_id: int, owner: str, context: WorkerContext) -> Lease | None:
    """Claim the lease if there is work to do. Return None while the database cannot be written, too.

    A worker needs the labels of the next step and a place under the limits; a terminal needs neither.
    """
    try:
        if context.labels is None:
            return Lease.claim(task_id, owner=owner)
        if is_left_to_others(task_id, context):
            return None
        return Lease.claim_place(task_id, owner=owner)
    except Exception as error:
        if not (fault := temporary_fault(error)):
            raise
        logger.warning("task %s cannot be claimed now: %s", task_id, fault)
        connection.close()
        return None


def _release(lease: Lease) -> None:
    try:
        lease.release()
    except Exception as error:
        if not temporary_fault(error):
            raise
        connection.close()  # the lease lapses by itself


def _work(lease: Lease, context: WorkerContext) -> None:
    """Run the task's steps and store whatever ends the work early."""
    try:
        task = lease.task()
        log_for(context_of_task(task))
        # With its files at hand: a worker host fetches them first.
        with paths.repository(task.project).held_for(lease.key, branch=task.branch):
            _run_steps(lease, context)
    except LeaseLost:
        raise
    except Stopped as stopped:
        retry_during_faults(partial(_pause_between_runs, lease, stopped.reason))
    except IllegalMove as error:
        retry_during_faults(partial(_accept_other_phase, lease, error))
    except Exception as error:
        if fault := temporary_fault(error):
            # Our own fault is the sentence already; of others the log has the library's words, too.
            cause = "" if isinstance(error, TemporaryFault) else f" ({error})"
            logger.warning("task %s is postponed: %s%s", lease.task_id, fault, cause)
            faults = 1 if isinstance(error, InUse) else None
            retry_during_faults(partial(_put_off, lease, fault, faults))
        elif isinstance(error, SubmodulesUnavailable):
            retry_during_faults(partial(_leave_or_fail, lease, context, error))
        else:
            retry_during_faults(partial(_fail_task, lease, _failure_reason(lease, error)))


def _run_steps(lease: Lease, context: WorkerContext) -> None:
    task = _start_task(lease)
    if task.phase != Phase.RUNNING:
        crash_point("ended-at-soft-limit")
        return
    crash_point("begun")
    finished = False
    while not finished:
        for step in task.steps.exclude(phase=Phase.DONE).select_related("task__project"):
            finishes = step.task.is_finishing_early and not step.current_runs.exists()
            if finishes and end_early_if_due(step, lease, context):
                return
            if leave_to_other_worker(step, lease, context) or not work_on(step, lease, context):
                return
        finished = _finish_task(task, lease, context)
    crash_point("task-done")


def _leave_or_fail(lease: Lease, context: WorkerContext, error: SubmodulesUnavailable) -> None:
    if not leave_to_other_host(lease, context, error):
        _fail_task(lease, str(error))


def _failure_reason(lease: Lease, error: Exception) -> str:
    """Return why the task fails, in words for people."""
    if isinstance(error, CatHerderError):
        return str(error)
    logger.error("task %s failed because of a bug in the portal", lease.task_id, exc_info=error)
    return (
        f"The portal itself failed ({type(error).__name__}: {error}). Resume the task to try again; "
        f"if it fails again, report it with what the worker's log says of task {lease.task_id}."
    )


def _put_off(lease: Lease, fault: str, faults: int | None) -> None:
    """Let the task be retried after a temporary fault. Reports of the run until then count."""
    recovered = recover(lease)
    with lease.fenced() as task:
        for run in recovered:
            close_interrupted_run(task, run, lease, fault)
        postpone(lease, fault, faults=faults)


def _accept_other_phase(lease: Lease, error: IllegalMove) -> None:
    """Leave a task alone that somebody else moved, mostly by cancelling it.

    A task that is still running fails instead: it would end here again each time that it is due.
    """
    logger.info("task %s: %s", lease.task_id, error)
    with lease.fenced() as task:
        still_running = task.phase == Phase.RUNNING
    if still_running:
        _fail_task(lease, str(error))


def _finish_task(task: Task, lease: Lease, context: WorkerContext) -> bool:
    """Move the task to `done` and queue the next task of its sequence, in one transaction to lose none.

    Returns False if reviewers have requested changes meanwhile: then steps are pending again.
    """
    sequence = task.sequence
    if sequence:
        commit_for_sequence(task, context)
    upcoming = look_for_next(sequence) if sequence else None
    only_rehearsed = _is_only_rehearsed(task.pk)
    with lease.fenced() as task:
        if hand_over_waiting(task, epoch=lease.epoch):
            return False
        early_end, reason = "", ""
        if task.is_finishing_early:
            early_end, reason = EarlyEnd.LAST_STEP, FINISHED_EARLY
        elif only_rehearsed:
            early_end, reason = EarlyEnd.REHEARSED, "Rehearsed: nothing was changed."
        publish_due = task.publish is not None and early_end != EarlyEnd.REHEARSED
        move(
            task, Phase.DONE, reason=reason, epoch=lease.epoch, early_end=early_end, publish_due=publish_due
        )  # fmt: skip
        if sequence and upcoming:
            sequence.refresh_from_db()
            proceed(sequence, upcoming, notify=context.queues_next)
    return True


def _is_only_rehearsed(task_id: int) -> bool:
    """Return whether a script has played the model in all of its runs, and nothing was changed."""
    if set(Run.objects.filter(step__task=task_id).values_list("rehearsed", flat=True)) != {True}:
        return False
    task = Task.objects.select_related("project", "sequence").get(pk=task_id)
    if task.project.is_sample:
        return False
    try:
        difference = difference_of(task)
        return difference is None or not difference.files()
    except WorkspaceError:  # a commit is lost
        return False


def _start_task(lease: Lease) -> Task:
    """Close the runs of a worker that died, then move the task to `running`.

    The task may be waiting for input afterwards, if such a run had asked something; or cancelled, if a human
    decided so at its soft cost limit.
    """
    recovered = recover(lease)
    with lease.fenced() as task:
        for run in recovered:
            close_crashed_run(task, run, lease)
            task.refresh_from_db(fields=["phase"])
        if task.phase == Phase.WAITING_FOR_RESET:
            _end_wait_for_reset(task, lease)
        if task.phase == Phase.PENDING and not end_if_decided(task):
            move(task, Phase.RUNNING, epoch=lease.epoch, retry_at=None)
    return task


def _end_wait_for_reset(task: Task, lease: Lease) -> None:
    reason = "the usage limit has been reset"
    if task.waits_for_budget:
        reason = "looks whether some of the budget is left"
    for step in task.steps.filter(phase=Phase.WAITING_FOR_RESET):
        move(step, Phase.PENDING, reason=reason, epoch=lease.epoch)
    move(task, Phase.PENDING, reason=reason, epoch=lease.epoch)


def _running_step(task: Task) -> Step | None:
    return task.steps.filter(phase=Phase.RUNNING).first()


def _pause_between_runs(lease: Lease, reason: StopReason) -> None:
    """Pause a task that was stopped while no agent ran, for example during a check."""
    if reason in (StopReason.CANCELLED, StopReason.TAKEN_BACK):
        return
    target = Phase.INTERRUPTED if reason is StopReason.INTERRUPTED else Phase.PENDING
    with lease.fenced() as task:
        step = _running_step(task)
        if step is not None:
            move(step, target, reason=reason, epoch=lease.epoch)
        if task.phase == Phase.RUNNING:
            move(task, target, reason=reason, epoch=lease.epoch)


def _fail_task(lease: Lease, reason: str) -> None:
    """Fail the task, so that none stays `running` while nothing runs (R3)."""
    with lease.fenced() as task:
        # Close the current run, too: it would be read again, and may be what cannot be read.
        runs = Run.objects.filter(step__task=task, outcome="")
        runs.update(outcome=Outcome.FAILED, error=reason, ended_at=timezone.now())
        if task.phase == Phase.PENDING:
            move(task, Phase.RUNNING, epoch=lease.epoch)
        step = _running_step(task)
        if step is not None:
            fail(lease, step, reason)
        elif task.phase == Phase.RUNNING:
            move(task, Phase.FAILED, reason=reason[:300], epoch=lease.epoch, failure=reason)
