"""The lease on a task: which worker may write to it, and until when."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from django.db import connection, transaction

from tasks_app.agent.leftover_processes import Claim
from tasks_app.core.errors import LeaseLost
from tasks_app.core.phases import ENDED
from tasks_app.models import Task
from tasks_app.models.task import LEASE_SECONDS
from tasks_app.services.workers.scheduling import limits_allow

logger = logging.getLogger(__name__)

#: Seconds after which a holder that stops renewing loses the task. It renews four times as often.
SECONDS = LEASE_SECONDS
RENEW_SECONDS = SECONDS / 4
#: Pause after a renewal that failed, for example because the database was locked.
RETRY_SECONDS = 1.0


@dataclass(frozen=True)
class Lease:
    """One worker's right to work on a task.

    Every claim of a task raises its epoch, so the writes of an earlier holder are refused.
    """

    task_id: int
    owner: str
    epoch: int
    _lost: threading.Event = field(default_factory=threading.Event, compare=False, repr=False)

    @classmethod
    def claim(cls, task_id: int, *, owner: str) -> Lease | None:
        """Claim a task that has work to do. Return None if it has not, or if it is held."""
        epoch = Task.objects.claim(task_id, owner=owner, seconds=SECONDS)
        return None if epoch is None else cls(task_id, owner, epoch)

    @classmethod
    def claim_place(cls, task_id: int, *, owner: str) -> Lease | None:
        """Do as `claim` does, unless the limits of project and person leave no place for the task.

        Of two workers that want the last place, one gets it.
        """
        with transaction.atomic():
            if limits_allow(task_id):
                return cls.claim(task_id, owner=owner)
            return None

    @classmethod
    def claim_ended(cls, task_id: int, *, owner: str) -> Lease | None:
        """Claim a task that has ended, so that nobody resumes it meanwhile. Return None if it is held."""
        epoch = Task.objects.filter(phase__in=ENDED).take(task_id, owner=owner, seconds=SECONDS)
        return None if epoch is None else cls(task_id, owner, epoch)

    @contextmanager
    def fenced(self) -> Iterator[Task]:
        """Lock the task's row in a transaction and check that this lease still holds it.

        Raises LeaseLost otherwise.
        """
        with transaction.atomic():
            rows = Task.objects.held(self.task_id, epoch=self.epoch).select_for_update(of=("self",))
            task = rows.select_related("project").first()
            if task is None:
                raise self._loss()
            yield task

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Do as `fenced` without reading the row: for writes that need nothing of the task."""
        with transaction.atomic():
            row = Task.objects.held(self.task_id, epoch=self.epoch).select_for_update()
            if row.values_list("pk").first() is None:
                raise self._loss()
            yield

    def task(self) -> Task:
        """Return the task, by a plain read. Raises LeaseLost if somebody else holds it."""
        task = Task.objects.held(self.task_id, epoch=self.epoch).select_related("project").first()
        if task is None:
            raise self._loss()
        return task

    def phase(self) -> str:
        """Return the task's phase, by a plain read. Raises LeaseLost if somebody else holds the task."""
        if self._lost.is_set():
            raise self._loss()
        phase = Task.objects.held(self.task_id, epoch=self.epoch).values_list("phase", flat=True).first()
        if phase is None:
            raise self._loss()
        return phase

    def release(self) -> None:
        """Give up the lease at once, so that the next worker can begin. Harmless if it was lost."""
        Task.objects.held(self.task_id, epoch=self.epoch).update(lease_expires=None, lease_owner="")

    def mark_lost(self) -> None:
        """Stop the work under this lease at its next check: somebody else holds the task."""
        self._lost.set()

    @property
    def as_claim(self) -> Claim:
        """The mark of processes that are started under this lease."""
        return Claim(self.task_id, self.epoch)

    @property
    def key(self) -> tuple[int, int]:
        """The task's id and the epoch."""
        return self.task_id, self.epoch

    def _loss(self) -> LeaseLost:
        return LeaseLost(f"task {self.task_id} was taken over by another worker")


class LeaseRenewer:
    """Renews all leases that this process holds, in one thread, together.

    The thread lives while there is a lease to renew. Nothing else renews a lease, so the work may have any
    number of parts, and each part may take any time.
    """

    def __init__(self) -> None:
        self._changing = threading.Lock()
        self._held: set[Lease] = set()
        self._thread: threading.Thread | None = None
        self._stop_wanted = threading.Event()

    def add(self, lease: Lease) -> None:
        with self._changing:
            self._held.add(lease)
            if self._thread is None:
                self._stop_wanted = threading.Event()
                self._thread = threading.Thread(
                    target=self._run, args=(self._stop_wanted,), name="lease-renewer", daemon=True
                )
                self._thread.start()

    def remove(self, lease: Lease) -> None:
        with self._changing:
            self._held.discard(lease)
            if self._held or self._thread is None:
                return
            thread, self._thread = self._thread, None
            self._stop_wanted.set()
        # Not longer: a database that does not answer may block the thread, which then ends by itself.
        thread.join(RETRY_SECONDS)

    def holds(self, task_id: int) -> bool:
        """Whether this process works on the task."""
        with self._changing:
            return any(lease.task_id == task_id for lease in self._held)

    def _run(self, stop_wanted: threading.Event) -> None:
        pause = RENEW_SECONDS
        while not stop_wanted.wait(pause):
            pause = self._renew()
        connection.close()

    def _renew(self) -> float:
        """Renew all leases once and return the seconds until the next renewal."""
        with self._changing:
            leases = list(self._held)
        keys = {lease.key for lease in leases}
        still_held = keys
        try:
            renewed = Task.objects.renew(keys, seconds=SECONDS)
            if renewed < len(keys):  # some are lost, or somebody has locked their rows
                still_held = set(Task.objects.held_by(keys).values_list("pk", "lease_epoch"))
        except Exception as error:
            # The work goes on: each write checks again whether the lease is still held.
            logger.warning("leases could not be renewed, trying again: %s", error)
            connection.close()
            return min(RETRY_SECONDS, RENEW_SECONDS)
        for lease in leases:
            if lease.key not in still_held:
                lease.mark_lost()
                with self._changing:
                    self._held.discard(lease)
        if renewed < len(still_held):
            return min(RETRY_SECONDS, RENEW_SECONDS)
        return RENEW_SECONDS


renewer = LeaseRenewer()


@contextmanager
def keep_renewed(lease: Lease) -> Iterator[None]:
    """Renew the lease until the context ends."""
    renewer.add(lease)
    try:
        yield
    finally:
        renewer.remove(lease)
