"""Read calendars when they are due: the worker's thread that fetches them."""

from __future__ import annotations

import logging
import threading

from django.db import close_old_connections, connection
from django.utils import timezone

from tasks_app.engine.temporary_faults import temporary_fault
from tasks_app.models import Calendar
from tasks_app.services.calendars import due_calendars, read_due_calendar

logger = logging.getLogger(__name__)

#: Seconds between two looks for calendars that are due.
POLL_SECONDS = 10.0
#: Number of calendars at the same time: a host that hangs must not delay the others.
MAX_READS = 4


class CalendarReader(threading.Thread):
    """Reads due calendars until stopped. Errors are logged, and the next round tries again.

    Each worker of the portal's host has one; a conditional UPDATE gives each calendar to one of them.
    """

    def __init__(self) -> None:
        super().__init__(name="calendar-reader", daemon=True)
        self._stop_wanted = threading.Event()
        self._reads: list[threading.Thread] = []

    def run(self) -> None:
        while not self._stop_wanted.is_set():
            close_old_connections()
            try:
                self._run_once()
            except Exception as error:
                _log_error("looking for calendars failed", error)
            self._stop_wanted.wait(POLL_SECONDS)
        connection.close()

    def stop(self) -> None:
        """Begin no more. A calendar that is being read is due again later."""
        self._stop_wanted.set()

    def _run_once(self) -> None:
        self._reads = [thread for thread in self._reads if thread.is_alive()]
        for calendar in due_calendars(timezone.now())[: MAX_READS - len(self._reads)]:
            thread = threading.Thread(target=_read, args=[calendar], name="calendar-reading", daemon=True)
            thread.start()
            self._reads.append(thread)


def _read(calendar: Calendar) -> None:
    try:
        read_due_calendar(calendar, timezone.now())
    except Exception as error:
        _log_error(f"{calendar} could not be read", error)
    finally:
        connection.close()


def _log_error(what: str, error: Exception) -> None:
    # A temporary fault gets one line without a traceback: it may be logged every ten seconds for hours.
    logger.error("%s: %s", what, error, exc_info=None if temporary_fault(error) else error)
