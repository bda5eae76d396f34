"""Processes of a benchmark or a test do not outlive it."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from tasks_app.core.files import read_process_file
from tests.forkserver import REPOSITORY
from tests.waiting import wait_until

STARTS_ONE = """
import time
from tests.processes import start_process
print(start_process(["sleep", "600"]).pid, flush=True)
time.sleep(600)
"""


def command_of(pid: int) -> bytes:
    """The command line of a process; empty for one that has ended."""
    try:
        return read_process_file(pid, "cmdline")
    except OSError:
        return b""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_one_ends_with_its_starter(number: signal.Signals) -> None:
    command = [sys.executable, "-c", STARTS_ONE]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(
        command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=quiet, text=True
    ) as starter:
        assert starter.stdout
        pid = int(starter.stdout.readline())
        # Until `setpriv` has become the command, nothing ends it with its starter.
        wait_until(lambda: command_of(pid).startswith(b"sleep"))
        starter.send_signal(number)
    wait_until(lambda: not command_of(pid))


def test_a_benchmark_starts_no_other_ones() -> None:
    files = [*(REPOSITORY / "tests/bench").rglob("*.py"), REPOSITORY / "tests/installation.py"]
    started = [path for path in files if "subprocess.Popen(" in path.read_text()]
    assert not started
