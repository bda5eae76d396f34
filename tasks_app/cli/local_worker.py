"""Work on a task in a thread of this process; Ctrl+C is a flag, and never interrupts a transaction."""

from __future__ import annotations

import os
import signal
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from types import FrameType
from typing import Any, Self

from django.db import connections

from tasks_app import composition
from tasks_app.cli.terminal import flush_terminal
from tasks_app.engine.advance import advance
from tasks_app.engine.stopping import StopReason
from tasks_app.engine.traces.span_exporter import start_exporter
from tasks_app.models import Task

_MESSAGE = b"\nStopped immediately. The agent has ended too; a running portal may resume the task.\n"


class CtrlC:
    """Context in which only `check` and `pause` raise KeyboardInterrupt after a first Ctrl+C; a second one
    ends the process, and its agent with it, immediately."""

    def __init__(self) -> None:
        self._pressed = False
        self._before: Any = None

    def __enter__(self) -> Self:
        self._before = signal.signal(signal.SIGINT, self._on_signal)
        return self

    def __exit__(self, *exception: object) -> None:
        signal.signal(signal.SIGINT, self._before or signal.default_int_handler)

    def is_set(self) -> bool:
        """Return whether Ctrl+C was pressed. The interface of threading.Event, for `watchfiles.watch`."""
        return self._pressed

    def check(self) -> None:
        if self._pressed:
            raise KeyboardInterrupt

    def pause(self, seconds: float) -> None:
        self.check()
        time.sleep(seconds)
        self.check()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._pressed:
            os.write(2, _MESSAGE)
            flush_terminal()
            os._exit(130)
        self._pressed = True


# Work on a task in a thread of this process.


class LocalWorker:
    """Works on one task whenever it is due and no other worker holds its lease.

    `queues_next`: whether to queue the sequence's next task afterwards.
    """

    def __init__(self, task_id: int, *, queues_next: bool = True) -> None:
        self._task_id = task_id
        self._stopping = threading.Event()
        # Not in the thread: a required sandbox that is missing must stop the command.
        self._context = replace(composition.worker_context(self._stop_signal), queues_next=queues_next)
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="terminal")
        self._future: Future[bool] | None = None
        self._exporter = start_exporter()

    def start_if_due(self) -> None:
        """Start working if the task is due and this worker is idle. Raises the error of the last round."""
        if self._future is not None:
            if not self._future.done():
                return
            self._future.result()
        if not self._stopping.is_set() and Task.objects.due().filter(pk=self._task_id).exists():
            self._future = self._pool.submit(self._advance)

    def stop(self) -> None:
        """Interrupt the run; the task stays interrupted until somebody resumes it."""
        self._stopping.set()

    def wait(self) -> None:
        """Wait until the work that is under way has ended, and send its spans."""
        try:
            if self._future is not None:
                self._future.result()
        finally:
            if self._exporter is not None:
                self._exporter.stop()

    def _advance(self) -> bool:
        try:
            return advance(self._task_id, owner=composition.owner(), context=self._context)
        finally:
            connections.close_all()

    def _stop_signal(self) -> StopReason | None:
        return StopReason.INTERRUPTED if self._stopping.is_set() else None


def is_this_process(owner: str) -> bool:
    """Return whether this owner of a lease is a thread of this process."""
    process, _, _ = composition.owner().rpartition(":")
    return owner.startswith(f"{process}:")
