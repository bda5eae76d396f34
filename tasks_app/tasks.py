"""Huey's jobs. A job only says “check task N”; it may be lost, repeated or late."""

from __future__ import annotations

import threading

from huey.contrib.djhuey import db_task

from tasks_app.engine.stopping import StopReason

#: Set when this worker is told to stop, so that runs are put back for the next one.
stopping = threading.Event()


@db_task()  # type: ignore[untyped-decorator]
def look_at(task_id: int) -> None:
    # Imported late: every process can queue jobs, but few run agents, whose SDK takes 0.5 s and 50 MB.
    from tasks_app import composition
    from tasks_app.engine.advance import advance

    advance(task_id, owner=composition.owner(), context=composition.worker_context(_stop_signal))


def notify_worker(task_id: int) -> None:
    """Tell some worker to look at the task."""
    look_at(task_id)


def notify_worker_later(task_id: int, seconds: float) -> None:
    """Tell some worker to look at the task in so many seconds."""
    look_at.schedule((task_id,), delay=seconds)


def _stop_signal() -> StopReason | None:
    return StopReason.SHUTDOWN if stopping.is_set() else None
