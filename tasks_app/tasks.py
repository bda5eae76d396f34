"""Huey's entry points. A job only says "look at task N"; it may be lost, doubled or late."""

from __future__ import annotations

import threading

from huey.contrib.djhuey import db_task

from tasks_app.engine.stopping import StopReason

#: Set when this worker is told to end: runs are put back for the next one.
stopping = threading.Event()


@db_task()  # type: ignore[untyped-decorator]
def look_at(task_id: int) -> None:
    # Every process can ring, few run agents: their SDK takes half a second and some 50 MB to import.
    from tasks_app import composition
    from tasks_app.engine.advance import advance

    advance(task_id, owner=composition.owner(), context=composition.worker_context(_stop_signal))


def ring(task_id: int) -> None:
    """Tell some worker to look at the task."""
    look_at(task_id)


def _stop_signal() -> StopReason | None:
    return StopReason.SHUTDOWN if stopping.is_set() else None
