"""Waiting for the life and death of processes that nobody holds a handle of."""

from __future__ import annotations

import os
import select
from pathlib import Path

_PATIENCE = 30.0


class Fifo:
    """A named pipe that processes write to: it ends when the last of them is gone."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self._end = os.open(path, os.O_RDONLY | os.O_NONBLOCK)

    def wait_for(self, word: str) -> None:
        seen = b""
        while word.encode() not in seen:
            seen += self._read()

    def wait_for_end(self) -> None:
        while self._read():
            pass
        os.close(self._end)

    def _read(self) -> bytes:
        # Before the first writer came, poll reports nothing; after the last one left, a hang-up.
        poll = select.poll()
        poll.register(self._end, select.POLLIN)
        assert poll.poll(_PATIENCE * 1000), "the processes neither wrote nor ended"
        return os.read(self._end, 4096)
