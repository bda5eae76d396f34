"""The sweeper: it finds due tasks by their rows alone, so that a lost queue entry only delays a task."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import timedelta

from django.db import close_old_connections

from tasks_app.engine.temporary_faults import temporary_fault
from tasks_app.models import Change, IdempotencyKey, Task
from tasks_app.services.budgets import end_waits_for_budgets

logger = logging.getLogger(__name__)

SECONDS = 10.0
CHANGES_KEPT = timedelta(hours=1)
KEYS_KEPT = timedelta(hours=24)


def sweep(enqueue: Callable[[int], None], *, pending: Callable[[], int]) -> int:
    """Put every due task into the queue, the longest waiting first. Return their number.

    `pending` returns how many queue entries no worker has taken yet. While they outnumber the due tasks,
    nothing is added: all workers are busy, and each sweep would only make the queue longer.
    """
    end_waits_for_budgets()
    due = list(Task.objects.due().order_by("queued_at", "pk").values_list("pk", flat=True))
    if pending() > len(due):
        return 0
    for task_id in due:
        enqueue(task_id)
    return len(due)


class Sweeper(threading.Thread):
    """Sweeps at the start and then every SECONDS until it is stopped. A sweep that fails is logged."""

    def __init__(self, enqueue: Callable[[int], None], *, pending: Callable[[], int]) -> None:
        super().__init__(name="sweeper", daemon=True)
        self._enqueue = enqueue
        self._pending = pending
        self._stop_wanted = threading.Event()

    def run(self) -> None:
        while True:
            try:
                close_old_connections()
                sweep(self._enqueue, pending=self._pending)
                Change.objects.prune_changes(CHANGES_KEPT)
                IdempotencyKey.objects.prune(KEYS_KEPT)
            except Exception as error:
                # A temporary fault gets one line without a traceback: it may be logged every 10 s for hours.
                trace = None if temporary_fault(error) else error
                logger.error("a sweep failed (%s); the next is in %s s", error, SECONDS, exc_info=trace)
            finally:
                close_old_connections()
            if self._stop_wanted.wait(SECONDS):
                return

    def stop(self) -> None:
        self._stop_wanted.set()
