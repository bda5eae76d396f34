"""Events of many agents through workers, and how long pages take meanwhile: `python -m tests.bench.writing`.

The workers are processes of their own with the fake agent, which writes at a pace through everything that
stores the events of a real one: the recorder, the lease, the change for open pages. `--postgres` does it on
PostgreSQL.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path

from tests.bench import processes
from tests.bench.fake_agent import MESSAGE, WORDS
from tests.bench.fake_portal import FakePortal, fake_portal
from tests.bench.floors.plain_database import RUN, PlainDatabase, PlainWriter
from tests.bench.metrics import Metric, quantile, show
from tests.bench.services import own_services
from tests.bench.storing import BETWEEN, PLAIN_SECONDS, client_of

AGENTS, WORKERS = 20, 4
#: Seconds that each round lasts, that its agents begin before it and stop writing after it, and for which the
#: same pages are asked for afterwards, when nobody writes. The agents end later than that.
SECONDS, AROUND, QUIET_SECONDS = 15.0, 5.0, 5.0
REST = 2 * AROUND + QUIET_SECONDS
#: Those of agents. The floor writes to a run of its own.
EVENTS = "SELECT count(*) FROM tasks_app_event WHERE kind = 'text' AND run_id <> ?"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=int, default=10_000, help="events a second of all agents (10,000)")
    parser.add_argument("--batch", type=int, default=50, help="events in each message of an agent (50)")
    parser.add_argument("--rounds", type=int, default=3, help="(3)")
    parser.add_argument("--postgres", action="store_true", help="rows in PostgreSQL, with Redis")
    chosen = parser.parse_args()
    with ExitStack() as cleanup:
        services = cleanup.enter_context(own_services()) if chosen.postgres else {}
        show(measure(chosen.rounds, rate=chosen.rate, batch=chosen.batch, **services))


def measure(rounds: int, *, rate: int = 10_000, batch: int = 50, **services: str) -> list[Metric]:
    stored = Metric(
        f"events through {WORKERS} workers with {AGENTS} agents, {rate:,} offered", "/s", f"{rate:,}"
    )
    plain = Metric("  floor: the same rows by one writer without Django", "/s")
    used = Metric("  CPU time of the workers for 1,000 events", "ms")
    plain_used = Metric("  floor: CPU time of the writer without Django for 1,000 events", "ms")
    stored.floor, used.floor = [plain], [plain_used]
    pages = [_Page("list of tasks"), _Page("page of a task")]
    slots = {"CATHERDER_WORKERS": str(AGENTS // WORKERS)}
    with (
        tempfile.TemporaryDirectory() as folder,
        fake_portal(Path(folder), {**slots, **services}, workers=WORKERS) as running,
        ExitStack() as cleanup,
    ):
        task, run = running.portal.rows(RUN)
        database = cleanup.enter_context(closing(PlainDatabase(running.portal.database_url)))
        writer = PlainWriter(database, task=task, run=run, batch=batch, payload={"text": WORDS}, raw=MESSAGE)
        for _ in range(rounds):
            written = writer.write(PLAIN_SECONDS)
            plain.samples.append(written.per_second)
            plain_used.samples.append(written.cpu_ms_per_thousand)
            # They end by themselves: if they write all that the database takes, nobody else can cancel them.
            what = f"write {rate / AGENTS:g} {SECONDS + 2 * AROUND:g} {batch} {REST:g}"
            tasks = running.start_tasks(AGENTS, what)
            running.until_in("running", tasks)
            time.sleep(AROUND)
            cpu, before, began = _cpu(running), _events(running, run), time.monotonic()
            addresses = ("/tasks/", f"/tasks/{tasks[0]}/")
            _ask_for(running, addresses, [page.meanwhile for page in pages], SECONDS)
            took, count = time.monotonic() - began, _events(running, run) - before
            stored.samples.append(count / took)
            used.samples.append((_cpu(running) - cpu) / count * 1_000_000)
            _until_nobody_writes(running, run)
            _ask_for(running, addresses, [page.quiet for page in pages], QUIET_SECONDS)
            running.until_in("done", tasks)
    return [stored, plain, used, plain_used, *(metric for page in pages for metric in page.metrics)]


class _Page:
    """How long a page takes while agents write, and while nobody does."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.meanwhile = Metric(f"  {name} meanwhile", "ms")
        self.quiet = Metric(f"  floor: {name} while nobody writes", "ms")
        self.meanwhile.floor = [self.quiet]

    @property
    def metrics(self) -> list[Metric]:
        """The medians, and the 99th percentiles."""
        high = Metric(f"  {self._name} meanwhile, p99", "ms", "below 100")
        quiet = Metric(f"  floor: {self._name} while nobody writes, p99", "ms")
        high.floor = [quiet]
        high.samples = [quantile(self.meanwhile.samples, 0.99)]
        quiet.samples = [quantile(self.quiet.samples, 0.99)]
        return [self.meanwhile, self.quiet, high, quiet]


def _ask_for(running: FakePortal, addresses: Sequence[str], metrics: list[Metric], seconds: float) -> None:
    """Ask for the pages in turns, over one connection that stays open, for so many seconds."""
    client, until = client_of(running.portal), time.monotonic() + seconds
    while time.monotonic() < until:
        for address, metric in zip(addresses, metrics, strict=True):
            metric.samples.append(client.timed(address))
            time.sleep(BETWEEN)


def _until_nobody_writes(running: FakePortal, run: int) -> None:
    before = -1
    while before != (before := _events(running, run)):
        time.sleep(1)


def _events(running: FakePortal, floor: int) -> int:
    """Return how many events there are, but for those of the floor's run."""
    return int(running.row(EVENTS, floor)[0])


def _cpu(running: FakePortal) -> float:
    return sum(map(processes.cpu_seconds, running.workers))


if __name__ == "__main__":
    main()
