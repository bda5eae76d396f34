"""Read lines from a terminal or pipe with a timeout."""

from __future__ import annotations

import os
import select
import termios
from contextlib import suppress

#: Only pasted lines follow each other this fast.
_PASTED_SECONDS = 0.05


class Keyboard:
    """Unbuffered line reader of standard input, or of another descriptor that nobody else reads."""

    def __init__(self, descriptor: int = 0) -> None:
        self._descriptor = descriptor
        self._buffer = b""
        self._ended = False
        try:
            self.is_terminal = os.isatty(descriptor)
        except OSError:
            self.is_terminal = False

    def read_line(self, seconds: float) -> str | None:
        """Return the next line without its line end, or None after the timeout. Raises EOFError at the end.

        The last line of a pipe needs no line end.
        """
        if b"\n" not in self._buffer:
            self._fill_buffer(seconds)
        if b"\n" in self._buffer:
            line, self._buffer = self._buffer.split(b"\n", 1)
        elif self._ended and self._buffer:
            line, self._buffer = self._buffer, b""
        elif self._ended:
            raise EOFError
        else:
            return None
        return line.removesuffix(b"\r").decode(errors="replace")

    def has_pasted_line(self) -> bool:
        """Return whether a terminal already has the next line, so that both were pasted together."""
        return self.is_terminal and (b"\n" in self._buffer or self._is_readable(_PASTED_SECONDS))

    def discard_input(self) -> None:
        """Discard what was typed before the question was shown. Input from a pipe is kept."""
        if self.is_terminal:
            self._buffer = b""
            flush_terminal(self._descriptor)

    def _fill_buffer(self, seconds: float) -> None:
        if self._ended or not self._is_readable(seconds):
            return
        try:
            data = os.read(self._descriptor, 65536)
        except OSError:  # closed, or the terminal is gone
            data = b""
        self._buffer += data
        self._ended = not data

    def _is_readable(self, seconds: float) -> bool:
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        return bool(poll.poll(seconds * 1000))


def flush_terminal(descriptor: int = 0) -> None:
    """Discard unread input, also a partial line, which the shell would otherwise read after we end.

    Only in the foreground: the kernel stops a background job that does this. Harmless without a terminal.
    """
    try:
        in_background = os.tcgetpgrp(descriptor) != os.getpgrp()
    except OSError:  # not our controlling terminal, or no terminal
        in_background = False
    if not in_background:
        with suppress(termios.error):
            termios.tcflush(descriptor, termios.TCIFLUSH)
