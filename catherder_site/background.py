"""Work that takes longer than a request: it is done once, and requests wait for it in turns."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, TypeVar

#: Seconds that one request waits; then the client asks again.
WAIT_SECONDS = 20.0

T = TypeVar("T")


class Background:
    """Jobs by their key. A job goes on if whoever waited for it is gone."""

    def __init__(self) -> None:
        self._jobs: dict[Hashable, asyncio.Task[Any]] = {}

    async def wait_for(self, key: Hashable, job: Callable[[], Coroutine[Any, Any, T]]) -> asyncio.Task[T]:
        """Return the job of this key, started unless it runs. It has ended, or WAIT_SECONDS are over."""
        running: asyncio.Task[T] | None = self._jobs.get(key)
        if running is None:
            running = self._jobs[key] = asyncio.create_task(job())
            running.add_done_callback(lambda _: self._jobs.pop(key, None))
        await asyncio.wait([running], timeout=WAIT_SECONDS)
        return running
