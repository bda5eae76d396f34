"""The worker's heartbeat: a row that it renews every few seconds, so that pages show when no worker runs."""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Callable

from django.conf import settings
from django.db import close_old_connections, connection
from django.db.models.functions import Now

from tasks_app.core.labels import Labels
from tasks_app.core.version import version
from tasks_app.engine.temporary_faults import temporary_fault
from tasks_app.engine.workers.intake import DRAINED, Intake
from tasks_app.git.mirror import push_problem
from tasks_app.models import Task, WorkerBeat
from tasks_app.models.worker import BEAT_SECONDS
from tasks_app.sandbox import Sandbox
from tasks_app.services.workers.hosts import agent_addresses, owner_prefix

#: Beats between two looks at whether this worker can work: 30 s.
BEATS_PER_CHECK = 10

logger = logging.getLogger(__name__)


def host_name() -> str:
    """Return the name of this host; that of a worker host begins with the name in its token.

    By that the portal recognises the leases that a worker host holds.
    """
    name = settings.ENVIRONMENT.worker_name
    return f"{owner_prefix(name) if name else ''}{socket.gethostname()}"[:75]


def process_name() -> str:
    """Return the name of this process, as it stands in leases, too."""
    return f"{host_name()}:{os.getpid()}"


class Heartbeat(threading.Thread):
    """Beats at once and then every BEAT_SECONDS until it is stopped. The last beat marks its end.

    A beat that fails is logged and not repeated, because the next one tells the same. After a kill there is
    no last beat; the row is then too old after a grace period.
    """

    def __init__(
        self,
        *,
        slots: int,
        intake: Intake | None = None,
        find_problem: Callable[[], str] = lambda: "",
        find_labels: Callable[[], Labels] = frozenset,
        sandbox: Sandbox | None = None,
    ) -> None:
        """`find_problem` says why this worker cannot work, or ""; then, and when drained, `intake` closes.

        `find_labels` says what it has now, `sandbox` what its agents run in.
        """
        super().__init__(name="heartbeat", daemon=True)
        self._slots = slots
        self._find_labels = find_labels
        self._labels: Labels = frozenset()
        self._sandbox = sandbox
        self._intake = intake or Intake()
        self._find_problem = find_problem
        self._beats = 0
        self._found_problem = ""
        self._drained = False
        self._has_beaten = False
        self._stop_wanted = threading.Event()

    def run(self) -> None:
        self._try_beat()
        while not self._stop_wanted.wait(BEAT_SECONDS):
            self._try_beat()
        self._try_beat(ended=True)
        connection.close()

    def stop(self) -> None:
        """Send the last beat and wait until it is stored."""
        self._stop_wanted.set()
        self.join(BEAT_SECONDS)

    def _close_or_open(self) -> None:
        # Results of agents could not be recorded now either.
        self._intake.set_problem(push_problem() or self._found_problem or (DRAINED if self._drained else ""))

    def _try_beat(self, *, ended: bool = False) -> None:
        try:
            close_old_connections()
            if self._beats % BEATS_PER_CHECK == 0 and not ended:
                self._labels = self._find_labels()
                self._found_problem = self._find_problem()
            self._beats += 1
            self._close_or_open()
            if not self._has_beaten:
                WorkerBeat.objects.prune()
            self._drained = beat(
                slots=self._slots,
                ended=ended,
                problem=self._intake.problem,
                started=not self._has_beaten,
                labels=self._labels,
                sandbox=self._sandbox,
            )
            self._has_beaten = True
            self._close_or_open()  # told with the next beat, which counts what was taken until now
        except Exception as error:
            trace = None if temporary_fault(error) else error
            logger.error("a heartbeat failed (%s); the next is in %s s", error, BEAT_SECONDS, exc_info=trace)


def beat(
    *,
    slots: int,
    ended: bool = False,
    problem: str = "",
    started: bool = False,
    labels: Labels = frozenset(),
    sandbox: Sandbox | None = None,
) -> bool:
    """Store one beat of this process, with the number of tasks that it holds and why it takes none.

    Returns whether it was told to take no more tasks.
    """
    held = Task.objects.filter(lease_owner__startswith=f"{process_name()}:", lease_expires__gt=Now())
    return WorkerBeat.objects.beat(
        host=host_name(),
        pid=os.getpid(),
        slots=slots,
        busy=0 if ended else held.count(),
        version=version()[:40],
        ended=ended,
        problem=problem,
        started=started,
        labels=labels,
        unsandboxed=sandbox.reason if sandbox else "",
        limits=[(row.name, row.value, row.by) for row in sandbox.enforced_limits] if sandbox else (),
        ip_addresses=agent_addresses(),
    )
