"""When the agent's program begins inside its sandbox, for traces (O3)."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress


class StartSignal:
    """Tells the worker that the agent's program is about to be executed in the sandbox.

    The portal's own Python, which restricts the process (`sandbox/restrict.py`), sends one byte and closes
    its end before it becomes that program. So the program inherits nothing, and cannot write anything here.
    It is a socket for the reason that `sockets.py` gives: nobody else can open it by its name in /proc.
    """

    def __init__(self) -> None:
        self._ours, self._theirs = socket.socketpair()
        self._ours.setblocking(False)
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def descriptor(self) -> int:
        """The end for the process that is started, which inherits it under this number."""
        return self._theirs.fileno()

    def watch(self, heard: Callable[[], None]) -> None:
        """Call `heard` in the running loop once the byte comes. The process must have been started."""
        self._theirs.close()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._ours, self._receive, heard)

    def close(self) -> None:
        """Close both ends, in the same loop. Harmless if that was done before."""
        if self._loop is not None:
            self._loop.remove_reader(self._ours)
            self._loop = None
        self._theirs.close()
        self._ours.close()

    def _receive(self, heard: Callable[[], None]) -> None:
        received = b""
        with suppress(OSError):
            received = self._ours.recv(1)
        self.close()  # nothing else is read, and at the end of a process that never came so far nothing comes
        if received:
            heard()
