"""Ways to detect that there may be new changes. Each may wake up too often, none may sleep for ever."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
import time
from pathlib import Path
from typing import Any, Protocol

from channels.layers import get_channel_layer
from django.conf import settings
from django.db import connection

from tasks_app.core.wakeup import LoopListener, Wakeup
from tasks_app.web.live.notifier import GROUP, web_wakeup

logger = logging.getLogger(__name__)

#: Seconds between two reads of SQLite's counter, if no notification comes before.
SQLITE_SECONDS = 0.5

#: Seconds between two looks while many write: the rows are read again after each that finds something.
SPACING_SECONDS = 0.02

#: Seconds between two queries where nothing signals a change.
POLL_SECONDS = 0.1

#: Seconds after which the rows are read although no notification arrived.
FALLBACK_SECONDS = 2.0

#: Seconds that closing the connection to Redis may take.
CLOSING_SECONDS = 2.0


class ChangeDetector(Protocol):
    async def wait(self) -> None:
        """Return when there may be new changes."""

    async def close(self) -> None:
        """Close connections and end tasks."""


def choose_detector() -> ChangeDetector:
    """Return the fastest detector that this installation can use."""
    if settings.ENVIRONMENT.redis_url:
        return RedisDetector(get_channel_layer())
    if connection.vendor == "sqlite":
        return SqliteDetector(Path(connection.settings_dict["NAME"]).resolve(), web_wakeup())
    return PollingDetector(POLL_SECONDS)


class PollingDetector:
    """Wakes up after a fixed time."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    async def wait(self) -> None:
        await asyncio.sleep(self._seconds)

    async def close(self) -> None:
        return


class SqliteDetector:
    """Waits until another connection, of any process, committed to a SQLite file.

    It looks after each notification of `wakeup`, and from time to time: a notification may be lost. `PRAGMA
    data_version` reads one number of shared memory in 5 µs. It runs in the event loop itself, on its own
    connection: passing it to a thread and back would cost ten times as much.
    """

    def __init__(self, path: Path, wakeup: Wakeup) -> None:
        self._path = path
        self._wakeup = wakeup
        self._listener: LoopListener | None = None
        self._must_poll = False
        self._found_at = -SPACING_SECONDS
        self._connection: sqlite3.Connection | None = None
        self._version: int | None = None

    async def wait(self) -> None:
        await asyncio.sleep(max(0.0, self._found_at + SPACING_SECONDS - time.monotonic()))
        while True:
            listener = self._listen()
            version = self._read_version()
            if version not in (None, self._version):
                self._version, self._found_at = version, time.monotonic()
                return
            if listener is None:
                await asyncio.sleep(POLL_SECONDS)
            else:
                await listener.wait(SQLITE_SECONDS)

    def _listen(self) -> LoopListener | None:
        """Forget the notifications so far. Return None if there can be none, for example on a full disk."""
        if self._listener is None and not self._must_poll:
            try:
                self._listener = self._wakeup.listen_in_loop()
            except OSError as error:
                self._must_poll = True
                logger.warning("changes cannot be notified (%s); pages are up to 0.1 s late", error)
        if self._listener is not None:
            self._listener.clear()
        return self._listener

    def _read_version(self) -> int | None:
        """Return the file's counter; None while somebody holds the file exclusively."""
        if self._connection is None:
            # No timeout: the loop must not wait for a lock. `rw`: a missing file must not be created.
            self._connection = sqlite3.connect(f"{self._path.as_uri()}?mode=rw", uri=True, timeout=0)
        try:
            (version,) = self._connection.execute("PRAGMA data_version").fetchone()
        except sqlite3.OperationalError:
            return None
        return int(version)

    async def close(self) -> None:
        if self._listener is not None:
            self._listener.close()
        if self._connection is not None:
            self._connection.close()


class RedisDetector:
    """Waits for a notification through the Redis layer, and wakes up every two seconds anyway.

    A lost notification costs two seconds; while Redis is down every change takes as long.
    """

    def __init__(self, layer: Any) -> None:
        self._layer = layer
        self._notified = asyncio.Event()
        self._listener: asyncio.Task[None] | None = None

    async def wait(self) -> None:
        if self._listener is None:
            self._listener = asyncio.create_task(self._listen())
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._notified.wait(), FALLBACK_SECONDS)
        self._notified.clear()

    async def _listen(self) -> None:
        while True:
            try:
                await self._receive_all()
            except Exception as error:
                logger.warning("Redis does not respond (%s); pages are up to 2 s late", error)
                await asyncio.sleep(FALLBACK_SECONDS)

    async def _receive_all(self) -> None:
        channel = await self._layer.new_channel()
        await self._layer.group_add(GROUP, channel)
        while True:
            # Never with a timeout: a cancelled `receive` unsubscribes the channel.
            await self._layer.receive(channel)
            self._notified.set()

    async def close(self) -> None:
        """Close the connection; a Redis that hangs must not hold up the end of the process."""
        with contextlib.suppress(Exception):
            async with asyncio.timeout(CLOSING_SECONDS):
                if self._listener is not None:
                    self._listener.cancel()
                    await asyncio.gather(self._listener, return_exceptions=True)
                await self._layer.flush()
