"""The switch for taking tasks (M3, M6). Tasks that the worker already works on are not touched."""

from __future__ import annotations

import logging
import queue
import re
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

from huey.consumer import Consumer, Scheduler, Worker

from tasks_app.core.wakeup import Pipe

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
        """Wait until the worker may take tasks for the first time."""
        self._has_opened.wait()


def _without_numbers(words: str) -> str:
    return re.sub(r"\d[\d.,]*", "0", words)


class TakingWorker(Worker):  # type: ignore[misc]
    """A thread of the consumer that leaves the queue alone while the intake is closed.

    An entry that it took and gave up would have to wait for the next sweep, and could come back to it.
    Before an entry of the queue it takes what the sweeper of this process has found.
    """

    def __init__(self, *args: Any, intake: Intake, found: Found, pipe: Pipe | None, **options: Any) -> None:
        self._intake, self._found, self._pipe = intake, found, pipe
        super().__init__(*args, **options)

    def loop(self, now: Any = None) -> None:
        if not self._intake.is_open:
            self.stop_flag.wait(LOOK_AGAIN_SECONDS)
        elif not self._found.work():
            super().loop(now)

    def sleep(self) -> None:
        """Wait for the next job after the queue was found empty, or failed."""
        if self._pipe is None:
            self.stop_flag.wait(LOOK_AGAIN_SECONDS)
        else:
            self._pipe.wait(LOOK_AGAIN_SECONDS)


class Found:
    """Tasks that this process has found due by itself, without the queue, which may fail."""

    def __init__(self, look_at: Callable[[int], None]) -> None:
        self._look_at = look_at
        self._tasks: queue.SimpleQueue[int] = queue.SimpleQueue()
        self.put, self.count = self._tasks.put, self._tasks.qsize

    def work(self) -> bool:
        """Work on the first due task. Return False without one."""
        try:
            task_id = self._tasks.get_nowait()
        except queue.Empty:
            return False
        try:
            self._look_at(task_id)
        except Exception:  # the thread would end
            logger.exception("task %s was looked at in vain", task_id)
        return True


class TakingConsumer(Consumer):  # type: ignore[misc]
    """A consumer whose threads ask the intake before they take an entry.

    `pipe` wakes them if the queue itself does not.
    """

    def __init__(
        self, *args: Any, intake: Intake, found: Found, pipe: Pipe | None = None, **options: Any
    ) -> None:
        self._pipe = pipe
        self.worker_class = partial(TakingWorker, intake=intake, found=found, pipe=pipe)
        super().__init__(*args, **options)

    def stop(self, graceful: bool = False) -> None:
        self.stop_flag.set()
        if self._pipe is not None:
            self._pipe.wake(self.workers)
        super().stop(graceful)


# Putting jobs that were stored for a later time into the queue, at that time.
#
# It stands apart from the command `worker`, which only reads options and starts threads.


#: Seconds between two looks at the schedule. Other processes store jobs there without a signal, but at least
#: a second ahead: `CATHERDER_UNDO_SECONDS` is a whole number.
LOOK_SECONDS = 1.0


class PunctualScheduler(Scheduler):  # type: ignore[misc]
    """Sleeps until the next job is due. Huey's own looks once a second, so jobs are late by half a second.

    The portal has no periodic jobs.
    """

    def loop(self, now: datetime | None = None) -> None:
        """Put what is due into the queue, then sleep until the next job is due, or look again."""
        now = now or datetime.now(UTC).replace(tzinfo=None)  # as Huey writes it
        seconds = LOOK_SECONDS
        try:
            for job in self.huey.read_schedule(now):
                self.huey.enqueue(job)
            if following := self.huey.scheduled(limit=1):
                seconds = (following[0].eta - now).total_seconds()
        except Exception:  # the thread would end
            logger.exception("the scheduled jobs cannot be read")
        self.stop_flag.wait(max(0.0, min(seconds, LOOK_SECONDS)))
