"""The thread of a worker that tells people: announces what happened and sends what is due."""

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
from tasks_app.notifications.notices import announce

logger = logging.getLogger(__name__)

#: Seconds between two looks at the rows; what this worker itself writes is looked at once it is stored.
SECONDS = 2.0
#: Deliveries that are sent at the same time: one slow receiver must not hold up the others.
SENDERS = 4
NOTICES_KEPT = timedelta(days=90)
DELIVERIES_KEPT = timedelta(days=30)
_PRUNE_SECONDS = 3600.0


class Courier(threading.Thread):
    """Looks at once and then every SECONDS, until stopped. What fails is logged and comes again.

    Several workers may each have one. No job in the queue is needed: agents may hold all of a worker's
    slots for hours, and a look costs two indexed queries.
    """

    def __init__(self) -> None:
        super().__init__(name="courier", daemon=True)
        self._stop_wanted = threading.Event()
        self._ring = threading.Event()
        self._senders: list[threading.Thread] = []
        self._pruned = 0.0

    def run(self) -> None:
        post_save.connect(self._on_transition, sender=Transition, dispatch_uid="courier")
        while not self._stop_wanted.is_set():
            _logged(self._look)
            close_old_connections()
            self._ring.wait(SECONDS)
            self._ring.clear()
        post_save.disconnect(sender=Transition, dispatch_uid="courier")
        connection.close()

    def stop(self) -> None:
        """Let what is being sent get out, for a moment; the rest is sent by the next worker."""
        self._stop_wanted.set()
        self._ring.set()
        end = time.monotonic() + 3
        for thread in [self, *self._senders]:
            if thread.is_alive():
                thread.join(max(0.0, end - time.monotonic()))

    def _on_transition(self, **_: object) -> None:
        transaction.on_commit(self._ring.set)

    def _look(self) -> None:
        close_old_connections()
        announce()
        self._send(Delivery.objects.due()[:SENDERS].count())
        if time.monotonic() - self._pruned > _PRUNE_SECONDS or not self._pruned:
            self._pruned = time.monotonic()
            Notice.objects.prune(NOTICES_KEPT)
            Delivery.objects.prune(DELIVERIES_KEPT)

    def _send(self, due: int) -> None:
        self._senders = [thread for thread in self._senders if thread.is_alive()]
        for _ in range(min(due, SENDERS - len(self._senders))):
            thread = threading.Thread(target=self._deliver, name="courier-sender", daemon=True)
            thread.start()
            self._senders.append(thread)

    def _deliver(self) -> None:
        _logged(lambda: deliver(self._stop_wanted.is_set))
        connection.close()


def _logged(work: Callable[[], object]) -> None:
    try:
        work()
    except Exception:
        logger.exception("telling people failed; the next look is in %s seconds", SECONDS)
