"""Threads for work that takes long, apart from those in which each request is checked."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from django.db import connection

from catherder_site.worker_hosts.git_service import RequestRefused

T = TypeVar("T")


class Busy(RequestRefused):
    """As much work is running and waiting as may."""

    status = 503
    headers = ((b"retry-after", b"30"),)


class SlowThreads:
    """Does at most `most` pieces of work at a time; up to `waiting` more wait for their turn.

    The threads are daemons: a portal that is told to stop does not wait for them.
    """

    def __init__(self, *, most: int, waiting: int) -> None:
        self._free = asyncio.Semaphore(most)
        self.most_asked = most + waiting
        self._asked = 0

    async def run(self, work: Callable[[], T]) -> T:
        """Return what `work` returns, done in a thread once one is free. Raises Busy.

        A thread whose caller was cancelled keeps its place until its work has ended.
        """
        if self._asked >= self.most_asked:
            raise Busy("The portal has too much other work. Ask again later.")
        self._asked += 1
        try:
            await self._free.acquire()
        except BaseException:
            self._asked -= 1
            raise
        loop = asyncio.get_running_loop()
        result: asyncio.Future[T] = loop.create_future()
        threading.Thread(target=self._do, args=(work, loop, result), name="slow-work", daemon=True).start()
        return await result

    def _do(self, work: Callable[[], T], loop: asyncio.AbstractEventLoop, result: asyncio.Future[T]) -> None:
        tell: Callable[[], None]
        try:
            tell = partial(result.set_result, work())
        except Exception as error:
            tell = partial(result.set_exception, error)
        finally:
            connection.close()  # each thread has its own connection
        try:
            loop.call_soon_threadsafe(self._ended, result, tell)
        except RuntimeError:  # the portal has stopped meanwhile
            return

    def _ended(self, result: asyncio.Future[T], tell: Callable[[], None]) -> None:
        self._free.release()
        self._asked -= 1
        if not result.done():  # whoever asked may be gone
            tell()
