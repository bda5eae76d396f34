"""Events of many agents at once, and how long a page takes meanwhile, on the embedded database."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path

from tests.bench.floors.plain_database import RUN, PlainDatabase, PlainWriter
from tests.bench.metrics import Metric, quantile
from tests.forkserver import REPOSITORY
from tests.portal import UpPortal
from tests.processes import start_process

WRITER = """
import django, sys, time; django.setup()
from tasks_app.history.events.blocks import NewEvent, append
from tasks_app.models import EventKind, Run
run = Run.objects.get(pk=int(sys.argv[1]))
batch = int(sys.argv[2])
until = time.monotonic() + float(sys.argv[3])
seq = run.next_seq(); count = 0
while time.monotonic() < until:
    seq = append(run, [NewEvent(EventKind.TEXT, {"text": "word " * 40}) for _ in range(batch)], seq=seq)
    count += batch
print(count)
"""
SEED = """
import uuid
from tasks_app.models import *
project = Project.objects.create(name='bench', source='/nowhere', branch='main')
result = []
for number in range(%d):
    task = Task.objects.create(project=project, slug=f'task-{number}', title='Bench', pipeline='default')
    step = Step.objects.create(task=task, position=1, name='only', config={})
    result.append(Run.objects.create(step=step, number=1, reason='first', session_id=uuid.uuid4()).pk)
"""
SECONDS = 5.0
#: Seconds for which the floor is written, and how often a page is asked for while nobody writes.
PLAIN_SECONDS, QUIET_REQUESTS = 1.0, 20
#: Seconds between two requests.
BETWEEN = 0.05


def measure(rounds: int, *, agents: int = 20, batch: int = 50) -> list[Metric]:
    """`agents` writers, each a process, for SECONDS; pages of the portal are asked for meanwhile."""
    stored = Metric(f"events stored by {agents} agents at once", "/s", "10,000")
    pages = Metric("list of tasks meanwhile", "ms", "p99 below 100")
    floor = Metric("floor: the same rows by one writer without Django", "/s")
    quiet = Metric("floor: list of tasks while nobody writes", "ms")
    stored.floor, pages.floor = [floor], [quiet]
    with tempfile.TemporaryDirectory() as folder:
        portal = UpPortal(Path(folder) / "data").start()
        try:
            runs, (task, run) = portal.rows(SEED % agents), portal.rows(RUN)
            with closing(PlainDatabase(portal.database_url)) as database:
                plain = PlainWriter(database, task=task, run=run, batch=batch, payload={"text": "word " * 40})
                for _ in range(rounds):
                    floor.samples.append(plain.write(PLAIN_SECONDS).per_second)
                    quiet.samples += _quiet(client_of(portal))
                    stored.samples.append(_round(portal, runs, batch, pages))
        finally:
            portal.stop()
    worst = Metric("list of tasks meanwhile, p99", "ms", "below 100", [quantile(pages.samples, 0.99)])
    quiet_worst = Metric("floor: list of tasks while nobody writes, p99", "ms")
    quiet_worst.samples = [quantile(quiet.samples, 0.99)]
    worst.floor = [quiet_worst]
    return [stored, floor, pages, quiet, worst, quiet_worst]


def _quiet(client: Client) -> list[float]:
    """Return the milliseconds of requests for the list of tasks."""
    took = []
    for _ in range(QUIET_REQUESTS):
        took.append(client.timed("/tasks/"))
        time.sleep(BETWEEN)
    return took


def _round(portal: UpPortal, runs: list[int], batch: int, pages: Metric) -> float:
    env = portal.env()
    writers = [
        start_process(
            [sys.executable, "-c", WRITER, str(run), str(batch), str(SECONDS)],
            env=env,
            cwd=REPOSITORY,
            stdout=subprocess.PIPE,
            text=True,
        )
        for run in runs
    ]
    client = client_of(portal)
    while any(writer.poll() is None for writer in writers):
        pages.samples.append(client.timed("/tasks/"))
        time.sleep(BETWEEN)
    return sum(int(writer.communicate()[0]) for writer in writers) / SECONDS


class Client:
    """One session of one user, over one connection that stays open, as browsers keep theirs."""

    def __init__(self, url: str, cookies: dict[str, str]) -> None:
        self._connection = HTTPConnection(url.removeprefix("http://"), timeout=60)
        self._headers = {"Cookie": "; ".join(f"{name}={value}" for name, value in cookies.items())}

    def get(self, path: str) -> bytes:
        self._connection.request("GET", path, headers=self._headers)
        answer = self._connection.getresponse()
        body = answer.read()
        assert answer.status == 200, f"{path}: {answer.status}"
        return body

    def timed(self, path: str) -> float:
        """Return the milliseconds until the whole page was there."""
        began = time.perf_counter()
        self.get(path)
        return (time.perf_counter() - began) * 1000


def client_of(portal: UpPortal) -> Client:
    """Logging in is not what is measured."""
    return Client(portal.url, {"sessionid": portal.session("admin")})
