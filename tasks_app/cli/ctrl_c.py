"""Ctrl+C as a flag that is polled, so that it never interrupts a transaction."""

from __future__ import annotations

import os
import signal
import time
from types import FrameType
from typing import Any, Self

from tasks_app.cli.keyboard import flush_terminal

_MESSAGE = b"\nStopped immediately. The agent has ended too; a running portal may resume the task.\n"


class CtrlC:
    """Context in which only `check` and `pause` raise KeyboardInterrupt after a first Ctrl+C; a second one
    ends the process, and its agent with it, immediately."""

    def __init__(self) -> None:
        self._pressed = False
        self._before: Any = None

    def __enter__(self) -> Self:
        self._before = signal.signal(signal.SIGINT, self._on_signal)
        return self

    def __exit__(self, *exception: object) -> None:
        signal.signal(signal.SIGINT, self._before or signal.default_int_handler)

    def is_set(self) -> bool:
        """Return whether Ctrl+C was pressed. The interface of threading.Event, for `watchfiles.watch`."""
        return self._pressed

    def check(self) -> None:
        if self._pressed:
            raise KeyboardInterrupt

    def pause(self, seconds: float) -> None:
        self.check()
        time.sleep(seconds)
        self.check()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._pressed:
            os.write(2, _MESSAGE)
            flush_terminal()
            os._exit(130)
        self._pressed = True
