"""The threads of what worker hosts ask for."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from tasks_app.worker_api import slow_threads
from tasks_app.worker_api.slow_threads import SlowThreads, in_thread


async def in_slow_thread(call: Callable[[], int]) -> int:
    return await SlowThreads(most=1, waiting=0).run(call)


@pytest.mark.parametrize("do", [in_slow_thread, in_thread])
@pytest.mark.parametrize("fails", [False, True])
def test_the_connection_is_closed_before_work_counts_as_done(
    do: Callable[[Callable[[], int]], Any], fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a caller that waits for the work could not drop its database."""
    closed = threading.Event()

    class Connection:
        def close(self) -> None:
            time.sleep(0.1)
            closed.set()

    monkeypatch.setattr(slow_threads, "connection", Connection())
    if fails:
        with pytest.raises(ZeroDivisionError):
            asyncio.run(do(lambda: 1 // 0))
    else:
        assert asyncio.run(do(lambda: 1)) == 1
    assert closed.is_set()
