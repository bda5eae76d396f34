"""The socket of an open page."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any
from urllib.parse import parse_qs

from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncJsonWebsocketConsumer
from django.conf import settings

from tasks_app.web.live.broadcaster import hub
from tasks_app.web.live.changes import newest, replay
from tasks_app.web.live.send_queue import Outbox
from tasks_app.web.live.updates import Notice, coalesce
from tasks_app.web.live.visibility import Access, look_up

logger = logging.getLogger(__name__)

#: Open sockets in this process by user.
_open_sockets: Counter[int] = Counter()

#: Close codes. A browser that is refused before the handshake sees 403 instead.
LOGIN_NEEDED = 4401
TRY_AGAIN = 1011
TOO_MANY = 4429

#: Seconds between two frames about one task.
FRAME_SECONDS = 0.05

#: Seconds for which the answer to "may this person see it" counts.
ACCESS_SECONDS = 1.0

#: Seconds without news after which it is asked anyway: a page must not stay open for who was logged out.
IDLE_SECONDS = 60.0


class LiveConsumer(AsyncJsonWebsocketConsumer):  # type: ignore[misc]
    """Tells one browser which of the tasks that its user may see have news.

    Receiving only puts notices into the outbox; one task of its own sends, so that a slow browser
    holds up nobody. With `?after=N` a browser gets what it missed since change N.
    """

    channel_layer_alias = "none"  # The hub brings the news.

    _courier: asyncio.Task[None] | None = None
    _counted_for: int | None = None

    async def __call__(self, *asgi: Any) -> None:
        try:
            await super().__call__(*asgi)
        finally:  # Also when the server cancels the socket, which sends no `disconnect`.
            hub.leave(self)
            self._uncount()
            if self._courier:
                self._courier.cancel()

    async def connect(self) -> None:
        access = await self._look_up()
        if access is None:
            await self.close(code=LOGIN_NEEDED)
            return
        if not self._count(access.user):
            await self.close(code=TOO_MANY)
            return
        await self.accept()
        self._outbox = Outbox()
        self._news = asyncio.Event()
        # First join, then read: what is committed in between comes twice rather than never.
        hub.join(self)
        self._courier = asyncio.create_task(self._deliver(access))

    def _count(self, user: int) -> bool:
        """Note the socket for its user, unless there are too many. A page without one asks by itself."""
        if _open_sockets[user] >= settings.ENVIRONMENT.sockets_of_one:
            return False
        _open_sockets[user] += 1
        self._counted_for = user
        return True

    def _uncount(self) -> None:
        if self._counted_for is not None:
            _open_sockets[self._counted_for] -= 1
            if not _open_sockets[self._counted_for]:
                del _open_sockets[self._counted_for]
            self._counted_for = None

    async def receive(self, **_: Any) -> None:
        """Browsers have nothing to say here."""

    def receive_notices(self, notices: Sequence[Notice]) -> None:
        self._outbox.put(notices)
        self._news.set()

    async def _deliver(self, access: Access) -> None:
        try:
            await self._greet()
            await self._keep_sending(access)
        except OSError:
            return  # The browser is gone; the socket ends by itself.
        except Exception:
            logger.warning("a live socket is closed; its browser will come back", exc_info=True)
            with contextlib.suppress(Exception):
                await self.close(code=TRY_AGAIN)

    async def _greet(self) -> None:
        await self.send_json({"hello": True, "upto": await database_sync_to_async(newest)()})
        given = parse_qs(self.scope["query_string"].decode("latin-1")).get("after")
        if given is None:
            return
        after = given[-1]
        known = after.isascii() and after.isdigit() and len(after) < 19
        missed = await database_sync_to_async(replay)(int(after)) if known else None
        if missed is None:
            self._outbox.put_refresh()
        else:
            self._outbox.put(coalesce(missed))
        self._news.set()

    async def _keep_sending(self, access: Access) -> None:
        while True:
            await self._news_or_a_while()
            if time.monotonic() - access.at > ACCESS_SECONDS:
                renewed = await self._look_up()
                if renewed is None:
                    hub.leave(self)
                    await self.close(code=LOGIN_NEEDED)
                    return
                access = renewed
            self._news.clear()
            for frame in self._outbox.take(access):
                await self.send_json(frame)
            if self._outbox:
                self._news.set()
            await asyncio.sleep(FRAME_SECONDS)

    async def _news_or_a_while(self) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._news.wait(), IDLE_SECONDS)

    async def _look_up(self) -> Access | None:
        access: Access | None = await database_sync_to_async(look_up)(self.scope["session"].session_key)
        return access
