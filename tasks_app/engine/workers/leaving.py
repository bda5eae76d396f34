"""Leaving a task to another worker, because this one lacks something for it (M6)."""

from __future__ import annotations

from tasks_app.core.errors import SubmodulesUnavailable
from tasks_app.core.labels import Labels, labels_in_words
from tasks_app.core.phases import Phase
from tasks_app.engine.lease import Lease
from tasks_app.engine.worker_context import WorkerContext
from tasks_app.engine.workers.heartbeat import host_name
from tasks_app.engine.workers.machine import missing_here
from tasks_app.history.transitions import move, move_both
from tasks_app.models import Step, Task, WorkerBeat
from tasks_app.services.workers.hosts import host_with_unrecorded_work
from tasks_app.services.workers.scheduling import KnownHosts, labels_of_next_step, labels_of_step


def is_left_to_others(task_id: int, context: WorkerContext) -> bool:
    """Return whether this worker leaves the task alone. A terminal works on whatever it is told to."""
    if context.labels is None:
        return False
    needed = labels_of_next_step(task_id)
    # Without the second look a worker would claim and leave the task again and again.
    if not needed <= context.labels or missing_here(needed, context.sandbox):
        return True
    if _awaited_host(task_id, needed):
        return True
    left_by = _left_by(task_id)
    return host_name() in left_by and bool(KnownHosts().others(needed, left_by))


def _awaited_host(task_id: int, needed: Labels) -> str:
    """Return the other host that has unrecorded work of the task and will go on with it, or "".

    One that is lost is not awaited: it was last seen before the lease of its worker lapsed.
    """
    task = Task.objects.filter(pk=task_id).first()
    host = host_with_unrecorded_work(task) if task else ""
    workers = WorkerBeat.objects.seen_recently().filter(host=host, problem="")
    if host and any(needed <= frozenset(worker.labels) for worker in workers):
        return host
    return ""


def hosts_that_left(task_id: int) -> list[str]:
    """Return the hosts that leave the task to others, this one included."""
    needed = labels_of_next_step(task_id)
    if host := _awaited_host(task_id, needed):
        return sorted({*KnownHosts().others(needed, [host]), host_name()})
    return sorted({*_left_by(task_id), host_name()})


def _left_by(task_id: int) -> list[str]:
    return Task.objects.filter(pk=task_id).values_list("left_by", flat=True).first() or []


def leave_to_other_worker(step: Step, lease: Lease, context: WorkerContext) -> bool:
    """Put the task back if its next step needs labels that this worker lacks. Return whether it does."""
    if context.labels is None:
        return False
    needed = labels_of_step(step)
    # A toolchain may have been removed since this worker began to take tasks.
    if not (missing := (needed - context.labels) | missing_here(needed, context.sandbox)):
        return False
    with lease.fenced() as task:
        reason = f"step “{step}” needs a worker with {labels_in_words(missing)}"
        move(task, Phase.PENDING, reason=reason[:300], epoch=lease.epoch)
    return True


def leave_to_other_host(lease: Lease, context: WorkerContext, error: SubmodulesUnavailable) -> bool:
    """Put the task back if another host may reach its submodules. Return whether one may.

    One that takes no tasks now, but may soon, is awaited. Each host tries once. If none is left, the task
    fails, and all may try when it is resumed.
    """
    with lease.fenced() as task:
        step = task.steps.filter(phase=Phase.RUNNING).first()
        tried = sorted({*task.left_by, host_name()})
        if context.labels is None or step is None:
            return False
        others = KnownHosts().others(labels_of_step(step), tried)
        task.left_by = tried if others else []
        task.save(update_fields=["left_by"])
        if not others:
            return False
        reason = f"another host may reach its submodules: {error}"[:300]
        move_both(step, task, Phase.PENDING, reason=reason, epoch=lease.epoch)
    return True
