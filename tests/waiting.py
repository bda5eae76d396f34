"""Wait for what another process or thread does. It comes, or the test fails; how soon is no test's matter."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

PAUSE_SECONDS = 0.02


def wait_until(true: Callable[[], object], *, seconds: float = 120.0, log: Path | None = None) -> None:
    """Return when `true` is. Fails after `seconds`, with the end of the log of whoever was waited for."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, log.read_text()[-4000:] if log else "it did not come true"
        time.sleep(PAUSE_SECONDS)
