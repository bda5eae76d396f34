"""Faults that pass by themselves: which they are, in words for people, and waiting for their end.

A database that is locked or away, a disk that is full: nothing of that is the fault of a task, so it fails
none. Writes wait for a while; then the task is put back and tried again with growing pauses.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import TypeVar

from django.db import DatabaseError, InterfaceError, connection

from tasks_app.core.errors import MACHINE_FAULTS, PassingFault, machine_fault
from tasks_app.models.database_errors import reason_of
from tasks_app.models.task import LONGEST_RETRY_SECONDS

logger = logging.getLogger(__name__)

T = TypeVar("T")

#: Seconds that a write waits for a database that is locked or away.
PATIENCE = 300.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0
#: Seconds until a task is tried again after the first fault; doubled with each further one in a row.
_FIRST_RETRY = 5.0

#: git's own words, under LC_ALL=C, which is all that it says of the reason.
_SAID_BY_PROGRAMS = {os.strerror(number): words for number, words in MACHINE_FAULTS.items()}


def passing(error: BaseException) -> str:
    """What is in the way, as a sentence without its end, if the error passes by itself; "" if it does not."""
    return next(filter(None, map(_words, _causes(error))), "")


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__


def _words(error: BaseException) -> str:
    if isinstance(error, PassingFault):
        return str(error).rstrip(".")
    if isinstance(error, DatabaseError | InterfaceError):
        reason = reason_of(error)
        return reason.sentence if reason and reason.passes else ""
    if isinstance(error, OSError):
        return machine_fault(error)
    said = str(error)
    return next((words for text, words in _SAID_BY_PROGRAMS.items() if text in said), "")


def patiently(
    do: Callable[[], T],
    *,
    again: Callable[[], T] | None = None,
    look: Callable[[], None] = lambda: None,
    patience: float | None = None,
) -> T:
    """Return what `do` returns; while a passing fault is in the way, try for up to `patience` seconds.

    After a fault `again` is called in its place, if given: nobody knows whether a commit that got no answer
    was made. `look` is called before each further attempt and may raise to give up. Inside a transaction
    nothing is tried again, because the transaction is lost as a whole.
    """
    until = time.monotonic() + (PATIENCE if patience is None else patience)
    pause = _FIRST_PAUSE
    while True:
        try:
            return do()
        except Exception as error:
            in_the_way = passing(error)
            if not in_the_way or connection.in_atomic_block or time.monotonic() + pause > until:
                raise
        if pause == _FIRST_PAUSE:
            logger.warning("waiting: %s", in_the_way)
        connection.close()  # the next attempt gets a fresh one
        time.sleep(pause)
        look()
        do, pause = again or do, min(2 * pause, _LONGEST_PAUSE)


def retry_pause(faults: int) -> timedelta:
    """How long to wait before a task is tried again after so many faults in a row, this one included."""
    return timedelta(seconds=min(_FIRST_RETRY * 2 ** min(max(0, faults - 1), 10), LONGEST_RETRY_SECONDS))
