"""What web server and worker keep in memory at rest and after many tasks: `python -m tests.bench.memory`.

Their own memory, without what they share with other processes. The tasks are done by the fake agent in a
worker with four slots. After each step the pages that show them are asked for.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from tests.bench import processes
from tests.bench.fake_portal import FakePortal, fake_portal
from tests.bench.floors import bare_python
from tests.bench.metrics import Metric, show
from tests.bench.services import own_services
from tests.bench.starting import SETTLING
from tests.bench.storing import client_of

#: After which share of the tasks to look.
STEPS = (0.0, 0.1, 0.25, 0.5, 0.75, 1.0)
#: Tasks that are started at once; more would only wait.
AT_ONCE = 50
PAGES = ("/tasks/", "/inbox/", "/tasks/all/", "/tasks/?group=working", "/tasks/queue/", "/usage/")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=1_000, help="tasks of the last step (1,000)")
    parser.add_argument("--postgres", action="store_true", help="rows in PostgreSQL, with Redis")
    chosen = parser.parse_args()
    with ExitStack() as cleanup:
        services = cleanup.enter_context(own_services()) if chosen.postgres else {}
        show(measure(chosen.tasks, **services))


def measure(tasks: int, **services: str) -> list[Metric]:
    found: list[Metric] = []
    with tempfile.TemporaryDirectory() as folder, fake_portal(Path(folder), services) as running:
        done = 0
        for wanted in sorted({round(tasks * share) for share in STEPS}):
            while done < wanted:
                done += _do_tasks(running, min(AT_ONCE, wanted - done))
            found += _at_rest(
                running, f"after {done:,} tasks" if done else "that has had no work", looked=done > 0
            )
    return found


def _do_tasks(running: FakePortal, count: int) -> int:
    running.until_in("done", running.start_tasks(count, "0"))
    return count


def _at_rest(running: FakePortal, when: str, *, looked: bool) -> Sequence[Metric]:
    if looked:
        client = client_of(running.portal)
        newest = running.row("SELECT max(id) FROM tasks_app_task")[0]
        for page in (*PAGES, f"/tasks/{newest}/", f"/tasks/{newest}/log/"):
            client.get(page)
    time.sleep(SETTLING)
    (worker,) = running.workers
    found = [
        Metric(f"memory of the {name} {when}, its own", "MB", wanted, [processes.own_memory(pid) / 1000])
        for name, pid, wanted in (
            ("web server", running.web_server, ""),
            ("worker", worker, "" if looked else "below 100"),
        )
    ]
    floor = Metric("  floor: Python with Django and the portal's models", "MB")
    floor.samples = [bare_python.memory(running.portal, bare_python.WITH_DJANGO)]
    for metric in found:
        metric.floor = [floor]
    return [*found, floor]


if __name__ == "__main__":
    main()
