"""CPU time of tests: what the processes that a test starts use counts, too."""

from __future__ import annotations

import subprocess
import sys

from tests import cpu_time, forkserver

SECONDS = 0.1
#: Twice as long: the kernel rounds the time of each process.
BUSY = f"import time\nwhile time.process_time() < {2 * SECONDS}: pass\n"


def test_a_process_counts_while_it_runs_and_afterwards() -> None:
    before = cpu_time.used()
    with subprocess.Popen(
        [sys.executable, "-c", f"{BUSY}print(flush=True)\ninput()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout
        process.stdout.readline()
        assert cpu_time.used() >= before + SECONDS
        process.communicate("\n")
    assert cpu_time.used() >= before + SECONDS


def test_a_process_that_the_fork_server_started_counts() -> None:
    forkserver.run(["-c", ""], forkserver._environment(), check=True)
    before = cpu_time.used()
    forkserver.run(["-c", BUSY], forkserver._environment(), check=True)
    assert cpu_time.used() >= before + SECONDS


def test_modules_of_all_workers_are_added_up() -> None:
    class Worker:
        def __init__(self, **seconds: float) -> None:
            self.workeroutput = {"cpu_seconds": seconds}

    time = cpu_time.CpuTime(shown=1)
    for worker in (Worker(a=1.5, b=1.0), Worker(a=2.0)):
        time.pytest_testnodedown(worker)
    shown: list[str] = []

    class Reporter:
        section = write_line = staticmethod(shown.append)

    time.pytest_terminal_summary(Reporter())  # type: ignore[arg-type]
    assert [line.split()[:2] for line in shown] == [["CPU", "seconds"], ["3.5", "a"], ["4.5", "in"]]
