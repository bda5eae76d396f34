"""Why work on a task is stopped from outside, and how that is noticed."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from tasks_app.agent.port import Stop


class StopReason(StrEnum):
    CANCELLED = "cancelled"  # a human called the task off
    SHUTDOWN = "shutdown"  # this worker ends; another goes on
    INTERRUPTED = "interrupted"  # Ctrl+C: nobody goes on until told to
    TIMEOUT = "timeout"  # the run took longer than its step allows


class Stopped(Stop):
    """Raised where the work notices that it is to stop."""

    def __init__(self, reason: StopReason) -> None:
        super().__init__(reason)
        self.reason = reason


#: Asked about once a second by whoever works: a reason to stop now, or None.
StopSignal = Callable[[], StopReason | None]


def never() -> StopReason | None:
    return None
