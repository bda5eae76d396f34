"""Waking other processes of this machine: each that waits has a named pipe of its own in a common folder.

A notification is a byte into each of these pipes. It is a hint that may be lost, so each waiter looks from
time to time anyway.
"""

from __future__ import annotations

import errno
import os
import select
from contextlib import suppress
from pathlib import Path

from tasks_app.core.files import open_pipe_to_write


def notify(folder: Path) -> None:
    """Wake each process that waits there. Pipes without a reader are removed. Raises nothing."""
    with suppress(OSError):
        for entry in os.scandir(folder):
            try:
                pipe = open_pipe_to_write(entry.path)
            except OSError as error:
                if error.errno == errno.ENXIO:  # its process is gone
                    Path(entry.path).unlink(missing_ok=True)
                continue
            with suppress(OSError):  # a full pipe wakes as well
                os.write(pipe, b"!")
            os.close(pipe)


class Pipe:
    """A pipe of this process in the folder. Raises OSError if it cannot be made."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path = folder / f"{os.getpid()}-{os.urandom(4).hex()}"
        os.mkfifo(self._path, 0o600)
        # For reading and writing, so that it never comes to its end.
        self._pipe = os.open(self._path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)

    def fileno(self) -> int:
        return self._pipe

    def wait(self, seconds: float) -> None:
        """Return on a notification, or after `seconds`. Any number of threads may wait.

        A notification from before the wait counts, unless another wait has taken it.
        """
        waiting = select.poll()
        waiting.register(self._pipe, select.POLLIN)
        waiting.poll(seconds * 1000)
        self.take(1)

    def wake(self, threads: int) -> None:
        """End the waits of up to `threads` threads of this process."""
        with suppress(BlockingIOError):
            os.write(self._pipe, b"!" * threads)

    def take(self, most: int = 4096) -> None:
        """Forget up to `most` earlier notifications."""
        with suppress(BlockingIOError):
            os.read(self._pipe, most)

    def close(self) -> None:
        """Wait no more."""
        self._path.unlink(missing_ok=True)
        os.close(self._pipe)
