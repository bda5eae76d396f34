"""Ctrl+C as a wish that is looked at, so that it never tears a transaction apart."""

from __future__ import annotations

import os
import signal
import time
from types import FrameType
from typing import Any, Self

from tasks_app.cli.keyboard import flush_terminal

_LEAVING = b"\nLeft at once. The agent ended with this process; a running portal may go on with the task.\n"


class CtrlC:
    """Within it, a first Ctrl+C is raised as KeyboardInterrupt by `look` and `pause` alone; a second
    ends the process where it is, and its agent with it."""

    def __init__(self) -> None:
        self._pressed = False
        self._before: Any = None

    def __enter__(self) -> Self:
        self._before = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, *exception: object) -> None:
        signal.signal(signal.SIGINT, self._before or signal.default_int_handler)

    def is_set(self) -> bool:
        """As an event: for waits that end when one is set."""
        return self._pressed

    def look(self) -> None:
        if self._pressed:
            raise KeyboardInterrupt

    def pause(self, seconds: float) -> None:
        self.look()
        time.sleep(seconds)
        self.look()

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self._pressed:
            os.write(2, _LEAVING)
            flush_terminal()
            os._exit(130)
        self._pressed = True
