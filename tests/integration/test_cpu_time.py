"""CPU time of tests: what the processes that a test starts use counts, too."""

from __future__ import annotations

import subprocess
import sys

from tests import cpu_time

SECONDS = 0.1
#: Twice as long: the kernel rounds the time of each process.
BUSY = f"import time\nwhile time.process_time() < {2 * SECONDS}: pass\n"
#: It goes on until something is written to it.
WAITS = f"{BUSY}print(flush=True)\ninput()"


def seconds_of(script: str) -> list[float]:
    """Return what a process of its own prints: what other tests started may end meanwhile."""
    words = [sys.executable, "-c", script]
    shown = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True).stdout
    return [float(line) for line in shown.split()]


def test_a_process_counts_while_it_runs_and_afterwards() -> None:
    script = f"""
import subprocess, sys
from tests import cpu_time
before = cpu_time.used()
words = [sys.executable, "-c", {WAITS!r}]
with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
    process.stdout.readline()
    print(cpu_time.used() - before)
    process.communicate(chr(10))
print(cpu_time.used() - before)
"""
    while_it_runs, afterwards = seconds_of(script)
    assert while_it_runs >= SECONDS
    assert afterwards >= SECONDS


def test_a_process_that_the_fork_server_started_counts() -> None:
    script = f"""
from tests import cpu_time, forkserver
forkserver.run(["-c", ""], forkserver._environment(), check=True)
before = cpu_time.used()
forkserver.run(["-c", {BUSY!r}], forkserver._environment(), check=True)
print(cpu_time.used() - before)
"""
    [seconds] = seconds_of(script)
    assert seconds >= SECONDS


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
