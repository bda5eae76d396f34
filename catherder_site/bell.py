"""Waking workers of this machine when a job was put into the queue's file, which nobody else tells them of.

Each worker listens on a named pipe of its own; who stores a job writes a byte into each of them. A hint: a
byte may be lost, so a worker looks at the queue from time to time anyway.
"""

from __future__ import annotations

import errno
import os
import threading
from contextlib import suppress
from pathlib import Path

#: Seconds that a thread waits after `close`; it is about to end.
CLOSED_SECONDS = 0.02
_RING, _CLOSE = b"!", b"*"


class Bell:
    """The pipes in a folder. Any process of the installation may ring; nothing is raised."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def ring(self) -> None:
        """Wake one thread of each worker that listens. Pipes without a reader are removed."""
        with suppress(OSError):
            for entry in os.scandir(self._folder):
                self._write(entry.path)

    @staticmethod
    def _write(path: str) -> None:
        try:
            pipe = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
        except OSError as error:
            if error.errno == errno.ENXIO:  # its worker is gone
                with suppress(OSError):
                    os.unlink(path)  # noqa: PTH108
            return
        try:
            with suppress(OSError):  # a full pipe wakes as well
                os.write(pipe, _RING)
        finally:
            os.close(pipe)

    def listen(self) -> Listener:
        """Return a listener for the threads of this process. Raises OSError."""
        self._folder.mkdir(mode=0o700, exist_ok=True)
        path = self._folder / f"{os.getpid()}-{os.urandom(4).hex()}"
        os.mkfifo(path, 0o600)
        return Listener(path)


class Listener:
    """One end of a pipe, and the threads that wait for a ring."""

    def __init__(self, path: Path) -> None:
        self._path = path
        # For reading and writing: it never comes to its end, and `close` can write into it.
        self._pipe = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self._rung = threading.Condition()
        self._count = 0
        self._closed = False
        threading.Thread(target=self._listen, name="bell", daemon=True).start()

    @property
    def count(self) -> int:
        """How often it rang so far."""
        return self._count

    def wait(self, known: int, seconds: float) -> None:
        """Return once it has rung more than `known` times, or after so many seconds. A ring wakes one thread.

        Soon after `close`, whoever waits.
        """
        with self._rung:
            if self._closed:
                self._rung.wait(min(seconds, CLOSED_SECONDS))
            elif self._count == known:
                self._rung.wait(seconds)

    def close(self) -> None:
        """Listen no more. A signal handler may call it: it takes no lock."""
        with suppress(OSError):
            self._path.unlink()
        with suppress(OSError):
            os.write(self._pipe, _CLOSE)

    def _listen(self) -> None:
        while _CLOSE not in (rings := os.read(self._pipe, 4096)):
            with self._rung:
                self._count += len(rings)
                self._rung.notify(len(rings))
        with self._rung:
            self._closed = True
            self._rung.notify_all()
