"""Ways to detect that there may be new changes. Each may wake up too often, none may sleep for ever."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time

from django.conf import settings
from redis.asyncio import Redis

from tasks_app.core.wakeup import Pipe
from tasks_app.web.live.notifier import CHANNEL, web_pipes

logger = logging.getLogger(__name__)

#: Seconds between two reads of the rows while many write; pages must stay quick meanwhile.
SPACING_SECONDS = 0.02

#: Seconds after which the rows are read although no notification arrived: it may be lost.
FALLBACK_SECONDS = 2.0

#: Seconds that connecting to Redis and closing may take, and between two tries to connect.
REDIS_SECONDS = 2.0


class ChangeDetector:
    """Waits until there may be new changes: a notification came, or some time is over."""

    def __init__(self) -> None:
        self._notified = asyncio.Event()
        self._not_before = 0.0

    async def wait(self) -> None:
        await asyncio.sleep(self._not_before - time.monotonic())
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._notified.wait(), FALLBACK_SECONDS)
        self._notified.clear()
        self._not_before = time.monotonic() + SPACING_SECONDS

    async def close(self) -> None:
        """Close connections and end tasks."""


class PipeDetector(ChangeDetector):
    """Is notified by processes of this machine."""

    def __init__(self, pipe: Pipe) -> None:
        super().__init__()
        self._pipe = pipe
        asyncio.get_running_loop().add_reader(pipe, self._receive)

    def _receive(self) -> None:
        self._pipe.take()
        self._notified.set()

    async def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._pipe)
        self._pipe.close()


class RedisDetector(ChangeDetector):
    """Is notified through Redis; while it is down, every change takes `FALLBACK_SECONDS`."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._url = url
        self._listening = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        while True:
            try:
                await self._receive_all()
            except Exception as error:
                logger.warning("Redis does not respond (%s); pages are up to 2 s late", error)
                await asyncio.sleep(REDIS_SECONDS)

    async def _receive_all(self) -> None:
        redis = Redis.from_url(self._url, socket_connect_timeout=REDIS_SECONDS, socket_keepalive=True)
        async with redis, redis.pubsub() as channel:
            await channel.subscribe(CHANNEL)
            async for _ in channel.listen():
                self._notified.set()

    async def close(self) -> None:
        """A Redis that hangs must not hold up the end of the process."""
        self._listening.cancel()
        await asyncio.wait([self._listening], timeout=REDIS_SECONDS)


def choose_detector() -> ChangeDetector:
    """Return the detector of this installation, in the running event loop."""
    if settings.ENVIRONMENT.redis_url:
        return RedisDetector(settings.ENVIRONMENT.redis_url)
    try:
        return PipeDetector(Pipe(web_pipes()))
    except OSError as error:  # a full disk must not prevent the start
        logger.warning("changes cannot be notified (%s); pages are up to 2 s late", error)
        return ChangeDetector()
