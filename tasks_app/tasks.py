"""Huey's jobs. A job only says “there is work”; it may be lost, repeated or late."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from dataclasses import replace
from datetime import timedelta

from huey.contrib.djhuey import HUEY, db_task

from tasks_app.core.labels import Labels
from tasks_app.engine.stopping import StopReason
from tasks_app.engine.workers.intake import Intake

logger = logging.getLogger(__name__)

#: Set when this worker is told to stop, so that runs are put back for the next one.
stopping = threading.Event()
#: What this worker has, and whether it takes tasks, as its command says.
labels: Labels = frozenset()
intake = Intake()

#: How often this process passes an entry on for one task between two sweeps, and what its thread waits then,
#: so that another worker takes the entry. The sweeper of the worker that may take it needs no entry.
MOST_PASSED_ON = 20
PASS_ON_PAUSE = 0.1
#: A job may come shortly before the time for undo is over, because clocks differ: by how much, and after what
#: time it is repeated.
CLOCKS_DIFFER = timedelta(seconds=2)
UNDO_PAUSE = 0.2
#: For how long a worker counts on the toolchains that it found. A task that lacks one then is left to others.
LABELS_SECONDS = 5.0


class PassingOn:
    """Counts the entries that this worker leaves to others, so that they do not go round for ever."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._times: Counter[int] = Counter()

    def __call__(self, task_id: int) -> None:
        with self._lock:
            self._times[task_id] += 1
            if self._times[task_id] > MOST_PASSED_ON:
                return
        notify_worker(task_id)
        time.sleep(PASS_ON_PAUSE)

    def forget(self) -> None:
        """Begin to count anew, as the sweeper does."""
        with self._lock:
            self._times.clear()


passing_on = PassingOn()
_labels_known: tuple[float, Labels] = (float("-inf"), frozenset())


@db_task()  # type: ignore[untyped-decorator]
def look_at(task_id: int) -> None:
    """Work on the tasks whose turn it is; `task_id` is the one that somebody was woken for."""
    # Imported late: every process can queue jobs, but few run agents, whose SDK takes 0.5 s and 50 MB.
    from tasks_app import composition
    from tasks_app.engine.turns import QueueNotifier, take_turns
    from tasks_app.models import Task

    context = replace(composition.worker_context(_stop_signal), labels=_recent_labels())
    notifier = QueueNotifier(notify=notify_worker, pass_on=passing_on, pending=_pending)
    worked = take_turns(
        owner=composition.owner(),
        context=context,
        notifier=notifier,
        goes_on=lambda: intake.is_open,
    )
    if not worked and Task.objects.undo_ends_within(CLOCKS_DIFFER, task_id):
        notify_worker(task_id, UNDO_PAUSE)


def labels_here() -> Labels:
    """Return the labels of this worker, with those for everything else that it has now."""
    from tasks_app.engine.workers.machine import labels_of_machine
    from tasks_app.operations import local_sandbox

    return labels | labels_of_machine(local_sandbox.sandbox())


def _recent_labels() -> Labels:
    """Return `labels_here` as it was at most LABELS_SECONDS ago: to look for toolchains takes 4 ms."""
    global _labels_known
    at, known = _labels_known
    if time.monotonic() - at > LABELS_SECONDS:
        known = labels_here()
        _labels_known = time.monotonic(), known
    return known


def notify_worker(task_id: int, seconds: float = 0) -> None:
    """Tell some worker that the task is due, now or in so many seconds.

    A queue that fails is only logged: it must not turn a stored answer into an error page.
    """
    try:
        if seconds:
            look_at.schedule((task_id,), delay=seconds)
        else:
            look_at(task_id)
    except Exception:
        logger.warning("could not notify a worker; the sweeper finds the task", exc_info=True)


def _pending() -> int:
    """Return how many jobs wait in the queue; 0 if it fails."""
    try:
        return int(HUEY.pending_count())
    except Exception:
        return 0


def _stop_signal() -> StopReason | None:
    return StopReason.SHUTDOWN if stopping.is_set() else None
