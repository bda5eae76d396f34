"""The WebSocket of a page, and what its user may see."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qs

from allauth.mfa.models import Authenticator
from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncJsonWebsocketConsumer
from django.conf import settings

from tasks_app.encryption import CannotDecrypt, Purpose, decrypt, encrypt
from tasks_app.models import User
from tasks_app.models.account import hash_session_key, lasting_sessions
from tasks_app.permissions import projects_visible_to_each
from tasks_app.web.live.updates import TaskUpdate, broadcaster, coalesce, missed_changes, newest_change_id


@dataclass(frozen=True)
class Visibility:
    """The projects that a user could see when this was looked up, at a moment of the monotonic clock."""

    project_ids: frozenset[int]
    looked_up_at: float
    user_id: int = 0


def look_up_visibility(session_keys: Collection[str]) -> dict[str, Visibility]:
    """Return what the owners of the sessions may see now, by session key, with at most three queries.

    Keys without a login are left out, as after a logout, a change of password or a deactivation.
    """
    looked_up_at = time.monotonic()
    keys = {hash_session_key(key): key for key in session_keys}
    rows = lasting_sessions().filter(pk__in=keys).select_related("user")
    users = {keys[row.pk]: row.user for row in rows if isinstance(row.user, User) and row.is_valid}
    if settings.ENVIRONMENT.second_factor == "required":
        factors = Authenticator.objects.filter(type=Authenticator.Type.TOTP, user__in=set(users.values()))
        secured = set(factors.values_list("user", flat=True))
        users = {key: user for key, user in users.items() if user.pk in secured}
    visible = projects_visible_to_each(set(users.values()))
    return {key: Visibility(visible[user.pk], looked_up_at, user.pk) for key, user in users.items()}


class VisibilityLookUp:
    """Looks up for many sockets at once: those that ask while a look-up is under way share the next one.

    A change wakes all sockets of the process in the same moment. Belongs to one event loop at a time.
    """

    def __init__(self) -> None:
        self._asked: dict[str, asyncio.Future[Visibility | None]] = {}
        self._work: asyncio.Task[None] | None = None

    async def of(self, session_key: str | None) -> Visibility | None:
        """Return what the owner of the session may see; None without a login. Raises DatabaseError."""
        if session_key is None:
            return None
        loop = asyncio.get_running_loop()
        if self._work is None or self._work.done() or self._work.get_loop() is not loop:
            self._asked = {}
            self._work = loop.create_task(self._look_up_for_all())
        asked = self._asked.setdefault(session_key, loop.create_future())
        return await asyncio.shield(asked)  # others may wait for the same session

    async def _look_up_for_all(self) -> None:
        while self._asked:
            asked, self._asked = self._asked, {}
            try:
                found = await database_sync_to_async(look_up_visibility)(asked.keys())
            except Exception as error:
                for future in asked.values():
                    future.set_exception(error)
                    future.exception()  # retrieved, else asyncio logs it if nobody waits any more
            else:
                for key, future in asked.items():
                    future.set_result(found.get(key))


visibility_look_up = VisibilityLookUp()


Message = dict[str, object]

#: Tasks that can wait in one queue. A browser that is further behind fetches everything again.
MOST_WAITING = 500


class SendQueue:
    """At most one update per task, and at most `MOST_WAITING` of them, however slow the browser is."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._waiting: dict[int, tuple[TaskUpdate, float]] = {}
        self._refresh = False

    def __bool__(self) -> bool:
        return self._refresh or bool(self._waiting)

    def put(self, updates: Iterable[TaskUpdate]) -> None:
        received_at = self._clock()
        for update in updates:
            if waiting := self._waiting.get(update.task_id):
                update = waiting[0].merged(update)
            self._waiting[update.task_id] = (update, received_at)
        if len(self._waiting) > MOST_WAITING:
            self.put_refresh()

    def put_refresh(self) -> None:
        """Replace everything that waits by one message to fetch everything."""
        self._waiting.clear()
        self._refresh = True

    def take(self, visibility: Visibility) -> list[Message]:
        """Return the messages that may be sent now, oldest changes first.

        A project counts as hidden only if that was looked up after the update was received: until then the
        update waits, so that a new member of a project misses nothing.
        """
        messages: list[Message] = []
        if self._refresh:
            messages.append({"refresh": True})
        self._refresh = False
        for update, received_at in sorted(self._waiting.values(), key=lambda waiting: waiting[0].upto):
            if update.project_id in visibility.project_ids:
                messages.append(update.as_message())
            elif received_at > visibility.looked_up_at:
                continue
            del self._waiting[update.task_id]
        return messages


logger = logging.getLogger(__name__)

#: Open sockets in this process by user id.
_open_sockets: Counter[int] = Counter()

#: Close codes. A browser that is refused before the handshake sees 403 instead.
LOGIN_NEEDED = 4401
TRY_AGAIN = 1011
TOO_MANY = 4429

