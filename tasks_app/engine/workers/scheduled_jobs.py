"""Putting jobs that were stored for a later time into the queue, at that time.

It stands apart from the command `worker`, which only reads options and starts threads.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime

from huey.consumer import Scheduler

logger = logging.getLogger(__name__)

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
