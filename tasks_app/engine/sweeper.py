"""The sweeper: finds what is due from the rows alone, so that a lost ring delays but never loses."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import timedelta

from django.db import close_old_connections

from tasks_app.engine.faults import passing
from tasks_app.models import Change, IdempotencyKey, Task

logger = logging.getLogger(__name__)

SECONDS = 10.0
CHANGES_KEPT = timedelta(hours=1)
KEYS_KEPT = timedelta(hours=24)


def sweep(ring: Callable[[int], None], *, pending: Callable[[], int]) -> int:
    """Ring for every due task, the longest queued first; how many were rung for.

    `pending`: how many rings no worker has heard yet. While these are more than there are due tasks,
    nobody is rung for: all workers are busy, and each sweep would only make the queue longer.
    """
    due = list(Task.objects.due().order_by("queued_at", "pk").values_list("pk", flat=True))
    if pending() > len(due):
        return 0
    for task_id in due:
        ring(task_id)
    return len(due)


class Sweeper(threading.Thread):
    """Sweeps at the start and then every SECONDS, until stopped. A failing sweep is logged and repeated."""

    def __init__(self, ring: Callable[[int], None], *, pending: Callable[[], int]) -> None:
        super().__init__(name="sweeper", daemon=True)
        self._ring = ring
        self._pending = pending
        self._stop_wanted = threading.Event()

    def run(self) -> None:
        while True:
            try:
                close_old_connections()
                sweep(self._ring, pending=self._pending)
                Change.objects.prune_changes(CHANGES_KEPT)
                IdempotencyKey.objects.prune(KEYS_KEPT)
            except Exception as error:
                # What passes is one line: it may be said every 10 s for hours.
                trace = None if passing(error) else error
                logger.error("a sweep failed (%s); the next is in %s s", error, SECONDS, exc_info=trace)
            finally:
                close_old_connections()
            if self._stop_wanted.wait(SECONDS):
                return

    def stop(self) -> None:
        self._stop_wanted.set()
