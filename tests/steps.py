"""Count work instead of measuring time: the same on every machine."""

from __future__ import annotations

import sys
from collections.abc import Callable


def steps(work: Callable[[], object]) -> int:
    """Return how many functions are called while `work` runs, those written in C included."""
    count = 0

    def called(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(called)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count
