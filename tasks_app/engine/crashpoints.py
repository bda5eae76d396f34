"""Named points of the code at which tests can kill a worker.

In ordinary use nothing happens there. With CATHERDER_CRASH_AT=NAME the process ends at that point as if it
were killed with SIGKILL: no `finally`, no flush.
"""

from __future__ import annotations

import os

_armed = os.environ.get("CATHERDER_CRASH_AT", "")


def crash_point(point: str) -> None:
    """End the process if this point is armed. `tests/crash/points.py` lists the points."""
    if _armed and point == _armed:
        os._exit(137)
