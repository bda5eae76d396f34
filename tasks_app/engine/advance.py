"""`advance(task)`: the one function that moves a task."""

from __future__ import annotations

import logging

from django.utils import timezone

from tasks_app.actions.sequences import look_for_next, proceed
from tasks_app.engine.conclude import fail
from tasks_app.engine.crashpoints import reached
from tasks_app.engine.lease import Lease
from tasks_app.engine.recording import tidy
from tasks_app.engine.recovery import note_crash, salvage
from tasks_app.engine.shop import Shop
from tasks_app.engine.steps import work_on
from tasks_app.engine.stopping import Stopped, StopReason
from tasks_app.errors import CatHerderError, IllegalMove, LeaseLost
from tasks_app.models import Outcome, Run, Step, Task
from tasks_app.state.phases import Phase
from tasks_app.stats import paused_until_now
from tasks_app.transitions import move

logger = logging.getLogger(__name__)


def advance(task_id: int, *, owner: str, shop: Shop) -> bool:
    """Work on the task until it must wait or has ended; whether there was anything to do.

    Called by a worker, the sweeper and the terminal alike. Everything that happens to a task only
    makes it worth calling again, and calling it twice is harmless: whoever holds the lease works,
    anybody else returns at once.
    """
    worked = False
    while (lease := Lease.claim(task_id, owner=owner)) is not None:
        worked = True
        reached("claimed")
        try:
            _work(lease, shop)
        except LeaseLost as lost:
            logger.warning("%s", lost)
            return worked
        finally:
            lease.release()
        if shop.stop_signal():
            return worked
        # An answer may have come while the lease was still held: then the task is due again.
    if worked:
        tidy(task_id)
    return worked


def _work(lease: Lease, shop: Shop) -> None:
    try:
        task = _begin(lease)
        if task.phase != Phase.RUNNING:
            return
        reached("begun")
        for step in task.steps.exclude(phase=Phase.DONE).select_related("task__project"):
            if not work_on(step, lease, shop):
                return
        _finish(task, lease, shop)
        reached("task-done")
    except LeaseLost:
        raise
    except Stopped as stopped:
        _put_back(lease, stopped.reason)
    except IllegalMove as error:
        _settle(lease, error)
    except CatHerderError as error:
        _give_up(lease, str(error))
    except Exception as error:
        logger.exception("task %s stopped at a fault of the portal", lease.task_id)
        _give_up(lease, f"The portal itself failed ({type(error).__name__}: {error}). Its log says more.")


def _settle(lease: Lease, error: IllegalMove) -> None:
    """Mostly somebody cancelled it between two looks, and the rows say so. If not, it must not spin."""
    logger.info("task %s: %s", lease.task_id, error)
    with lease.fenced() as task:
        still_running = task.phase == Phase.RUNNING
    if still_running:
        _give_up(lease, str(error))


def _finish(task: Task, lease: Lease, shop: Shop) -> None:
    """Done; and in the same transaction the next task of its sequence is queued, so that none is lost."""
    sequence = task.sequence
    upcoming = look_for_next(sequence) if sequence else None
    with lease.fenced() as task:
        move(task, Phase.DONE, epoch=lease.epoch)
        if sequence and upcoming:
            sequence.refresh_from_db()
            proceed(sequence, upcoming, ring=shop.rings)


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
            move(task, Phase.RUNNING, epoch=lease.epoch)
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
