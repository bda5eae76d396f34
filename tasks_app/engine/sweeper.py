"""The sweeper: it finds due tasks by their rows alone, so that a lost queue entry only delays a task."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from django.db import close_old_connections

from tasks_app.core.allocator import return_free_memory
from tasks_app.core.labels import Labels
from tasks_app.engine.logs.compaction import compact_due_runs
from tasks_app.engine.logs.removal import remove_due_logs
from tasks_app.engine.temporary_faults import temporary_fault
from tasks_app.history.day_sums import add_up_days
from tasks_app.models import Change, IdempotencyKey, Span
from tasks_app.services.costs.budgets import end_waits_for_budgets
from tasks_app.services.costs.soft_limit import end_decided_tasks
from tasks_app.services.decisions.missed import apply_missed_decisions
from tasks_app.services.workers.scheduling import next_turns

logger = logging.getLogger(__name__)

SECONDS = 10.0
CHANGES_KEPT = timedelta(hours=1)
KEYS_KEPT = timedelta(hours=24)


@dataclass(frozen=True)
class ThisWorker:
    """The labels of this process now, and how a task gets into its own queue, which no other worker reads."""

    labels: Callable[[], Labels]
    enqueue: Callable[[int], None]


def sweep(
    enqueue: Callable[[int], None], *, pending: Callable[[], int], here: ThisWorker | None = None
) -> int:
    """Put every task into the queue that is due and may be worked on, in their order. Return the number.

    `pending` returns how many queue entries no worker has taken yet. While they outnumber the due tasks,
    nothing is added: all workers are busy, and each sweep would only make the queue longer. A task that needs
    labels goes into this worker's own queue if it has them: in the other one any worker would find it.
    """
    for part in (end_waits_for_budgets, end_decided_tasks, apply_missed_decisions):
        attempt(part)
    due = next_turns(of=here.labels() if here else None)
    if pending() > len(due):
        return 0
    for task in due:
        if here is None or not task.labels:
            enqueue(task.task_id)
        elif task.labels <= here.labels():
            here.enqueue(task.task_id)
    return len(due)


def prune() -> None:
    """Delete rows that nobody needs any more."""
    Change.objects.prune_changes(CHANGES_KEPT)
    IdempotencyKey.objects.prune(KEYS_KEPT)
    Span.objects.prune()


def attempt(part: Callable[[], object]) -> None:
    """Do a part of a sweep. If it fails, that is logged, and the other parts go on."""
    try:
        part()
    except Exception as error:
        # A temporary fault gets one line without a traceback: it may be logged every 10 s for hours.
        trace = None if temporary_fault(error) else error
        name = getattr(part, "__name__", "a part")
        logger.error("a sweep failed in %s (%s); the next is in %s s", name, error, SECONDS, exc_info=trace)


class Sweeper(threading.Thread):
    """Sweeps at the start and then every SECONDS until it is stopped. A part that fails is logged."""

    def __init__(
        self,
        enqueue: Callable[[int], None],
        *,
        pending: Callable[[], int],
        here: ThisWorker | None = None,
        before: Callable[[], None] = lambda: None,
    ) -> None:
        """`before` is called before each sweep."""
        super().__init__(name="sweeper", daemon=True)
        self._enqueue = enqueue
        self._pending = pending
        self._here = here
        self._before = before
        self._stop_wanted = threading.Event()

    def run(self) -> None:
        while True:
            parts = (
                close_old_connections,
                self._before,
                self._sweep,
                prune,
                add_up_days,
                compact_due_runs,
                remove_due_logs,
                close_old_connections,
                return_free_memory,
            )
            for part in parts:
                attempt(part)
            if self._stop_wanted.wait(SECONDS):
                return

    def _sweep(self) -> None:
        sweep(self._enqueue, pending=self._pending, here=self._here)

    def stop(self) -> None:
        self._stop_wanted.set()
