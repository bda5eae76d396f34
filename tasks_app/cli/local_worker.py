"""Working on a task in this very process, in a thread of its own."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

from django.db import connections

from tasks_app import composition
from tasks_app.engine.advance import advance
from tasks_app.engine.stopping import StopReason
from tasks_app.models import Task


class Hands:
    """Does what a worker would do, as the lease allows: whoever gets it works, the other follows.

    `queues_next`: whether the next task is put into the queue, if this one is part of a sequence.
    """

    def __init__(self, task_id: int, *, queues_next: bool = True) -> None:
        self._task_id = task_id
        self._stopping = threading.Event()
        # Here and not in the thread: a sandbox that is demanded and missing must stop the start.
        self._context = replace(composition.worker_context(self._stop_signal), queues_next=queues_next)
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="terminal")
        self._work: Future[bool] | None = None

    def begin(self) -> None:
        """Work if there is something to do and nobody does it. Raises what went wrong the last time."""
        if self._work is not None:
            if not self._work.done():
                return
            self._work.result()
        if not self._stopping.is_set() and Task.objects.due().filter(pk=self._task_id).exists():
            self._work = self._pool.submit(self._advance)

    def stop(self) -> None:
        """Interrupt the run: nobody goes on until told to."""
        self._stopping.set()

    def finish(self) -> None:
        """Wait until what is under way has been put in order."""
        if self._work is not None:
            self._work.result()

    def _advance(self) -> bool:
        try:
            return advance(self._task_id, owner=composition.owner(), context=self._context)
        finally:
            connections.close_all()

    def _stop_signal(self) -> StopReason | None:
        return StopReason.INTERRUPTED if self._stopping.is_set() else None


def is_here(owner: str) -> bool:
    """Whether that owner of a lease is a thread of this process."""
    process, _, _ = composition.owner().rpartition(":")
    return owner.startswith(f"{process}:")
