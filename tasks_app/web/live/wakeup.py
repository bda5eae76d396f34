"""Notify the web processes of committed changes, and wait there: by Redis, or by named pipes of this machine.

Each wait may end too often, none may last for ever.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

from django.conf import settings
from django.db import transaction
from django.db.models.signals import post_save
from redis import Redis
from redis.asyncio import Redis as AsyncRedis
from redis.exceptions import RedisError

from tasks_app.core import wakeup
from tasks_app.core.wakeup import Pipe
from tasks_app.models import Change, paths

logger = logging.getLogger(__name__)

#: The channel of Redis whose messages say nothing but that there are new changes.
CHANNEL = "cat-herder-changes"
#: Seconds that one notification may take, and that the end of a process waits for its last one.
TIMEOUT_SECONDS = 1.0


class RedisNotifier:
    """Notifies from any thread, and never makes a writer wait or fail. May lose notifications.

    A thread sends them, so that a Redis that hangs does not hold up a writer. One that is not sent yet stands
    for all that come meanwhile.
    """

    def __init__(self, url: str) -> None:
        self._redis = Redis.from_url(
            url, socket_timeout=TIMEOUT_SECONDS, socket_connect_timeout=TIMEOUT_SECONDS
        )
        self._lock = threading.Lock()
        self._wanted = threading.Event()
        self._is_closing = False
        self._thread: threading.Thread | None = None

    def notify(self) -> None:
        self._wanted.set()
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._send_all, name="live-notifier", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Give the last notification a moment to be sent."""
        self._is_closing = True
        self._wanted.set()
        if self._thread is not None:
            self._thread.join(TIMEOUT_SECONDS)

    def _send_all(self) -> None:
        while not self._is_closing:
            self._wanted.wait()
            self._wanted.clear()
            try:
                self._redis.publish(CHANNEL, b"")
            except (RedisError, OSError) as error:
                # With the error, so that the log's filter can repeat it seldom while Redis is down.
                logger.warning("could not announce changes; web processes poll for them", exc_info=error)
        self._redis.close()


def web_pipes() -> Path:
    """Return the folder with the pipes of the web processes of this machine."""
    return paths.data_dir() / "wakeup" / "web"


def _notify_this_machine() -> None:
    wakeup.notify(web_pipes())


def notify_on_commit() -> None:
    """Notify of every change that this process commits. Called once at start-up."""
    if settings.ENVIRONMENT.redis_url:
        notifier = RedisNotifier(settings.ENVIRONMENT.redis_url)
        atexit.register(notifier.close)
        notify: Callable[[], None] = notifier.notify
    else:
        notify = _notify_this_machine

    def on_save(**_: object) -> None:
        transaction.on_commit(notify)

    post_save.connect(on_save, sender=Change, weak=False, dispatch_uid="live-notifier")


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
        redis = AsyncRedis.from_url(self._url, socket_connect_timeout=REDIS_SECONDS, socket_keepalive=True)
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
