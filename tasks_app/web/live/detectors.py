"""Ways of waiting until there may be news. Each may wake too often, none may sleep for ever."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
from pathlib import Path
from typing import Any, Protocol

from django.conf import settings
from django.db import connection

from tasks_app.web.live.notifier import GROUP, layer

logger = logging.getLogger(__name__)

#: Seconds between two looks at the counter of SQLite: 13 ms (median) to the frame, at 1 % of a core.
LOOK_SECONDS = 0.02

#: Seconds between two queries where nothing tells of a change.
POLL_SECONDS = 0.1

#: Seconds after which the rows are looked at although no bell rang.
SAFETY_SECONDS = 2.0

#: Seconds that letting go of Redis may take.
CLOSING_SECONDS = 2.0


class Waiter(Protocol):
    async def wait(self) -> None:
        """Return when there may be news."""

    async def close(self) -> None:
        """Let go of connections and tasks."""


def waiter() -> Waiter:
    """The best way that this installation has."""
    if settings.ENVIRONMENT.redis_url:
        return Bell(layer())
    if connection.vendor == "sqlite":
        return DataVersion(Path(connection.settings_dict["NAME"]).resolve())
    return Interval(POLL_SECONDS)


class Interval:
    """Looks again after a fixed time."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    async def wait(self) -> None:
        await asyncio.sleep(self._seconds)

    async def close(self) -> None:
        return


class DataVersion:
    """Waits until another connection, of whatever process, committed to a SQLite file.

    `PRAGMA data_version` reads one number of shared memory in 5 µs. It is asked in the event loop
    itself, on a connection of its own: to hand it to a thread and back would cost ten times the look.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = None
        self._version: int | None = None

    async def wait(self) -> None:
        while (version := self._look()) in (None, self._version):
            await asyncio.sleep(LOOK_SECONDS)
        self._version = version

    def _look(self) -> int | None:
        """The file's counter; None while somebody holds the file for himself."""
        if self._connection is None:
            # No time-out: the loop must not wait for a lock. `rw`: a missing file is not ours to make.
            self._connection = sqlite3.connect(f"{self._path.as_uri()}?mode=rw", uri=True, timeout=0)
        try:
            (version,) = self._connection.execute("PRAGMA data_version").fetchone()
        except sqlite3.OperationalError:
            return None
        return int(version)

    async def close(self) -> None:
        if self._connection is not None:
            self._connection.close()


class Bell:
    """Waits for a ring through the Redis layer, and looks every two seconds all the same.

    A ring that is lost costs two seconds; while Redis is down every change costs as much.
    """

    def __init__(self, layer: Any) -> None:
        self._layer = layer
        self._rung = asyncio.Event()
        self._listener: asyncio.Task[None] | None = None

    async def wait(self) -> None:
        if self._listener is None:
            self._listener = asyncio.create_task(self._listen())
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._rung.wait(), SAFETY_SECONDS)
        self._rung.clear()

    async def _listen(self) -> None:
        while True:
            try:
                await self._follow()
            except Exception as error:
                logger.warning("Redis does not answer (%s); pages are up to 2 s late", error)
                await asyncio.sleep(SAFETY_SECONDS)

    async def _follow(self) -> None:
        channel = await self._layer.new_channel()
        await self._layer.group_add(GROUP, channel)
        while True:
            # Never under a time-out: a cancelled `receive` unsubscribes the channel.
            await self._layer.receive(channel)
            self._rung.set()

    async def close(self) -> None:
        """A Redis that hangs must not hold up the end of the process."""
        with contextlib.suppress(Exception):
            async with asyncio.timeout(CLOSING_SECONDS):
                await self._let_go()

    async def _let_go(self) -> None:
        if self._listener is not None:
            self._listener.cancel()
            await asyncio.gather(self._listener, return_exceptions=True)
        await self._layer.flush()
