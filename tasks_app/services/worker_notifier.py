"""The doorbell: tells a worker to look at a task. May be lost at any time; the sweeper looks anyway."""

from __future__ import annotations

import logging
from collections.abc import Callable

from django.db import transaction

logger = logging.getLogger(__name__)


def _nobody(task_id: int) -> None:
    logger.debug("no worker to ring for task %s", task_id)


_ring: Callable[[int], None] = _nobody


def register(ring: Callable[[int], None]) -> None:
    """Called once at start-up by whoever owns the queue."""
    global _ring
    _ring = ring


def ring_on_commit(task_id: int) -> None:
    """Ring for the task when the transaction around the call is safely stored."""
    transaction.on_commit(lambda: _ring_quietly(task_id))


def _ring_quietly(task_id: int) -> None:
    """A queue that is down must not turn a stored answer into an error page."""
    try:
        _ring(task_id)
    except Exception:
        logger.warning("could not ring for task %s; the sweeper will find it", task_id, exc_info=True)
