"""Reasons to stop the work on a task from outside, and the signal that gives them.

A lost lease is not among them: the next write or renewal raises `LeaseLost` (`lease.py`), and `advance` ends.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from tasks_app.agent.port import Stop


class StopReason(StrEnum):
    CANCELLED = "cancelled"  # a human cancelled the task
    TAKEN_BACK = "an answer was taken back"  # that of a decision; a human is asked now
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
