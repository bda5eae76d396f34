"""The thread of a web process that stores what the process has noted for traces (O3).

A worker needs none: the thread that sends spans does it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from django.db import close_old_connections, connection

from tasks_app.history.noted_hops import QUEUE, notes_hops

logger = logging.getLogger(__name__)

#: Seconds between two looks at what was noted.
SECONDS = 1.0
#: How long the end of a web process may be held up by the last look.
LAST_SECONDS = 2.0


class HopWriter(threading.Thread):
    """Stores what was noted, at most once in SECONDS, and what is left when it is stopped."""

    def __init__(self) -> None:
        super().__init__(name="hop-writer", daemon=True)
        self._stopping = threading.Event()
        self._is_failing = False

    def run(self) -> None:
        while not self._stopping.wait(SECONDS):
            self._store()
        self._store()
        connection.close()

    def stop(self) -> None:
        self._stopping.set()
        self.join(LAST_SECONDS)

    def _store(self) -> None:
        if not QUEUE:
            return
        try:
            close_old_connections()
            QUEUE.store()
            self._is_failing = False
        except Exception as error:
            if not self._is_failing:
                logger.warning("events of spans cannot be stored now: %s", error)
            self._is_failing = True
        finally:
            close_old_connections()


@contextmanager
def writing_hops() -> Iterator[None]:
    """Store what is noted within the context; without an endpoint for traces nothing is."""
    if not notes_hops():
        yield
        return
    writer = HopWriter()
    writer.start()
    try:
        yield
    finally:
        writer.stop()
