"""Work that takes longer than a request: it is done once, and requests wait for it in turns."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Hashable, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

from catherder_site.worker_hosts.slow_threads import Busy

#: Seconds that one request waits; then the client asks again. Proxies give up after 60 seconds.
WAIT_SECONDS = 20.0
#: Seconds that the result of a job is kept if nobody waited when it ended: its client is just asking again.
KEPT_SECONDS = 60.0

T = TypeVar("T")


class Background:
    """Jobs by their key. A job goes on if whoever waited for it is gone."""

    def __init__(self) -> None:
        self._jobs: dict[Hashable, asyncio.Task[Any]] = {}
        self._waiting: dict[Hashable, int] = {}
        self._running: Counter[Hashable] = Counter()

    async def wait_for(
        self,
        key: Hashable,
        job: Callable[[], Coroutine[Any, Any, T]],
        *,
        limits: Mapping[Hashable, int] = MappingProxyType({}),
    ) -> asyncio.Task[T]:
        """Return the job of this key, started unless it runs. It has ended, or WAIT_SECONDS are over.

        A job that ended while nobody waited is returned, too. `limits` says of each group to which the job
        belongs how many of its jobs may run at the same time. Raises Busy.
        """
        running: asyncio.Task[T] | None = self._jobs.get(key)
        if running is None:
            running = self._start(key, job, limits)
        self._waiting[key] = self._waiting.get(key, 0) + 1
        try:
            await asyncio.wait([running], timeout=WAIT_SECONDS)
        finally:
            self._waiting[key] -= 1
            if not self._waiting[key]:
                del self._waiting[key]
        if running.done():
            self._forget(key, running)
        return running

    def _start(
        self, key: Hashable, job: Callable[[], Coroutine[Any, Any, T]], limits: Mapping[Hashable, int]
    ) -> asyncio.Task[T]:
        if any(self._running[group] >= most for group, most in limits.items()):
            raise Busy("The portal does as much of this already as it may. Ask again later.")
        self._running.update(limits.keys())
        started = self._jobs[key] = asyncio.create_task(job())
        started.add_done_callback(lambda ended: self._count_ended(limits))
        started.add_done_callback(lambda ended: self._ended(key, ended))
        return started

    def _count_ended(self, limits: Mapping[Hashable, int]) -> None:
        for group in limits:
            self._running[group] -= 1
            if not self._running[group]:
                del self._running[group]

    def _ended(self, key: Hashable, job: asyncio.Task[Any]) -> None:
        if not job.cancelled():
            job.exception()  # it counts as seen: whoever waited may be gone
        if key in self._waiting:
            self._forget(key, job)
        else:
            job.get_loop().call_later(KEPT_SECONDS, self._forget, key, job)

    def _forget(self, key: Hashable, job: asyncio.Task[Any]) -> None:
        if self._jobs.get(key) is job:
            del self._jobs[key]
