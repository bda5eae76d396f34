"""Notify a worker that a task is due. A notification may be lost at any time: the sweeper finds the task."""

from __future__ import annotations

import logging
from collections.abc import Callable

from django.db import transaction

logger = logging.getLogger(__name__)


def _no_queue(task_id: int, seconds: float) -> None:
    logger.debug("no worker to notify of task %s", task_id)


_notify: Callable[[int, float], None] = _no_queue


def register(notify: Callable[[int, float], None]) -> None:
    """Set the function that puts a task into the queue, now or in some seconds; it raises nothing."""
    global _notify
    _notify = notify


def notify_on_commit(task_id: int, *, seconds: float = 0) -> None:
    """Notify a worker of the task `seconds` after the current transaction is committed."""
    transaction.on_commit(lambda: _notify(task_id, seconds))
