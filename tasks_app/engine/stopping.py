"""Reasons to stop the work on a task from outside, and the signal that gives them.

A lost lease is not among them: the next write or renewal raises `LeaseLost` (`lease.py`), and `advance` ends.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from enum import StrEnum

from tasks_app.agent.port import Stop


class StopReason(StrEnum):
    CANCELLED = "cancelled"  # a human cancelled the task
    TAKEN_BACK = "a question is asked again"  # what a decision or a rule did was taken back
    SHUTDOWN = "shutdown"  # this worker ends; another one continues
    INTERRUPTED = "interrupted"  # Ctrl+C: nothing continues until somebody resumes the task
    TIMEOUT = "timeout"  # the run took longer than its step allows


class Stopped(Stop):
    """Raised where the work notices that it must stop."""

    def __init__(self, reason: StopReason) -> None:
        super().__init__(reason)
        self.reason = reason


#: Called about once a second during the work: returns a reason to stop now, or None.
StopSignal = Callable[[], StopReason | None]


def never() -> StopReason | None:
    return None


# Looking, while a command runs, whether the work on its task must stop.


class Ticker:
    """Calls `tick` once a second during a command, and ends the command when that raises."""

    def __init__(self, tick: Callable[[], None]) -> None:
        self._tick = tick
        self._next = 0.0
        self._problem: Exception | None = None

    def should_stop(self) -> bool:
        """Return whether to end the command. Called ten times a second, it reads the rows once a second."""
        if self._problem is None and time.monotonic() >= self._next:
            self._next = time.monotonic() + 1.0
            try:
                self._tick()
            except Exception as error:
                self._problem = error
        return self._problem is not None

    def raise_problem(self) -> None:
        """Raise what ended the command, which has no verdict then."""
        if self._problem is not None:
            raise self._problem
