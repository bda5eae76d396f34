"""Tasks per minute with 2, 4 and 8 workers on this machine: `python -m tests.bench.throughput`.

PostgreSQL, Redis and one data directory; with `--hosts`, as root, each worker is on a host of its own, a set
of namespaces with a network and a disk, and its files travel. The agent is the fake one: it waits as an agent
waits for its model, and writes a file. All else is real: the queue, claims, clones, recordings. So this is
what the portal itself can do; Claude Code's process comes on top. The numbers of workers take turns, because
a busy machine would otherwise favour one of them.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from itertools import count
from pathlib import Path

from tests.bench import processes
from tests.bench.metrics import Metric, show
from tests.bench.services import own_services
from tests.forkserver import REPOSITORY
from tests.hosts import Network
from tests.installation import PLAIN_CONFIG
from tests.integration.git_repository import GitRepository
from tests.portal import WebServer
from tests.processes import start_process

MAKE = """
from tasks_app.services.projects.projects import add_project
user = User.objects.create(username="ann", is_superuser=True, password="!")
add_project("bench", {source!r}, by=user)
"""
START = """
from tasks_app.permissions import Principal
from tasks_app.services.tasks import create_task, start_task
ann = Principal.unrestricted(User.objects.get(username="ann"))
project = Project.objects.get(name="bench")
# Only so many tasks may have the same title.
text = f"# Bench after {{Task.objects.count()}} tasks\\n\\nbench: {seconds}\\n"
tasks = [create_task(project, text, by=ann, where="bench", threshold=3) for _ in range({count})]
for task in tasks:
    start_task(task, by=ann)
result = [task.pk for task in tasks]
"""
SERVER_OPTIONS = """
from tasks_app.management.commands.up import server_options
result = server_options()
"""
#: Of the tasks between two numbers: seconds from the first start to the last end, how many are done, and all.
ENDED = """
SELECT extract(epoch FROM max(ended_at) - min(queued_at)), count(*) FILTER (WHERE phase = 'done'), count(*)
FROM tasks_app_task WHERE id BETWEEN ? AND ?
"""
UNFINISHED = """
SELECT count(*) FROM tasks_app_task
WHERE id BETWEEN ? AND ? AND phase NOT IN ('done', 'failed', 'cancelled')
"""
RUNS = """
SELECT count(*) FROM tasks_app_run run JOIN tasks_app_step step ON step.id = run.step_id
WHERE step.task_id BETWEEN ? AND ?
"""
ALIVE = "SELECT count(*) FROM tasks_app_workerbeat WHERE NOT ended AND problem = ''"
WORKER = ("-m", "tests.bench.worker_with_fake_agent", "worker")
#: Seconds until the workers of a round have started, and until its tasks are done.
PATIENCE = 300.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, nargs="+", default=[2, 4, 8], help="(2 4 8)")
    parser.add_argument("--tasks", type=int, default=64, help="tasks of a round (64)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each number of workers (3)")
    parser.add_argument("--seconds", type=float, default=3.0, help="that each agent waits (3)")
    parser.add_argument("--hosts", action="store_true", help="each worker on a host of its own")
    chosen = parser.parse_args()
    show(measure(chosen.workers, chosen.tasks, chosen.rounds, chosen.seconds, hosts=chosen.hosts))


def measure(
    numbers: list[int], tasks: int, rounds: int, seconds: float, *, hosts: bool = False
) -> list[Metric]:
    done = {number: Metric(f"tasks done with {number} workers", "/min") for number in numbers}
    cpu = {
        number: Metric(f"CPU time of the workers for a task, {number} workers", "ms") for number in numbers
    }
    busy = {number: Metric(f"this machine meanwhile, {number} workers", "%") for number in numbers}
    again = Metric("runs beyond one of each task", "", "none")
    with tempfile.TemporaryDirectory() as folder, own_services() as services, ExitStack() as cleanup:
        portal = WebServer(Path(folder) / "data", **services)
        GitRepository.make(Path(folder) / "source", **{"cat-herder.yaml": PLAIN_CONFIG})
        portal.python("from tasks_app.models import *\n" + MAKE.format(source=str(Path(folder) / "source")))
        start = _workers_on_hosts(portal, cleanup) if hosts else partial(_workers, portal)
        for _ in range(rounds):
            for number in numbers:
                with start(number) as workers:
                    took, used, share, runs = _round(portal, workers, tasks, seconds)
                done[number].samples.append(tasks / took * 60)
                cpu[number].samples.append(used / tasks * 1000)
                busy[number].samples.append(share * 100)
                again.samples.append(runs - tasks)
    return [*done.values(), *cpu.values(), *busy.values(), again]


def _round(
    portal: WebServer, workers: list[int], tasks: int, seconds: float
) -> tuple[float, float, float, int]:
    """Seconds that the tasks took, CPU seconds of the workers, this machine's share of work, and runs."""
    used = sum(map(processes.cpu_seconds, workers))
    machine_before = processes.cpu_seconds_of_this_machine()
    started = portal.rows(START.format(count=tasks, seconds=seconds))
    between = (min(started), max(started))
    _until(lambda: portal.row(UNFINISHED, *between)[0] == 0)
    machine_after = processes.cpu_seconds_of_this_machine()
    used = sum(map(processes.cpu_seconds, workers)) - used
    took, done, all_of_them = portal.row(ENDED, *between)
    assert done == all_of_them == tasks, f"{done} of {all_of_them} tasks are done"
    busy, had = (after - before for before, after in zip(machine_before, machine_after, strict=True))
    return float(took), used, busy / had, int(portal.row(RUNS, *between)[0])


