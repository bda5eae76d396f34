"""Places where a worker may die, with names, so that tests can kill it at each of them.

In ordinary use nothing happens here. With CATHERDER_CRASH_AT=NAME the process ends at that place as if
killed with -9: no `finally`, no flush.
"""

from __future__ import annotations

import os

POINTS = (
    "claimed",
    "begun",
    "run-opened",
    "event-recorded",
    "ask-recorded",
    "transcript-stored",
    "answer-recorded",
    "agent-ended",
    "halted",
    "result-stored",
    "work-recorded",
    "checked",
    "step-done",
    "task-done",
)

_armed = os.environ.get("CATHERDER_CRASH_AT", "")


def reached(point: str) -> None:
    """Die here if this point is armed."""
    if _armed and point == _armed:
        os._exit(137)
