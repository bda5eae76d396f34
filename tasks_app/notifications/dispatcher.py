"""The worker's thread that creates notifications and sends deliveries."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from datetime import timedelta

from django.db import close_old_connections, connection, transaction
from django.db.models.signals import post_save

from tasks_app.models import Delivery, Notice, Transition
from tasks_app.notifications.delivery import deliver
from tasks_app.notifications.notices import create_notifications

logger = logging.getLogger(__name__)

#: Seconds between two rounds; transitions of this worker start a round at once.
POLL_SECONDS = 2.0
#: Number of sending threads: one slow receiver must not delay the others.
MAX_SENDERS = 4
#: Seconds that a round waits for whoever has moved a task: in this process the task's next agent starts now.
STAND_BACK_SECONDS = 0.2
NOTICES_KEPT = timedelta(days=90)
DELIVERIES_KEPT = timedelta(days=30)
_PRUNE_SECONDS = 3600.0


class Dispatcher(threading.Thread):
    """Polls every POLL_SECONDS until stopped. Errors are logged, and the next round tries again.

    Each worker has one. It uses no jobs in the queue: agents may occupy all of a worker's slots for hours,
    and a round costs two indexed queries.
    """

    def __init__(self) -> None:
        super().__init__(name="dispatcher", daemon=True)
        self._stopping = threading.Event()
        self._wake = threading.Event()
        self._senders: list[threading.Thread] = []
        self._pruned = 0.0

    def run(self) -> None:
        post_save.connect(self._on_transition, sender=Transition, dispatch_uid="dispatcher")
        while not self._stopping.is_set():
            _log_errors(self._run_once)
            close_old_connections()
            if self._wake.wait(POLL_SECONDS):
                self._stopping.wait(STAND_BACK_SECONDS)
            self._wake.clear()
        post_save.disconnect(sender=Transition, dispatch_uid="dispatcher")
        connection.close()

    def stop(self) -> None:
        """Wait a moment for deliveries that are being sent; the next worker sends the rest."""
        self._stopping.set()
        self._wake.set()
        end = time.monotonic() + 3
        for thread in [self, *self._senders]:
            if thread.is_alive():
                thread.join(max(0.0, end - time.monotonic()))

    def _on_transition(self, **_: object) -> None:
        transaction.on_commit(self._wake.set)

    def _run_once(self) -> None:
        close_old_connections()
        create_notifications()
        self._start_senders(Delivery.objects.due()[:MAX_SENDERS].count())
        if time.monotonic() - self._pruned > _PRUNE_SECONDS or not self._pruned:
            self._pruned = time.monotonic()
            Notice.objects.prune(NOTICES_KEPT)
            Delivery.objects.prune(DELIVERIES_KEPT)

    def _start_senders(self, due: int) -> None:
        self._senders = [thread for thread in self._senders if thread.is_alive()]
        for _ in range(min(due, MAX_SENDERS - len(self._senders))):
            thread = threading.Thread(target=self._deliver, name="dispatcher-sender", daemon=True)
            thread.start()
            self._senders.append(thread)

    def _deliver(self) -> None:
        _log_errors(lambda: deliver(self._stopping.is_set))
        connection.close()


def _log_errors(work: Callable[[], object]) -> None:
    try:
        work()
    except Exception:
        logger.exception("notifications failed; the next round is in %s seconds", POLL_SECONDS)
