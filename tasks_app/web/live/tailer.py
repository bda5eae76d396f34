"""Following the change rows and telling the open sockets of this process."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TypeVar

from django.db import connections

from tasks_app.web.live.broadcaster import Hub, hub
from tasks_app.web.live.changes import LATE, PAGE, newest, read_news
from tasks_app.web.live.detectors import Waiter, waiter
from tasks_app.web.live.updates import Ledger, News, coalesce

logger = logging.getLogger(__name__)

T = TypeVar("T")

#: Seconds before the next try after the database did not answer.
RETRY_SECONDS = 1.0


class Tailer:
    """Hands every change that was committed since `begin` to the hub, once, in this event loop.

    The rows are read in one thread of its own with one connection that stays open.
    """

    def __init__(self, waiter: Waiter, hub: Hub) -> None:
        self._waiter = waiter
        self._hub = hub
        self._ledger = Ledger()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="live-tailer")

    async def run(self) -> None:
        """Follow for ever; what goes wrong is logged and tried again."""
        begun = False
        while True:
            try:
                if not begun:
                    await self.begin()
                    begun = True
                await self._waiter.wait()
                await self.look()
            except Exception:
                logger.exception("the changes could not be read; next try in %s s", RETRY_SECONDS)
                await self._in_thread(connections.close_all)
                await asyncio.sleep(RETRY_SECONDS)

    async def begin(self) -> None:
        """Take what is there as known, but for ids just below the newest that are still missing."""
        self._ledger.last = max(await self._in_thread(newest) - LATE, 0)
        while await self._read():
            pass

    async def look(self) -> None:
        """Hand out what is new."""
        while news := await self._read():
            self._hub.hand_out(coalesce(news))
            if len(news) < PAGE:
                break

    async def close(self) -> None:
        await self._waiter.close()
        await self._in_thread(connections.close_all)
        self._thread.shutdown()

    async def _read(self) -> list[News]:
        last, gaps = self._ledger.last, self._ledger.gaps()
        news = await self._in_thread(lambda: read_news(last, gaps))
        self._ledger.admit(news)
        return news

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)


@asynccontextmanager
async def tailing() -> AsyncIterator[None]:
    """A tailer at work for as long as the context is open."""
    tailer = Tailer(waiter(), hub)
    task = asyncio.create_task(tailer.run(), name="live-tailer")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await tailer.close()
