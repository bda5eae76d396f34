"""Whether this worker takes tasks (M3, M6). What it works on already is never touched."""

from __future__ import annotations

import logging
import re
import threading
from typing import Any, Protocol

from huey.consumer import Consumer, Worker

logger = logging.getLogger(__name__)

#: Seconds until a thread that takes nothing, or has heard nothing, looks again.
LOOK_AGAIN_SECONDS = 0.5
STARTING = "It has just started and looks whether it can work."
DRAINED = "It was told to take no more tasks (worker --drain)."


class Intake:
    """Open unless somebody says why not. Threads of the worker may ask at any time."""

    def __init__(self, problem: str = "") -> None:
        self._lock = threading.Lock()
        self._problem = problem
        self._has_opened = threading.Event()
        if not problem:
            self._has_opened.set()

    @property
    def problem(self) -> str:
        """Why no tasks are taken, or ""."""
        with self._lock:
            return self._problem

    @property
    def is_open(self) -> bool:
        return not self.problem

    def set_problem(self, problem: str) -> None:
        """Close with a reason, or open with an empty one.

        The log has each change, once. Another number in the same words is none: a disk that is nearly full
        has a little more or less free space each time.
        """
        with self._lock:
            former, self._problem = self._problem, problem
        if problem and _without_numbers(problem) != _without_numbers(former):
            logger.warning("This worker takes no tasks: %s", problem)
        elif former and not problem and former != STARTING:
            logger.warning("This worker takes tasks again.")
        if not problem:
            self._has_opened.set()

    def wait_until_opened(self) -> None:
        """Wait until nothing was in the way for the first time."""
        self._has_opened.wait()


def _without_numbers(words: str) -> str:
    return re.sub(r"\d[\d.,]*", "0", words)


class Listener(Protocol):
    """Tells that a job was stored, where the queue itself does not."""

    @property
    def count(self) -> int:
        """The number of notifications so far."""

    def wait(self, known: int, seconds: float) -> None:
        """Return once there were more than `known`, or after so many seconds."""

    def close(self) -> None:
        """Listen no more."""


class TakingWorker(Worker):  # type: ignore[misc]
    """A thread of the consumer that leaves the queue alone while the intake is closed.

    An entry that it took and gave up would have to wait for the next sweep, and could come back to it.
    """

    intake: Intake
    listener: Listener | None
    _known = 0

    def loop(self, now: Any = None) -> None:
        if not self.intake.is_open:
            self.stop_flag.wait(LOOK_AGAIN_SECONDS)
            return
        if self.listener is not None:
            self._known = self.listener.count  # before the queue is read: what comes meanwhile counts
        super().loop(now)

    def sleep(self) -> None:
        """Wait for the next job after the queue was found empty."""
        if self.listener is None:
            super().sleep()
        elif not self.stop_flag.is_set():
            self.listener.wait(self._known, LOOK_AGAIN_SECONDS)


class TakingConsumer(Consumer):  # type: ignore[misc]
    """A consumer whose threads ask the intake before they take an entry."""

    def __init__(self, *args: Any, intake: Intake, listener: Listener | None = None, **options: Any) -> None:
        self.listener = listener
        self.worker_class = type("TakingWorker", (TakingWorker,), {"intake": intake, "listener": listener})
        super().__init__(*args, **options)
