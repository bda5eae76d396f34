"""Named pipes: who has written to a file wakes the processes that wait for that."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tasks_app.core.wakeup import Pipe, notify

PATIENCE = 60.0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "wakeup"


def waiting(pipe: Pipe, count: int = 1) -> list[threading.Thread]:
    """Threads that wait for a notification, which nothing else would end."""
    threads = [threading.Thread(target=pipe.wait, args=(PATIENCE,)) for _ in range(count)]
    for thread in threads:
        thread.start()
    return threads


def end(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.join(PATIENCE / 2)
        assert not thread.is_alive()


def test_a_notification_wakes_each_process_that_waits(folder: Path) -> None:
    threads = [*waiting(Pipe(folder)), *waiting(Pipe(folder))]
    notify(folder)
    end(threads)


def test_as_many_notifications_end_as_many_waits(folder: Path) -> None:
    pipe = Pipe(folder)
    threads = waiting(pipe, 3)
    for _ in threads:
        notify(folder)
    end(threads)


def test_a_notification_before_the_wait_counts_until_it_is_taken(folder: Path) -> None:
    pipe = Pipe(folder)
    notify(folder)
    notify(folder)
    end(waiting(pipe, 2))
    notify(folder)
    pipe.take()
    (thread,) = waiting(pipe)
    thread.join(0.1)
    assert thread.is_alive()
    pipe.wake(1)
    end([thread])


def test_a_closed_pipe_is_removed(folder: Path) -> None:
    pipe = Pipe(folder)
    pipe.close()
    assert not list(folder.iterdir())
    notify(folder)


def test_nobody_waits_for_who_does_not_listen(folder: Path) -> None:
    """No folder, a full pipe, the pipe of a killed worker, and something else of that name."""
    notify(folder)
    listening = Pipe(folder)
    code = "import os, sys; from pathlib import Path; from tasks_app.core.wakeup import Pipe;"
    code += "Pipe(Path(sys.argv[1])); os.kill(os.getpid(), 9)"
    subprocess.run([sys.executable, "-c", code, str(folder)], check=False)
    (folder / "file").write_text("")
    full = folder / "full"
    os.mkfifo(full)
    pipe = os.open(full, os.O_RDWR | os.O_NONBLOCK)
    with pytest.raises(BlockingIOError):
        while True:
            os.write(pipe, b"!" * 4096)
    assert len(list(folder.iterdir())) == 4
    thread = waiting(listening)
    notify(folder)
    end(thread)
    assert len(list(folder.iterdir())) == 3, "the pipe of the killed worker is removed"
    os.close(pipe)
