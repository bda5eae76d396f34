"""Notify a worker that a task is due. A notification may be lost at any time: the sweeper finds the task."""

from __future__ import annotations

import logging
from collections.abc import Callable

from django.db import transaction

logger = logging.getLogger(__name__)


def _no_queue(task_id: int) -> None:
    logger.debug("no worker to notify of task %s", task_id)


_notify: Callable[[int], None] = _no_queue


def register(notify: Callable[[int], None]) -> None:
    """Set the function that puts a task into the queue. Called once at start-up."""
    global _notify
    _notify = notify


def notify_on_commit(task_id: int) -> None:
    """Notify a worker of the task once the present transaction is committed."""
    transaction.on_commit(lambda: _notify_or_log(task_id))


def _notify_or_log(task_id: int) -> None:
    """Only log a failure: a queue that is down must not turn a stored answer into an error page."""
    try:
        _notify(task_id)
    except Exception:
        logger.warning(
            "could not notify a worker of task %s; the sweeper will find it", task_id, exc_info=True
        )
