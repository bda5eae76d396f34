"""Named pipes: who has written to a file wakes the processes that wait for that."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from catherder_site.queue import QueueFile
from tasks_app.core.wakeup import Listener, Wakeup
from tests.waiting import wait_until

PATIENCE = 60.0


@pytest.fixture
def wakeup(tmp_path: Path) -> Wakeup:
    return Wakeup(tmp_path / "wakeup")


def waiting(listener: Listener, count: int) -> list[threading.Thread]:
    """Threads that wait for the next notification, which nothing else would end."""
    known = listener.count
    threads = [threading.Thread(target=listener.wait, args=(known, PATIENCE)) for _ in range(count)]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(listener._changed._waiters) == count)  # type: ignore[attr-defined]
    return threads


def test_a_notification_wakes_one_thread_of_each_listener(wakeup: Wakeup) -> None:
    listeners = [wakeup.listen(), wakeup.listen()]
    threads = [waiting(listener, 2) for listener in listeners]
    wakeup.notify()
    wait_until(lambda: [sum(thread.is_alive() for thread in pair) for pair in threads] == [1, 1])
    wakeup.notify()
    wait_until(lambda: not any(thread.is_alive() for pair in threads for thread in pair))


def test_a_notification_before_the_wait_counts(wakeup: Wakeup) -> None:
    listener = wakeup.listen()
    known = listener.count
    wakeup.notify()
    wait_until(lambda: listener.count == known + 1)
    listener.wait(known, PATIENCE)  # returns at once


def test_closing_ends_every_wait_and_removes_the_pipe(wakeup: Wakeup, tmp_path: Path) -> None:
    listener = wakeup.listen()
    threads = waiting(listener, 3)
    listener.close()
    for thread in threads:
        thread.join(PATIENCE)
        assert not thread.is_alive()
    listener.wait(listener.count, PATIENCE)
    assert not list((tmp_path / "wakeup").iterdir())
    wakeup.notify()


def test_nobody_waits_for_who_does_not_listen(wakeup: Wakeup, tmp_path: Path) -> None:
    """No folder, a full pipe, the pipe of a killed worker, and something else of that name."""
    wakeup.notify()
    listening = wakeup.listen()
    code = "import os, sys; from pathlib import Path; from tasks_app.core.wakeup import Wakeup;"
    code += "Wakeup(Path(sys.argv[1])).listen(); os.kill(os.getpid(), 9)"
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "wakeup")], check=False)
    (tmp_path / "wakeup" / "file").write_text("")
    full = tmp_path / "wakeup" / "full"
    os.mkfifo(full)
    pipe = os.open(full, os.O_RDWR | os.O_NONBLOCK)
    with pytest.raises(BlockingIOError):
        while True:
            os.write(pipe, b"!" * 4096)
    assert len(list((tmp_path / "wakeup").iterdir())) == 4
    wakeup.notify()
    wait_until(lambda: listening.count == 1)
    assert len(list((tmp_path / "wakeup").iterdir())) == 3, "the pipe of the killed worker is removed"
    os.close(pipe)


def test_what_is_put_into_the_queues_file_notifies(tmp_path: Path) -> None:
    storage = QueueFile("queue", filename=str(tmp_path / "queue.sqlite3"))
    listener = storage.wakeup.listen()
    storage.enqueue(b"one")
    wait_until(lambda: listener.count == 1)
    storage.enqueue_here(b"two")
    wait_until(lambda: listener.count == 2)
