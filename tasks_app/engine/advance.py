"""`advance(task)`: the one function that moves a task."""

from __future__ import annotations

import logging
from functools import partial

from django.db import connection
from django.utils import timezone

from tasks_app.core.errors import CatHerderError, IllegalMove, LeaseLost
from tasks_app.core.phases import Phase
from tasks_app.engine.conclude import fail, put_off
from tasks_app.engine.crashpoints import reached
from tasks_app.engine.faults import passing, patiently
from tasks_app.engine.lease import Lease, keeper, kept
from tasks_app.engine.recording import settle_in_sequence, tidy
from tasks_app.engine.recovery import note_crash, note_fault, salvage
from tasks_app.engine.steps import work_on
from tasks_app.engine.stopping import Stopped, StopReason
from tasks_app.engine.worker_context import WorkerContext
from tasks_app.history.statistics import paused_until_now
from tasks_app.history.transitions import move
from tasks_app.models import Outcome, Run, Step, Task
from tasks_app.services.sequences import look_for_next, proceed

logger = logging.getLogger(__name__)


def advance(task_id: int, *, owner: str, context: WorkerContext) -> bool:
    """Work on the task until it must wait or has ended; whether there was anything to do.

    Called by a worker, the sweeper and the terminal alike. Everything that happens to a task only
    makes it worth calling again, and calling it twice is harmless: whoever holds the lease works,
    anybody else returns at once.
    """
    if keeper.holds(task_id):
        return False
    worked = False
    while (lease := _claimed(task_id, owner)) is not None:
        worked = True
        reached("claimed")
        try:
            with kept(lease):
                _work(lease, context)
        except LeaseLost as lost:
            logger.warning("%s", lost)
            return worked
        except Exception as error:
            if not (fault := passing(error)):
                raise
            # Not even that could be written. The lease lapses, and then the task is due again.
            logger.warning("task %s is taken up again when its lease has lapsed: %s", task_id, fault)
            return worked
        finally:
            _release(lease)
        if context.stop_signal():
            return worked
        # An answer may have come while the lease was still held: then the task is due again.
    if worked:
        tidy(task_id)
    return worked


def _claimed(task_id: int, owner: str) -> Lease | None:
    """The lease, if there is something to do; also none if the database cannot be written now."""
    try:
        return Lease.claim(task_id, owner=owner)
    except Exception as error:
        if not (fault := passing(error)):
            raise
        logger.warning("task %s cannot be taken up now: %s", task_id, fault)
        connection.close()
        return None


def _release(lease: Lease) -> None:
    try:
        lease.release()
    except Exception as error:
        if not passing(error):
            raise
        connection.close()  # it lapses by itself


def _work(lease: Lease, context: WorkerContext) -> None:
    try:
        _go_on(lease, context)
    except LeaseLost:
        raise
    except Stopped as stopped:
        patiently(partial(_put_back, lease, stopped.reason))
    except IllegalMove as error:
        patiently(partial(_settle, lease, error))
    except Exception as error:
        if fault := passing(error):
            logger.warning("task %s is put off: %s (%s)", lease.task_id, fault, error)
            patiently(partial(_put_off, lease, fault))
        else:
            patiently(partial(_give_up, lease, _reason(lease, error)))


def _go_on(lease: Lease, context: WorkerContext) -> None:
    task = _begin(lease)
    if task.phase != Phase.RUNNING:
        return
    reached("begun")
    for step in task.steps.exclude(phase=Phase.DONE).select_related("task__project"):
        if not work_on(step, lease, context):
            return
    _finish(task, lease, context)
    reached("task-done")


def _reason(lease: Lease, error: Exception) -> str:
    """Why the task fails, in words for people."""
    if isinstance(error, CatHerderError):
        return str(error)
    logger.error("task %s stopped at a fault of the portal", lease.task_id, exc_info=error)
    return (
        f"The portal itself failed ({type(error).__name__}: {error}). Resume the task to try again; "
        f"if it fails again, report it with what the worker's log says of task {lease.task_id}."
    )


def _put_off(lease: Lease, fault: str) -> None:
    """What was in the way passes. What the run had said until then counts."""
    salvaged = salvage(lease)
    with lease.fenced() as task:
        for found in salvaged:
            note_fault(task, found, lease, fault)
        put_off(lease, fault)


def _settle(lease: Lease, error: IllegalMove) -> None:
    """Mostly somebody cancelled it between two looks, and the rows say so. If not, it must not spin."""
    logger.info("task %s: %s", lease.task_id, error)
    with lease.fenced() as task:
        still_running = task.phase == Phase.RUNNING
    if still_running:
        _give_up(lease, str(error))


def _finish(task: Task, lease: Lease, context: WorkerContext) -> None:
    """Done; and in the same transaction the next task of its sequence is queued, so that none is lost."""
    sequence = task.sequence
    if sequence:
        settle_in_sequence(task, context)
    upcoming = look_for_next(sequence) if sequence else None
    with lease.fenced() as task:
        move(task, Phase.DONE, epoch=lease.epoch)
        if sequence and upcoming:
            sequence.refresh_from_db()
            proceed(sequence, upcoming, ring=context.queues_next)


def _begin(lease: Lease) -> Task:
    """Bring the rows to `running`, whatever the last worker left behind; or to a halt that it missed."""
    salvaged = salvage(lease)
    with lease.fenced() as task:
        for found in salvaged:
            note_crash(task, found, lease)
        task.refresh_from_db(fields=["phase"])
        if task.phase == Phase.WAITING_FOR_RESET:
            _limit_is_over(task, lease)
        if task.phase == Phase.PENDING:
            move(task, Phase.RUNNING, epoch=lease.epoch, retry_at=None)
    return task


def _limit_is_over(task: Task, lease: Lease) -> None:
    reason = "the usage limit has been reset"
    for step in task.steps.filter(phase=Phase.WAITING_FOR_RESET):
        move(step, Phase.PENDING, reason=reason, epoch=lease.epoch)
    paused = paused_until_now(task)
    move(task, Phase.PENDING, reason=reason, epoch=lease.epoch, paused_seconds=paused)


def _current_step(task: Task) -> Step | None:
    return task.steps.filter(phase=Phase.RUNNING).first()


def _put_back(lease: Lease, reason: StopReason) -> None:
    """Stopped between runs, during a check say."""
    if reason is StopReason.CANCELLED:
        return
    target = Phase.INTERRUPTED if reason is StopReason.INTERRUPTED else Phase.PENDING
    with lease.fenced() as task:
        step = _current_step(task)
        if step is not None:
            move(step, target, reason=reason, epoch=lease.epoch)
        if task.phase == Phase.RUNNING:
            move(task, target, reason=reason, epoch=lease.epoch)


def _give_up(lease: Lease, reason: str) -> None:
    """No task stays `running` when nothing runs (R3)."""
    with lease.fenced() as task:
        # Also the run that it happened in: it would be read again, and may be what cannot be read.
        runs = Run.objects.filter(step__task=task, outcome="")
        runs.update(outcome=Outcome.FAILED, error=reason, ended_at=timezone.now())
        if task.phase == Phase.PENDING:
            move(task, Phase.RUNNING, epoch=lease.epoch)
        step = _current_step(task)
        if step is not None:
            fail(lease, step, reason)
        elif task.phase == Phase.RUNNING:
            move(task, Phase.FAILED, reason=reason[:300], epoch=lease.epoch, failure=reason)
