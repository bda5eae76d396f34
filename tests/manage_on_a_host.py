"""`manage.py` on a host whose clock is wrong.

HOST_CLOCK_AHEAD: seconds by which its clock is ahead. No namespace has a real-time clock of its own, so the
functions are replaced by which Django, the queue and the agent's adapter read it.
"""

from __future__ import annotations

import os
import sys
import time
from datetime import datetime, timedelta, tzinfo

from django.core.management import execute_from_command_line
from django.utils import timezone


def set_clock(ahead: timedelta) -> None:
    """Do it before any other module has taken one of these functions."""
    real_now, real_time = timezone.now, time.time

    class Clock(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
            return datetime.now(tz) + ahead

    timezone.now = lambda: real_now() + ahead
    time.time = lambda: real_time() + ahead.total_seconds()
    from tasks_app.agent import stream
    from tasks_app.agent.proxy import meter

    for module in (stream, meter):
        vars(module)["datetime"] = Clock


if __name__ == "__main__":
    if ahead := os.environ.get("HOST_CLOCK_AHEAD"):
        set_clock(timedelta(seconds=float(ahead)))
    execute_from_command_line(["manage.py", *sys.argv[1:]])
