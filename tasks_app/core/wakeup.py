"""Waking processes of this machine when a file has grown, which nobody else tells them of.

Each process that wants to know listens on a named pipe of its own in a common folder. Whoever has written
notifies: a byte into each of these pipes. It is a hint: a byte may be lost, so who listens looks from time to
time anyway.
"""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from contextlib import suppress
from pathlib import Path

from tasks_app.core.nofollow import open_pipe_to_write

#: Seconds that a thread waits after `close`; it is about to end.
CLOSED_SECONDS = 0.02
_NOTIFY, _CLOSE = b"!", b"*"
_READ_BYTES = 4096


class Wakeup:
    """The pipes in a folder. Any process of the installation may notify; that raises nothing."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def notify(self) -> None:
        """Wake each process that listens, of its threads one. Pipes without a reader are removed."""
        with suppress(OSError):
            for entry in os.scandir(self._folder):
                self._write(entry.path)

    @staticmethod
    def _write(path: str) -> None:
        try:
            pipe = open_pipe_to_write(path)
        except OSError as error:
            if error.errno == errno.ENXIO:  # its process is gone
                with suppress(OSError):
                    os.unlink(path)  # noqa: PTH108
            return
        try:
            with suppress(OSError):  # a full pipe wakes as well
                os.write(pipe, _NOTIFY)
        finally:
            os.close(pipe)

    def listen(self) -> Listener:
        """Return a listener for the threads of this process. Raises OSError."""
        return Listener(self._make_pipe())

    def listen_in_loop(self) -> LoopListener:
        """Return a listener for the running event loop. Raises OSError."""
        return LoopListener(self._make_pipe())

    def _make_pipe(self) -> Path:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._folder / f"{os.getpid()}-{os.urandom(4).hex()}"
        os.mkfifo(path, 0o600)
        return path


class Listener:
    """One end of a pipe, and the threads that wait for a notification."""

    def __init__(self, path: Path) -> None:
        self._path = path
        # For reading and writing: it never comes to its end, and `close` can write into it.
        self._pipe = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self._changed = threading.Condition()
        self._count = 0
        self._closed = False
        threading.Thread(target=self._listen, name="wakeup", daemon=True).start()

    @property
    def count(self) -> int:
        """The number of notifications so far."""
        return self._count

    def wait(self, known: int, seconds: float) -> None:
        """Return once there were more than `known` notifications, or after so many seconds.

        A notification wakes one thread, and soon after `close` all return.
        """
        with self._changed:
            if self._closed:
                self._changed.wait(min(seconds, CLOSED_SECONDS))
            elif self._count == known:
                self._changed.wait(seconds)

    def close(self) -> None:
        """Listen no more. A signal handler may call it: it takes no lock."""
        with suppress(OSError):
            self._path.unlink()
        with suppress(OSError):
            os.write(self._pipe, _CLOSE)

    def _listen(self) -> None:
        while _CLOSE not in (received := os.read(self._pipe, _READ_BYTES)):
            with self._changed:
                self._count += len(received)
                self._changed.notify(len(received))
        with self._changed:
            self._closed = True
            self._changed.notify_all()


class LoopListener:
    """One end of a pipe that the running event loop watches. Only for this loop."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._pipe = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._notified = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._pipe, self._receive)

    def clear(self) -> None:
        """Forget the notifications so far. Then look, then wait: so none is missed."""
        self._notified.clear()

    async def wait(self, seconds: float) -> None:
        """Return once there was a notification since `clear`, or after so many seconds."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._notified.wait(), seconds)

    def close(self) -> None:
        """Listen no more."""
        with suppress(OSError):
            self._path.unlink()
        self._loop.remove_reader(self._pipe)
        os.close(self._pipe)

    def _receive(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._pipe, _READ_BYTES)
        self._notified.set()
