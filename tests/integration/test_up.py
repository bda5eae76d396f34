"""`up` becomes a supervisor, which keeps the web server and the worker running."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bench import processes
from tests.portal import UpPortal
from tests.waiting import wait_until


@pytest.fixture
def up(tmp_path: Path) -> Iterator[UpPortal]:
    portal = UpPortal.migrated(tmp_path / "data").start()
    yield portal
    portal.stop()


def test_a_child_that_ends_is_started_again_and_the_directory_is_held(up: UpPortal) -> None:
    """Also by the process that `up` has become."""
    second = UpPortal(up.data_dir).manage("up")
    assert second.returncode == 2 and "already running" in second.stderr
    assert up.process
    worker = processes.child(up.process.pid, "worker")
    os.kill(worker, signal.SIGKILL)
    wait_until(lambda: "The worker ended (exit code -9) and restarts in" in "".join(up.said))
    wait_until(lambda: _child(up, "worker") not in (None, worker))


def test_children_end_with_a_supervisor_that_is_killed_and_a_new_one_takes_their_place(up: UpPortal) -> None:
    assert up.process
    children = [processes.child(up.process.pid, word) for word in ("uvicorn", "worker")]
    up.process.kill()
    up.process.wait()
    assert up.process.stdout
    up.process.stdout.close()
    wait_until(lambda: not any(map(_runs, children)))
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", int(up.port)))
    up.start()


def test_the_supervisor_has_no_code_but_its_own_and_pages_go_before_the_worker(up: UpPortal) -> None:
    """No Django, which is 150 MB with all that belongs to it."""
    assert up.process
    web, worker = (processes.child(up.process.pid, word) for word in ("uvicorn", "worker"))
    wait_until(lambda: os.getpriority(os.PRIO_PROCESS, worker) > os.getpriority(os.PRIO_PROCESS, web))
    loaded = Path(f"/proc/{up.process.pid}/maps").read_text()
    assert "python" in loaded and "site-packages" not in loaded


def _child(up: UpPortal, word: str) -> int | None:
    assert up.process
    try:
        return processes.child(up.process.pid, word)
    except (ValueError, OSError):  # not yet
        return None


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
