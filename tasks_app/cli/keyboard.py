"""Lines that a person types or a pipe holds, read without ever blocking for long."""

from __future__ import annotations

import os
import select
import termios
from contextlib import suppress

#: A person's next line never comes this fast after the last; a pasted one does.
_PASTED_SECONDS = 0.05


class Keyboard:
    """Standard input, or any other descriptor. Not buffered by anybody else."""

    def __init__(self, descriptor: int = 0) -> None:
        self._descriptor = descriptor
        self._read = b""
        self._ended = False
        try:
            self.is_terminal = os.isatty(descriptor)
        except OSError:
            self.is_terminal = False

    def line(self, seconds: float) -> str | None:
        """The next line without its end, or None if none came in time. Raises EOFError at the end.

        At the end of a pipe a last line needs no line end.
        """
        if b"\n" not in self._read:
            self._take(seconds)
        if b"\n" in self._read:
            line, self._read = self._read.split(b"\n", 1)
        elif self._ended and self._read:
            line, self._read = self._read, b""
        elif self._ended:
            raise EOFError
        else:
            return None
        return line.removesuffix(b"\r").decode(errors="replace")

    def pasted(self) -> bool:
        """Whether the next line is there already, at a terminal: then it belongs to the one before."""
        return self.is_terminal and (b"\n" in self._read or self._ready(_PASTED_SECONDS))

    def forget(self) -> None:
        """Drop what was typed before the question was on the screen. A pipe is kept: it is no person."""
        if self.is_terminal:
            self._read = b""
            flush_terminal(self._descriptor)

    def _take(self, seconds: float) -> None:
        if self._ended or not self._ready(seconds):
            return
        try:
            data = os.read(self._descriptor, 65536)
        except OSError:  # closed from the start, or the terminal is gone
            data = b""
        self._read += data
        self._ended = not data

    def _ready(self, seconds: float) -> bool:
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        return bool(poll.poll(seconds * 1000))


def flush_terminal(descriptor: int = 0) -> None:
    """Discard what was typed and not read, also half a line: a shell would read it when we have ended.

    Only in the foreground: a job in the background would be stopped for it. Harmless without a terminal.
    """
    try:
        behind = os.tcgetpgrp(descriptor) != os.getpgrp()
    except OSError:  # not the terminal that controls our jobs, or none at all
        behind = False
    if not behind:
        with suppress(termios.error):
            termios.tcflush(descriptor, termios.TCIFLUSH)
