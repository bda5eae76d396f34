"""Follow the change rows and publish them to the open sockets of this process."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TypeVar

from django.db import connections

from tasks_app.core.hops import HopName
from tasks_app.history.noted_hops import note_of_wait
from tasks_app.models import ChangeKind
from tasks_app.web.live.broadcaster import Broadcaster, broadcaster
from tasks_app.web.live.changes import LATE, PAGE, newest_change_id, read_changes
from tasks_app.web.live.detectors import ChangeDetector, choose_detector
from tasks_app.web.live.updates import ChangeRow, SeenChanges, coalesce

logger = logging.getLogger(__name__)

T = TypeVar("T")

#: Seconds before the next try after the database did not respond.
RETRY_SECONDS = 1.0


class Tailer:
    """Publishes every change that was committed since `begin`, once, in this event loop.

    The rows are read in a separate thread with one connection that stays open.
    """

    def __init__(self, detector: ChangeDetector, broadcaster: Broadcaster) -> None:
        self._detector = detector
        self._broadcaster = broadcaster
        self._seen = SeenChanges()
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="live-tailer")

    async def run(self) -> None:
        """Follow for ever; errors are logged, and it tries again."""
        begun = False
        while True:
            try:
                if not begun:
                    await self.begin()
                    begun = True
                await self._detector.wait()
                await self.publish_new()
            except Exception:
                logger.exception("the changes could not be read; next try in %s s", RETRY_SECONDS)
                await self._in_thread(connections.close_all)
                await asyncio.sleep(RETRY_SECONDS)

    async def begin(self) -> None:
        """Take the existing changes as known, except for missing ids just below the newest."""
        self._seen.last = max(await self._in_thread(newest_change_id) - LATE, 0)
        while await self._read_new():
            pass

    async def publish_new(self) -> None:
        while changes := await self._read_new():
            updates = coalesce(changes)
            for update in updates:
                if ChangeKind.QUESTION in update.kinds:
                    note_of_wait(update.task_id, HopName.NOTICE)
            self._broadcaster.publish(updates)
            if len(changes) < PAGE:
                break

    async def close(self) -> None:
        await self._detector.close()
        await self._in_thread(connections.close_all)
        self._thread.shutdown()

    async def _read_new(self) -> list[ChangeRow]:
        last, gaps = self._seen.last, self._seen.gaps()
        changes = await self._in_thread(lambda: read_changes(last, gaps))
        self._seen.add(changes)
        return changes

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)


@asynccontextmanager
async def run_tailer() -> AsyncIterator[None]:
    """Run a tailer for as long as the context is open."""
    tailer = Tailer(choose_detector(), broadcaster)
    task = asyncio.create_task(tailer.run(), name="live-tailer")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await tailer.close()
