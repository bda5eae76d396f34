"""The lease on a task: who may write to it, and until when."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

from django.db import connection, transaction
from django.db.models.functions import Now

from tasks_app.errors import LeaseLost
from tasks_app.models import Task

#: A holder that stops renewing loses the task after this; it renews four times as often.
SECONDS = 20.0
RENEW_SECONDS = SECONDS / 4


@dataclass(frozen=True)
class Lease:
    """Held by one worker; every claim of a task raises its epoch, so an old holder's writes are refused."""

    task_id: int
    owner: str
    epoch: int

    @classmethod
    def claim(cls, task_id: int, *, owner: str) -> Lease | None:
        """The lease of a task on which there is work to do, or None."""
        epoch = Task.objects.claim(task_id, owner=owner, seconds=SECONDS)
        return None if epoch is None else cls(task_id, owner, epoch)

    @contextmanager
    def fenced(self) -> Iterator[Task]:
        """One transaction in which the task is surely still ours. Raises LeaseLost."""
        with transaction.atomic():
            rows = Task.objects.held(self.task_id, epoch=self.epoch).select_for_update(of=("self",))
            task = rows.select_related("project").first()
            if task is None:
                raise LeaseLost(f"task {self.task_id} was taken over by somebody else")
            yield task

    def renew(self) -> None:
        """Hold it for another while. Raises LeaseLost."""
        expires = Now() + timedelta(seconds=SECONDS)
        if not Task.objects.held(self.task_id, epoch=self.epoch).update(lease_expires=expires):
            raise LeaseLost(f"task {self.task_id} was taken over by somebody else")

    def release(self) -> None:
        """Let go at once, so that the next can begin. Harmless if it was lost."""
        Task.objects.held(self.task_id, epoch=self.epoch).update(lease_expires=None, lease_owner="")


@contextmanager
def kept(lease: Lease) -> Iterator[None]:
    """Renew the lease while something slow is done that cannot do it itself, git on a large clone say.

    A lease that is lost meanwhile shows at the next fenced write.
    """
    done = threading.Event()
    keeper = threading.Thread(target=_keep, args=(lease, done), name="lease-keeper", daemon=True)
    keeper.start()
    try:
        yield
    finally:
        done.set()
        keeper.join()


def _keep(lease: Lease, done: threading.Event) -> None:
    try:
        while not done.wait(RENEW_SECONDS):
            lease.renew()
    except LeaseLost:
        return
    finally:
        connection.close()
