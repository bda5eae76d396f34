"""Events of many agents at once, and how long a page takes meanwhile, on the embedded database."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path

from tests.bench.metrics import Metric
from tests.forkserver import REPOSITORY
from tests.portal import UpPortal

WRITER = """
import django, sys, time; django.setup()
from tasks_app.history.events.append import NewEvent, append
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
PLAIN_SECONDS = 1.0


def measure(rounds: int, *, agents: int = 20, batch: int = 50) -> list[Metric]:
    """`agents` writers, each a process, for SECONDS; pages of the portal are asked for meanwhile."""
    stored = Metric(f"events stored by {agents} agents at once", "/s", "10,000")
    pages = Metric("dashboard meanwhile", "ms", "p99 below 100")
    floor = Metric("floor: the same rows into an SQLite file, one writer", "/s")
    stored.floor = [floor]
    with tempfile.TemporaryDirectory() as folder:
        portal = UpPortal(Path(folder) / "data").start()
        try:
            runs = portal.rows(SEED % agents)
            for _ in range(rounds):
                floor.samples.append(_plain_rows_per_second(Path(folder) / "plain.sqlite3", batch))
                stored.samples.append(_round(portal, runs, batch, pages))
        finally:
            portal.stop()
    pages.samples.sort()
    worst = Metric("dashboard meanwhile, p99", "ms", "below 100")
    worst.samples = pages.samples[int(len(pages.samples) * 0.99) :][:1]
    return [stored, floor, pages, worst]


def _plain_rows_per_second(file: Path, batch: int) -> float:
    """Insert rows like those of events in transactions of `batch`, written through like the portal's own."""
    row = (1, "text", json.dumps({"text": "word " * 40}), "2026-01-01 00:00:00")
    with closing(sqlite3.connect(file, isolation_level=None)) as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = FULL")
        database.execute("CREATE TABLE IF NOT EXISTS event (run, kind, payload, at)")
        count, until = 0, time.monotonic() + PLAIN_SECONDS
        while time.monotonic() < until:
            database.execute("BEGIN IMMEDIATE")
            database.executemany("INSERT INTO event VALUES (?, ?, ?, ?)", [row] * batch)
            database.execute("COMMIT")
            count += batch
    return count / PLAIN_SECONDS


def _round(portal: UpPortal, runs: list[int], batch: int, pages: Metric) -> float:
    env = portal.env()
    writers = [
        subprocess.Popen(
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
        began = time.perf_counter()
        client.get("/")
        pages.samples.append((time.perf_counter() - began) * 1000)
        time.sleep(0.05)
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


def client_of(portal: UpPortal) -> Client:
    """Logging in is not what is measured."""
    return Client(portal.url, {"sessionid": portal.session("admin")})
