"""The sweeper: it finds due tasks by their rows alone, so that a lost queue entry only delays a task.

Each worker has one, for its own threads: it needs no queue.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import timedelta

from django.db import close_old_connections
from django.db.models.functions import Now

from tasks_app.core.labels import Labels
from tasks_app.core.process_memory import return_free_memory
from tasks_app.engine.logs.compaction import compact_due_runs
from tasks_app.engine.logs.removal import remove_due_logs
from tasks_app.engine.temporary_faults import temporary_fault
from tasks_app.models import Change, ChangeKind, IdempotencyKey, SentSpan, Task
from tasks_app.services.decisions.applying import apply_missed_decisions
from tasks_app.services.usage.cost_limits import end_decided_tasks, end_waits_for_budgets
from tasks_app.services.usage.day_sums import add_up_days
from tasks_app.services.workers.scheduling import next_turns

logger = logging.getLogger(__name__)

SECONDS = 10.0
CHANGES_KEPT = timedelta(hours=1)
KEYS_KEPT = timedelta(hours=24)
SPANS_KEPT = timedelta(days=2)  # longer than spans can be sent: `engine/traces/span_exporter.py`


def sweep(
    enqueue: Callable[[int], None], *, pending: Callable[[], int], labels: Callable[[], Labels] | None = None
) -> int:
    """Enqueue every task that is due and may be worked on, in their order. Return the number of due ones.

    `pending` returns how many entries no thread has taken yet. While they outnumber the due tasks, nothing is
    added: all threads are busy, and each sweep would only make the queue longer. With `labels`, those of this
    worker now, tasks that need others are left to the sweepers of other workers.
    """
    for part in (tell_of_lost_workers, end_waits_for_budgets, end_decided_tasks, apply_missed_decisions):
        attempt(part)
    own = None if labels is None else labels()
    due = next_turns(of=own)
    if pending() > len(due):
        return 0
    for task in due:
        if own is None or task.labels <= own:
            enqueue(task.task_id)
    return len(due)


def tell_of_lost_workers() -> None:
    """Have open pages show anew which running tasks have just lost their worker: no row says it."""
    recently = Now() - timedelta(seconds=3 * SECONDS)
    for task in Task.objects.without_worker().filter(lease_expires__gt=recently):
        Change.objects.create(task=task, kind=ChangeKind.TASK)


def prune() -> None:
    """Delete rows that nobody needs any more."""
    Change.objects.prune_changes(CHANGES_KEPT)
    IdempotencyKey.objects.prune(KEYS_KEPT)
    SentSpan.objects.prune(SPANS_KEPT)


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
        labels: Callable[[], Labels] | None = None,
        before: Callable[[], None] = lambda: None,
    ) -> None:
        """`before` is called before each sweep."""
        super().__init__(name="sweeper", daemon=True)
        self._enqueue = enqueue
        self._pending = pending
        self._labels = labels
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
        sweep(self._enqueue, pending=self._pending, labels=self._labels)

    def stop(self) -> None:
        self._stop_wanted.set()
