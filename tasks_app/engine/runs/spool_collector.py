"""Storing what programs of the sandbox leave for the portal during a run: replies, and unfit decisions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from tasks_app.agent.spools import Spooled, SpooledReply, spooled_replies
from tasks_app.engine.lease import Lease
from tasks_app.models import Run, Task, paths
from tasks_app.services.review_threads import AgentReply, store_agent_replies

T = TypeVar("T")


class Reader(Protocol[T]):
    """Reads what is not `known` from a folder of the home."""

    def __call__(self, home: Path, *, known: Collection[str] = ()) -> Spooled[T]: ...


class SpoolCollector(Generic[T]):
    """Stores what one run leaves in a folder, each once, however often it is read.

    `store` must be harmless if it is called twice: a worker may die in between.
    """

    def __init__(
        self, run: Run, lease: Lease, read: Reader[T], store: Callable[[Run, Sequence[T]], object]
    ) -> None:
        self._run, self._lease = run, lease
        self._read, self._store = read, store
        self._home = paths.home(run.step.task)
        self._seen: set[str] = set()

    def collect(self) -> None:
        """Store what is new. Cheap if nothing is: it lists one folder."""
        spooled = self._read(self._home, known=self._seen)
        if spooled.found:
            with self._lease.locked():
                self._store(self._run, spooled.found)
        self._seen |= spooled.keys


def last_run_of(task: Task) -> Run | None:
    """Return the task's last run, whose worker may have died before it had read what the run left."""
    runs = Run.objects.filter(step__task=task).select_related("step__task__project")
    return runs.order_by("pk").last()


def reply_collector(run: Run, lease: Lease) -> SpoolCollector[SpooledReply]:
    return SpoolCollector(run, lease, spooled_replies, _store_replies)


def _store_replies(run: Run, replies: Sequence[SpooledReply]) -> None:
    store_agent_replies(run, [AgentReply(reply.number, reply.text, reply.key) for reply in replies])
