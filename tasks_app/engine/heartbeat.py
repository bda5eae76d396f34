"""A worker says every few seconds that it lives, so that the pages can tell when none does."""

from __future__ import annotations

import logging
import os
import socket
import threading
from importlib.metadata import PackageNotFoundError, version

from django.db import close_old_connections, connection
from django.db.models.functions import Now

from tasks_app.engine.faults import passing
from tasks_app.models import Task, WorkerBeat
from tasks_app.models.worker import BEAT_SECONDS

logger = logging.getLogger(__name__)


def process_name() -> str:
    """How this process is named, in leases as well."""
    return f"{socket.gethostname()}:{os.getpid()}"


class Heartbeat(threading.Thread):
    """Beats at once and then every BEAT_SECONDS, until stopped; then it says goodbye.

    A beat that fails is logged and not made up for: the next one says the same. A worker that is killed says
    nothing; its row is old after the grace.
    """

    def __init__(self, *, slots: int) -> None:
        super().__init__(name="heartbeat", daemon=True)
        self._slots = slots
        self._stop_wanted = threading.Event()

    def run(self) -> None:
        self._say(prune=True)
        while not self._stop_wanted.wait(BEAT_SECONDS):
            self._say()
        self._say(ended=True)
        connection.close()

    def stop(self) -> None:
        """Say goodbye, and wait until it is said."""
        self._stop_wanted.set()
        self.join(BEAT_SECONDS)

    def _say(self, *, ended: bool = False, prune: bool = False) -> None:
        try:
            close_old_connections()
            if prune:
                WorkerBeat.objects.prune()
            beat(slots=self._slots, ended=ended)
        except Exception as error:
            trace = None if passing(error) else error
            logger.error("a heartbeat failed (%s); the next is in %s s", error, BEAT_SECONDS, exc_info=trace)


def beat(*, slots: int, ended: bool = False) -> None:
    """One beat of this process, with how many tasks it holds."""
    held = Task.objects.filter(lease_owner__startswith=f"{process_name()}:", lease_expires__gt=Now())
    WorkerBeat.objects.beat(
        host=socket.gethostname()[:200],
        pid=os.getpid(),
        slots=slots,
        busy=0 if ended else held.count(),
        version=_version(),
        ended=ended,
    )


def _version() -> str:
    try:
        return version("cat-herder")[:40]
    except PackageNotFoundError:  # run from a checkout that was not installed
        return ""
