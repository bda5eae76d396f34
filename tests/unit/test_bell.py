"""The bell of the queue's file: who stores a job wakes the threads of workers that wait for one."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from catherder_site.bell import Bell, Listener
from catherder_site.queue import QueueFile
from tests.waiting import wait_until

PATIENCE = 60.0


@pytest.fixture
def bell(tmp_path: Path) -> Bell:
    return Bell(tmp_path / "bells")


def waiting(listener: Listener, count: int) -> list[threading.Thread]:
    """Threads that wait for the next ring, which nothing else would end."""
    known = listener.count
    threads = [threading.Thread(target=listener.wait, args=(known, PATIENCE)) for _ in range(count)]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(listener._rung._waiters) == count)  # type: ignore[attr-defined]
    return threads


def test_a_ring_wakes_one_thread_of_each_listener(bell: Bell) -> None:
    listeners = [bell.listen(), bell.listen()]
    threads = [waiting(listener, 2) for listener in listeners]
    bell.ring()
    wait_until(lambda: [sum(thread.is_alive() for thread in pair) for pair in threads] == [1, 1])
    bell.ring()
    wait_until(lambda: not any(thread.is_alive() for pair in threads for thread in pair))


def test_a_ring_before_the_wait_counts(bell: Bell) -> None:
    listener = bell.listen()
    known = listener.count
    bell.ring()
    wait_until(lambda: listener.count == known + 1)
    listener.wait(known, PATIENCE)  # returns at once


def test_closing_ends_every_wait_and_removes_the_pipe(bell: Bell, tmp_path: Path) -> None:
    listener = bell.listen()
    threads = waiting(listener, 3)
    listener.close()
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()
    listener.wait(listener.count, PATIENCE)
    assert not list((tmp_path / "bells").iterdir())
    bell.ring()


def test_nobody_waits_for_who_does_not_listen(bell: Bell, tmp_path: Path) -> None:
    """No folder, a full pipe, the pipe of a killed worker, and something else of that name."""
    bell.ring()
    listening = bell.listen()
    code = "import os, sys; from pathlib import Path; from catherder_site.bell import Bell;"
    code += "Bell(Path(sys.argv[1])).listen(); os.kill(os.getpid(), 9)"
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "bells")], check=False)
    (tmp_path / "bells" / "file").write_text("")
    full = tmp_path / "bells" / "full"
    os.mkfifo(full)
    pipe = os.open(full, os.O_RDWR | os.O_NONBLOCK)
    with pytest.raises(BlockingIOError):
        while True:
            os.write(pipe, b"!" * 4096)
    assert len(list((tmp_path / "bells").iterdir())) == 4
    bell.ring()
    wait_until(lambda: listening.count == 1)
    assert len(list((tmp_path / "bells").iterdir())) == 3, "the pipe of the killed worker is removed"
    os.close(pipe)


def test_what_is_put_into_the_queues_file_rings(tmp_path: Path) -> None:
    storage = QueueFile("queue", filename=str(tmp_path / "queue.sqlite3"))
    listener = storage.bell.listen()
    storage.enqueue(b"one")
    wait_until(lambda: listener.count == 1)
    storage.enqueue_here(b"two")
    wait_until(lambda: listener.count == 2)