#: Seconds between two messages about one task, if they only say that its log has more.
MESSAGE_SECONDS = 0.05

#: Kinds of changes that may wait for MESSAGE_SECONDS.
_PATIENT = frozenset({"events"})

#: Seconds for which a looked-up visibility is used.
VISIBILITY_SECONDS = 1.0

#: Seconds after which it is looked up anyway: a logged-out user must not keep a socket. All sockets of the
#: process do so in the same moment, so that they share it.
IDLE_SECONDS = 60.0


class LiveConsumer(AsyncJsonWebsocketConsumer):  # type: ignore[misc]
    """Tells one browser which of the tasks that its user may see have changed.

    Receiving only puts updates into the queue; a separate task sends them, so that a slow browser holds up
    nobody. With `?after=POSITION` a browser gets what it missed since then.

    A position is the id of a change, encrypted: ids count the changes of everybody, so they would tell how
    busy the projects of others are.
    """

    _sender: asyncio.Task[None] | None = None
    _counted_user_id: int | None = None

    async def __call__(self, *asgi: Any) -> None:
        try:
            await super().__call__(*asgi)
        finally:  # Also when the server cancels the socket, which sends no `disconnect`.
            broadcaster.unsubscribe(self)
            if self._counted_user_id is not None:
                _open_sockets[self._counted_user_id] -= 1
                if not _open_sockets[self._counted_user_id]:
                    del _open_sockets[self._counted_user_id]
            if self._sender:
                self._sender.cancel()

    async def connect(self) -> None:
        visibility = await self._look_up_visibility()
        if visibility is None:
            await self.close(code=LOGIN_NEEDED)
            return
        if _open_sockets[visibility.user_id] >= settings.ENVIRONMENT.sockets_of_one:
            await self.close(code=TOO_MANY)  # a page without a socket polls
            return
        _open_sockets[visibility.user_id] += 1
        self._counted_user_id = visibility.user_id
        await self.accept()
        self._queue = SendQueue()
        self._has_updates = asyncio.Event()
        self._is_urgent = asyncio.Event()
        # Subscribe first, then read: what is committed in between comes twice rather than never.
        broadcaster.subscribe(self)
        self._sender = asyncio.create_task(self._send_until_closed(visibility))

    async def receive(self, text_data: str | None = None, **_: Any) -> None:
        """Ignore what a browser sends: there is nothing to say."""

    def receive_updates(self, updates: Sequence[TaskUpdate]) -> None:
        self._queue.put(updates)
        self._has_updates.set()
        if any(update.kinds - _PATIENT for update in updates):
            self._is_urgent.set()

    async def _send_until_closed(self, visibility: Visibility) -> None:
        try:
            await self._send_hello()
            await self._send_updates(visibility)
        except OSError:
            return  # The browser is gone; the socket ends by itself.
        except Exception:
            logger.warning("a live socket is closed; its browser will reconnect", exc_info=True)
            with contextlib.suppress(Exception):
                await self.close(code=TRY_AGAIN)

    async def _send_hello(self) -> None:
        self._upto = await database_sync_to_async(newest_change_id)()
        await self.send_json({"hello": True, "upto": encrypt(str(self._upto), Purpose.LIVE)})
        given = parse_qs(self.scope["query_string"].decode("latin-1")).get("after")
        if given is None:
            return
        missed = None
        with contextlib.suppress(CannotDecrypt):
            after = int(decrypt(given[-1], Purpose.LIVE))
            missed = await database_sync_to_async(missed_changes)(after)
            self._upto = after
        if missed is None:
            self._queue.put_refresh()
        else:
            self._queue.put(coalesce(missed))
        self._has_updates.set()

    async def _send_updates(self, visibility: Visibility) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._has_updates.wait(), _seconds_until_next_look())
            if time.monotonic() - visibility.looked_up_at > VISIBILITY_SECONDS:
                renewed = await self._look_up_visibility()
                if renewed is None:
                    broadcaster.unsubscribe(self)
                    await self.close(code=LOGIN_NEEDED)
                    return
                visibility = renewed
            self._has_updates.clear()
            self._is_urgent.clear()
            for message in self._queue.take(visibility):
                if isinstance(upto := message.get("upto"), int):
                    self._upto = max(self._upto, upto)
                    message["upto"] = _position(self._upto)
                await self.send_json(message)
            if self._queue:
                self._has_updates.set()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._is_urgent.wait(), MESSAGE_SECONDS)

    async def _look_up_visibility(self) -> Visibility | None:
        return await visibility_look_up.of(self.scope["session"].session_key)


@lru_cache(maxsize=1000)
def _position(change_id: int) -> str:
    """Return the position after a change that the user may see; the same for all who are told of it.

    The first message has one of its own each time: it must not tell whether anything has changed.
    """
    return encrypt(str(change_id), Purpose.LIVE)


def _seconds_until_next_look() -> float:
    return IDLE_SECONDS - time.monotonic() % IDLE_SECONDS
