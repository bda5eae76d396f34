"""Temporary faults, which end by themselves: recognise them, describe them, and wait for their end.

A locked or unreachable database and a full disk are not the fault of a task, so they fail none. Writes wait
for a while; after that the task is postponed and retried with growing pauses.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar

from django.db import DatabaseError, InterfaceError, connection

from tasks_app.core.errors import MACHINE_FAULTS, TemporaryFault, machine_fault
from tasks_app.models.database_errors import database_failure
from tasks_app.models.task import LONGEST_RETRY_SECONDS

logger = logging.getLogger(__name__)

T = TypeVar("T")

#: Seconds that a write waits for a locked or unreachable database.
PATIENCE = 300.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0
#: Seconds until a task is retried after the first fault; doubled with each further one in a row.
_FIRST_RETRY = 5.0

#: Error texts of git, which under LC_ALL=C are all that it tells of the reason, and our words for them.
_PROGRAM_ERRORS = {os.strerror(number): words for number, words in MACHINE_FAULTS.items()}


def temporary_fault(error: BaseException) -> str:
    """Return the temporary fault as a sentence without full stop; "" if the error does not pass by itself."""
    cause: BaseException | None = error
    while cause is not None:
        if fault := _description(cause):
            return fault
        cause = cause.__cause__
    return ""


def _description(error: BaseException) -> str:
    if isinstance(error, TemporaryFault):
        return str(error).rstrip(".")
    if isinstance(error, DatabaseError | InterfaceError):
        failure = database_failure(error)
        if failure and failure.temporary:
            return failure.sentence
        return ""
    if isinstance(error, OSError):
        return machine_fault(error)
    message = str(error)
    return next((words for text, words in _PROGRAM_ERRORS.items() if text in message), "")


def retry_during_faults(
    action: Callable[[], T],
    *,
    again: Callable[[], T] | None = None,
    check: Callable[[], None] = lambda: None,
    patience: float | None = None,
) -> T:
    """Return what `action` returns. A temporary fault has it repeated for up to `patience` seconds.

    After a fault `again` is called instead, if given: a commit may have been made although its confirmation
    was lost. `check` is called before each further attempt and may raise to give up. Inside a transaction
    nothing is repeated, because the transaction is lost as a whole.
    """
    until = time.monotonic() + (PATIENCE if patience is None else patience)
    pause = _FIRST_PAUSE
    while True:
        try:
            return action()
        except Exception as error:
            fault = temporary_fault(error)
            if not fault or connection.in_atomic_block or time.monotonic() + pause > until:
                raise
        if pause == _FIRST_PAUSE:
            logger.warning("waiting: %s", fault)
        connection.close()  # the next attempt gets a fresh one
        time.sleep(pause)
        check()
        action, pause = again or action, min(2 * pause, _LONGEST_PAUSE)


def retry_pause(faults: int) -> timedelta:
    """Return how long to wait before a task is retried after `faults` faults in a row, this one included."""
    return timedelta(seconds=min(_FIRST_RETRY * 2 ** min(max(0, faults - 1), 10), LONGEST_RETRY_SECONDS))
