"""Putting jobs that were stored for a later time into the queue, at that time.

It stands apart from the command `worker`, which only reads options and starts threads.
"""

from __future__ import annotations

import logging
from typing import Any

from huey.consumer import Scheduler

logger = logging.getLogger(__name__)

#: Seconds between two looks at the schedule. Other processes store jobs there without a signal, but at least
#: a second ahead: `CATHERDER_UNDO_SECONDS` is a whole number.
LOOK_SECONDS = 1.0


class PunctualScheduler(Scheduler):  # type: ignore[misc]
    """Sleeps until the next job is due. Huey's own looks once a second, so jobs are late by half a second.

    The portal has no periodic jobs.
    """

    def loop(self, now: Any = None) -> None:
        """Put what is due into the queue, then sleep until the next job is due, or look again."""
        try:
            seconds = self._seconds_until_next()
            if seconds is not None and seconds <= 0:
                for job in self.huey.read_schedule(now):
                    self.huey.enqueue(job)
                seconds = self._seconds_until_next()
        except Exception:  # the thread would end
            logger.exception("the scheduled jobs cannot be read")
            seconds = None
        self.stop_flag.wait(LOOK_SECONDS if seconds is None else max(0.0, min(seconds, LOOK_SECONDS)))

    def _seconds_until_next(self) -> float | None:
        found: float | None = self.huey.storage.seconds_until_scheduled(self.huey._get_timestamp())
        return found