@contextmanager
def _workers(portal: WebServer, number: int) -> Iterator[list[int]]:
    """Start workers beside the portal; yield their process ids."""
    log = (portal.data_dir / "workers.log").open("a")
    env = portal.env()
    workers = [
        start_process([sys.executable, *WORKER], cwd=REPOSITORY, env=env, stdout=log, stderr=log)
        for _ in range(number)
    ]
    try:
        _until(lambda: portal.row(ALIVE)[0] == number)
        yield [worker.pid for worker in workers]
    finally:
        for worker in workers:
            worker.terminate()
        for worker in workers:
            worker.wait(PATIENCE)
        log.close()


def _workers_on_hosts(
    portal: WebServer, cleanup: ExitStack
) -> Callable[[int], AbstractContextManager[list[int]]]:
    """Return what starts workers on hosts of their own, which reach the portal over a network."""
    portal.start(*portal.rows(SERVER_OPTIONS))
    cleanup.callback(portal.stop)
    network = cleanup.enter_context(Network())
    urls = {**portal.variables, "CATHERDER_URL": f"http://{portal.address}"}
    names = ("DATABASE_URL", "REDIS_URL", "CATHERDER_URL")
    env = portal.env(**{name: network.offer_url(name, urls[name]) for name in names})
    counted = count(1)

    @contextmanager
    def start(number: int) -> Iterator[list[int]]:
        hosts = []
        for name in (f"host-{next(counted)}" for _ in range(number)):
            token = portal.manage("worker_token", name).stdout.strip()
            host = network.host(name, portal.data_dir.parent / name, portal.data_dir)
            host.start(*WORKER, env={**env, "CATHERDER_WORKER_TOKEN": token})
            hosts.append(host)
        try:
            _until(lambda: portal.row(ALIVE)[0] == number)
            yield [host.pid for host in hosts]
        finally:
            for host in hosts:
                host.end()
            network.destroy_hosts()

    return start


def _until(condition: Callable[[], bool]) -> None:
    patience = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < patience, "this takes too long"
        time.sleep(0.2)


if __name__ == "__main__":
    main()
