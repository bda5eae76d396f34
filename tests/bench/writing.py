"""Events of many agents through workers, and how long pages take meanwhile: `python -m tests.bench.writing`.

The workers are processes of their own with the fake agent, which writes at a pace through everything that
stores the events of a real one: the recorder, the lease, the change for open pages. `--postgres` does it on
PostgreSQL.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from tests.bench import processes
from tests.bench.fake_portal import FakePortal, fake_portal
from tests.bench.metrics import Metric, quantile, show
from tests.bench.services import own_services
from tests.bench.storing import client_of

AGENTS, WORKERS = 20, 4
#: Seconds that each round lasts, that its agents begin before it and end after it, and between two requests.
SECONDS, AROUND, BETWEEN = 15.0, 5.0, 0.05
EVENTS = "SELECT count(*) FROM tasks_app_event WHERE kind = 'text'"


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
    used = Metric("  CPU time of the workers for 1,000 events", "ms")
    pages = {name: Metric(f"  {name} meanwhile", "ms") for name in ("dashboard", "page of a task")}
    high = {name: Metric(f"  {name} meanwhile, p99", "ms", "below 100") for name in pages}
    slots = {"CATHERDER_WORKERS": str(AGENTS // WORKERS)}
    with (
        tempfile.TemporaryDirectory() as folder,
        fake_portal(Path(folder), {**slots, **services}, workers=WORKERS) as running,
    ):
        for _ in range(rounds):
            # They end by themselves: if they write all that the database takes, nobody else can cancel them.
            tasks = running.start_tasks(AGENTS, f"write {rate / AGENTS:g} {SECONDS + 2 * AROUND:g} {batch}")
            running.until_in("running", tasks)
            time.sleep(AROUND)
            cpu, before, began = _cpu(running), _events(running), time.monotonic()
            _ask_for(running, {"dashboard": "/", "page of a task": f"/tasks/{tasks[0]}/"}, pages)
            took, written = time.monotonic() - began, _events(running) - before
            stored.samples.append(written / took)
            used.samples.append((_cpu(running) - cpu) / written * 1_000_000)
            running.until_in("done", tasks)
    for name, metric in pages.items():
        high[name].samples = [quantile(metric.samples, 0.99)]
    return [stored, used, *(one for name in pages for one in (pages[name], high[name]))]


def _ask_for(running: FakePortal, addresses: dict[str, str], pages: dict[str, Metric]) -> None:
    """Ask for the pages in turns, over one connection that stays open, until the round is over."""
    client, until = client_of(running.portal), time.monotonic() + SECONDS
    while time.monotonic() < until:
        for name, address in addresses.items():
            began = time.perf_counter()
            client.get(address)
            pages[name].samples.append((time.perf_counter() - began) * 1000)
            time.sleep(BETWEEN)


def _events(running: FakePortal) -> int:
    return int(running.row(EVENTS)[0])


def _cpu(running: FakePortal) -> float:
    return sum(map(processes.cpu_seconds, running.workers))


if __name__ == "__main__":
    main()
