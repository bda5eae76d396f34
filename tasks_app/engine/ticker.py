"""Looking, while a command runs, whether the work on its task must stop."""

from __future__ import annotations

import time
from collections.abc import Callable


class Ticker:
    """Calls `tick` once a second during a command, and ends the command when that raises."""

    def __init__(self, tick: Callable[[], None]) -> None:
        self._tick = tick
        self._next = 0.0
        self._problem: Exception | None = None

    def should_stop(self) -> bool:
        """Return whether to end the command. Called ten times a second, it reads the rows once a second."""
        if self._problem is None and time.monotonic() >= self._next:
            self._next = time.monotonic() + 1.0
            try:
                self._tick()
            except Exception as error:
                self._problem = error
        return self._problem is not None

    def raise_problem(self) -> None:
        """Raise what ended the command, which has no verdict then."""
        if self._problem is not None:
            raise self._problem
