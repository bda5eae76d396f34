"""Notify a worker that a task is due. A notification may be lost at any time: the sweeper finds the task."""

from __future__ import annotations

import logging
from collections.abc import Callable

from django.db import transaction

logger = logging.getLogger(__name__)


def _no_queue(task_id: int, seconds: float = 0) -> None:
    logger.debug("no worker to notify of task %s", task_id)


_notify: Callable[[int], None] = _no_queue
_notify_later: Callable[[int, float], None] = _no_queue


def register(notify: Callable[[int], None], *, later: Callable[[int, float], None]) -> None:
    """Set the functions that put a task into the queue, now or in some seconds. Called once at start-up."""
    global _notify, _notify_later
    _notify, _notify_later = notify, later


def notify_on_commit(task_id: int, *, seconds: float = 0) -> None:
    """Notify a worker of the task, so many seconds after the present transaction is committed."""
    transaction.on_commit(lambda: _notify_or_log(task_id, seconds))


def _notify_or_log(task_id: int, seconds: float) -> None:
    """Only log a failure: a queue that is down must not turn a stored answer into an error page."""
    try:
        if seconds:
            _notify_later(task_id, seconds)
        else:
            _notify(task_id)
    except Exception:
        logger.warning(
            "could not notify a worker of task %s; the sweeper will find it", task_id, exc_info=True
        )
