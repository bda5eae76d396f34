"""A worker's free slot: it takes one task after the other, each the one whose turn it is (M4)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial

from tasks_app.core.labels import Labels
from tasks_app.engine.advance import advance
from tasks_app.engine.temporary_faults import temporary_fault
from tasks_app.engine.worker_context import WorkerContext
from tasks_app.engine.workers.leaving import hosts_that_left, is_left_to_others
from tasks_app.services.workers.scheduling import (
    DueTask,
    next_turns,
    turns_of_worker,
    worker_with_labels_exists,
)

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class QueueNotifier:
    """How a slot wakes others: `notify` and `pass_on` add an entry to the queue, `pending` counts them.

    All are hints. An entry says only that there is work; whoever takes it looks whose turn it is. `notify` is
    for any worker; `pass_on` for a task that this one may not take, and it may refuse.
    """

    notify: Callable[[int], None]
    pass_on: Callable[[int], None]
    pending: Callable[[], int]


def take_turns(
    *,
    owner: str,
    context: WorkerContext,
    notifier: QueueNotifier,
    goes_on: Callable[[], bool] = lambda: True,
) -> list[int]:
    """Work on due tasks until none is left that this worker may take. Return the tasks that it worked on.

    No task is tried twice in one call: one that ends at once because of a temporary fault would keep the slot
    busy. With each task that is claimed the next slot is woken if more is left, so that one entry is enough
    for all of them, and there are never more entries than claims.
    """
    tried: set[int] = set()
    worked: list[int] = []
    while not context.stop_signal():
        if not goes_on():
            _wake([task.task_id for task in _next_turns(context)] if worked else [], notifier)
            break
        mine = [task.task_id for task in turns_of_worker(context.labels, _next_turns(context, tried))]
        if not mine:
            _leave_to_others(_next_turns(context), tried, context, notifier)
            break
        tried.add(mine[0])
        if advance(mine[0], owner=owner, context=context, when_claimed=partial(_wake, mine[1:], notifier)):
            worked.append(mine[0])
    return worked


def may_take(labels: Labels, context: WorkerContext) -> bool:
    """Return whether the worker has all of the labels; a terminal works on whatever it is told to."""
    return context.labels is None or labels <= context.labels


def _next_turns(context: WorkerContext, tried: Collection[int] = ()) -> list[DueTask]:
    try:
        return next_turns(without=tried, of=context.labels)
    except Exception as error:
        if not (fault := temporary_fault(error)):
            raise
        logger.warning("the next task cannot be looked for now: %s", fault)
        return []


def _wake(more: list[int], notifier: QueueNotifier) -> None:
    """Wake another slot if more tasks wait, unless an entry is there already: then somebody will look."""
    if more and not notifier.pending():
        notifier.notify(more[0])


def _leave_to_others(
    turns: list[DueTask], tried: Collection[int], context: WorkerContext, notifier: QueueNotifier
) -> None:
    """Wake somebody for the first task that only other workers may take, if one of them has a free slot.

    That is also a task that this worker has `tried` and left, because its host lacks something for it.
    """
    for task in turns:
        leaves = task.task_id in tried and is_left_to_others(task.task_id, context)
        if may_take(task.labels, context) and not leaves:
            continue
        if worker_with_labels_exists(task.labels, without=hosts_that_left(task.task_id) if leaves else ()):
            if not notifier.pending():
                notifier.pass_on(task.task_id)
            return
