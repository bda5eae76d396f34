"""A portal whose workers have the fake agent: its web server as `up` starts it, and workers beside it."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench import processes
from tests.forkserver import REPOSITORY
from tests.installation import PLAIN_CONFIG
from tests.integration.git_repository import GitRepository
from tests.portal import UpPortal
from tests.processes import start_process

#: Seconds until what is waited for has failed.
PATIENCE = 900.0
PROJECT = """
from tasks_app.services.projects.projects import add_project
add_project("bench", {source!r}, by=User.objects.get(username="admin"))
"""
START = """
from tasks_app.permissions import Principal
from tasks_app.services.tasks import create_task, start_task
admin = Principal.unrestricted(User.objects.get(username="admin"))
project = Project.objects.get(name="bench")
# Only so many tasks may have the same title.
texts = [f"# Bench {{Task.objects.count()}} {{number}}\\n\\nbench: {what}\\n" for number in range({count})]
tasks = [create_task(project, text, by=admin, where="bench", threshold=3) for text in texts]
for task in tasks:
    start_task(task, by=admin)
result = [task.pk for task in tasks]
"""
CANCEL = """
from contextlib import suppress
from tasks_app.core.errors import IllegalMove
from tasks_app.core.phases import CANCELLABLE
from tasks_app.permissions import Principal
from tasks_app.services.tasks import cancel_task
admin = Principal.unrestricted(User.objects.get(username="admin"))
for task in Task.objects.filter(phase__in=CANCELLABLE).exclude(phase="pending", queued_at=None):
    with suppress(IllegalMove):  # it has ended by now
        cancel_task(task, by=admin)
"""
ALIVE = "SELECT count(*) FROM tasks_app_workerbeat WHERE NOT ended AND problem = ''"
HELD = "SELECT count(*) FROM tasks_app_task WHERE lease_owner <> ''"
IN_PHASE = "SELECT count(*) FROM tasks_app_task WHERE phase = ? AND id BETWEEN ? AND ?"
WORKER = ("-m", "tests.bench.worker_with_fake_agent", "worker")


@dataclass(frozen=True)
class FakePortal:
    """A portal with a project `bench`. `workers` are the ids of the workers' processes."""

    portal: UpPortal
    workers: list[int]

    @property
    def web_server(self) -> int:
        """The id of its process."""
        assert self.portal.process
        return processes.child(self.portal.process.pid, "uvicorn")

    def start_tasks(self, count: int, what: str) -> list[int]:
        """Start tasks whose agents do what `worker_with_fake_agent` reads from the text. Return their ids."""
        started: list[int] = self.portal.rows(START.format(count=count, what=what))
        return started

    def until_in(self, phase: str, tasks: list[int]) -> None:
        """Wait until all these tasks, whose ids follow each other, are in the phase."""
        self.until(lambda: self.row(IN_PHASE, phase, min(tasks), max(tasks))[0] == len(tasks))

    def cancel_all(self) -> None:
        """Cancel all tasks, and wait until no worker holds one."""
        self.portal.rows(CANCEL)
        self.until(lambda: self.row(HELD)[0] == 0)

    def row(self, sql: str, *values: Any) -> tuple[Any, ...]:
        return self.portal.row(sql, *values)

    @staticmethod
    def until(condition: Callable[[], bool]) -> None:
        patience = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < patience, "this takes too long"
            time.sleep(0.2)


@contextmanager
def fake_portal(
    folder: Path, variables: Mapping[str, str] | None = None, *, workers: int = 1
) -> Iterator[FakePortal]:
    """Yield the portal, once its web server and so many workers are ready."""
    portal = UpPortal(folder / "data", CATHERDER_CONNECTIONS_PER_ADDRESS="2000", **(variables or {}))
    portal.start("--no-worker", "--no-sample")
    log = (folder / "workers.log").open("w")
    running: list[subprocess.Popen[bytes]] = []
    try:
        GitRepository.make(folder / "source", **{"cat-herder.yaml": PLAIN_CONFIG})
        portal.rows(PROJECT.format(source=str(folder / "source")))
        for _ in range(workers):
            command = [sys.executable, *WORKER]
            running.append(start_process(command, cwd=REPOSITORY, env=portal.env(), stdout=log, stderr=log))
        FakePortal.until(lambda: portal.row(ALIVE)[0] == workers)
        yield FakePortal(portal, [worker.pid for worker in running])
    finally:
        for worker in running:
            worker.terminate()
        for worker in running:
            worker.wait(PATIENCE)
        log.close()
        portal.stop()
