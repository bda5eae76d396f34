"""Follow the change rows, publish them to the open sockets of this process, and who may open one.

Only pages of the portal may open a socket, and no other on the same machine.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from channels.security.websocket import WebsocketDenier
from django.conf import settings
from django.db import connection, connections
from django.urls import path, re_path

from tasks_app.engine.sweeper import SECONDS, attempt, tell_of_lost_workers
from tasks_app.web.live.consumers import LiveConsumer
from tasks_app.web.live.updates import (
    LATE,
    PAGE,
    Broadcaster,
    ChangeRow,
    SeenChanges,
    broadcaster,
    coalesce,
    newest_change_id,
    read_changes,
)
from tasks_app.web.live.wakeup import ChangeDetector, choose_detector

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

    async def watch_workers(self) -> None:
        """Tell open pages of tasks that lose their worker, as sweepers do, also while no worker lives."""
        while True:
            await asyncio.sleep(SECONDS)
            if self._broadcaster.has_subscribers:
                await self._in_thread(lambda: attempt(tell_of_lost_workers))

    async def begin(self) -> None:
        """Take the existing changes as known, except for missing ids just below the newest."""
        self._seen.last = max(await self._in_thread(newest_change_id) - LATE, 0)
        while await self._read_new():
            pass

    async def publish_new(self) -> None:
        while changes := await self._read_new():
            self._broadcaster.publish(coalesce(changes))
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
    tasks = [asyncio.create_task(tailer.run()), asyncio.create_task(tailer.watch_workers())]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await tailer.close()


class SameOriginOnly:
    """Refuses a WebSocket handshake from any other host or port.

    Cookies do not distinguish ports: a page that an agent serves on another port would come with the user's
    session.
    """

    def __init__(self, application: Any) -> None:
        self._application = application

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> Any:
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        allowed = is_same_origin(headers.get(b"origin", ""), host=headers.get(b"host", ""))
        application = self._application if allowed else WebsocketDenier.as_asgi()
        return await application(scope, receive, send)


def is_same_origin(origin: str, *, host: str) -> bool:
    """Return whether the page came from the socket's own host; behind a proxy, from CATHERDER_URL."""
    scheme, _, netloc = origin.partition("://")
    same = scheme in ("http", "https") and netloc != "" and netloc.lower() == host.lower()
    return same or origin in settings.CSRF_TRUSTED_ORIGINS


Message = dict[str, Any]


async def lifespan(
    scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
) -> None:
    """Run the tailer from the start to the end, and keep database connections for later requests."""
    await receive()  # lifespan.startup
    connection.keep_after_close()  # type: ignore[attr-defined]
    async with run_tailer():
        await send({"type": "lifespan.startup.complete"})
        await receive()  # lifespan.shutdown
    connection.keep_no_more()  # type: ignore[attr-defined]
    await send({"type": "lifespan.shutdown.complete"})


websocket_urlpatterns = [
    path("ws/live/", LiveConsumer.as_asgi()),
    # Without this the router raises, and every stranger could fill the log with tracebacks.
    re_path("", WebsocketDenier.as_asgi()),
]
