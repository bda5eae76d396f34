"""The socket of an open page, and the updates that its browser has not been sent yet."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import parse_qs

from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncJsonWebsocketConsumer
from django.conf import settings
from django.db import DatabaseError
from django.utils import timezone

from tasks_app.core.hops import HopName
from tasks_app.history.noted_hops import note_of_wait, notes_hops
from tasks_app.models import ChangeKind, Question
from tasks_app.web.live.broadcaster import broadcaster
from tasks_app.web.live.changes import missed_changes, newest_change_id
from tasks_app.web.live.updates import TaskUpdate, coalesce
from tasks_app.web.live.visibility import Visibility, visibility_look_up

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
            waiting = self._waiting.get(update.task_id)
            merged = waiting[0].merged(update) if waiting else update
            self._waiting[update.task_id] = (merged, received_at)
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
        messages: list[Message] = [{"refresh": True}] if self._refresh else []
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

#: Questions of which one socket may tell that they were painted.
MOST_PAINTED = 1000

#: The kind of changes that may wait so long.
_PATIENT = frozenset({"events"})

#: Seconds for which a looked-up visibility is used.
VISIBILITY_SECONDS = 1.0

#: Seconds after which it is looked up anyway: a logged-out user must not keep a socket. All sockets of the
#: process do so in the same moment, so that they share it.
IDLE_SECONDS = 60.0


class LiveConsumer(AsyncJsonWebsocketConsumer):  # type: ignore[misc]
    """Tells one browser which of the tasks that its user may see have changed.

    Receiving only puts updates into the queue; a separate task sends them, so that a slow browser holds up
    nobody. With `?after=N` a browser gets what it missed since change N.
    """

    channel_layer_alias = "none"  # Updates come from the broadcaster.

    _sender: asyncio.Task[None] | None = None
    _counted_user_id: int | None = None

    async def __call__(self, *asgi: Any) -> None:
        try:
            await super().__call__(*asgi)
        finally:  # Also when the server cancels the socket, which sends no `disconnect`.
            broadcaster.unsubscribe(self)
            self._uncount_socket()
            if self._sender:
                self._sender.cancel()

    async def connect(self) -> None:
        visibility = await self._look_up_visibility()
        if visibility is None:
            await self.close(code=LOGIN_NEEDED)
            return
        if not self._count_socket(visibility.user_id):
            await self.close(code=TOO_MANY)
            return
        await self.accept()
        self._painted: set[int] = set()
        self._queue = SendQueue()
        self._has_updates = asyncio.Event()
        self._is_urgent = asyncio.Event()
        # Subscribe first, then read: what is committed in between comes twice rather than never.
        broadcaster.subscribe(self)
        self._sender = asyncio.create_task(self._send_until_closed(visibility))

    def _count_socket(self, user_id: int) -> bool:
        """Count the socket for its user; False if there are too many. A page without a socket polls."""
        if _open_sockets[user_id] >= settings.ENVIRONMENT.sockets_of_one:
            return False
        _open_sockets[user_id] += 1
        self._counted_user_id = user_id
        return True

    def _uncount_socket(self) -> None:
        if self._counted_user_id is not None:
            _open_sockets[self._counted_user_id] -= 1
            if not _open_sockets[self._counted_user_id]:
                del _open_sockets[self._counted_user_id]
            self._counted_user_id = None

    async def receive(self, text_data: str | None = None, **_: Any) -> None:
        """Take that the browser has painted the card of a question; ignore everything else.

        It counts once for each question and socket, and only if the user may see that question now.
        """
        question_id = painted_question(text_data or "")
        is_wanted = notes_hops() and len(self._painted) < MOST_PAINTED and question_id not in self._painted
        if not question_id or not is_wanted:
            return
        at = timezone.now()
        self._painted.add(question_id)
        try:
            visibility = await self._look_up_visibility()
            if visibility is not None:
                await database_sync_to_async(_note_painted)(question_id, visibility, at)
        except DatabaseError:
            logger.debug("it is not noted that question %s was painted", question_id, exc_info=True)

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
        hello: Message = {"hello": True, "upto": await database_sync_to_async(newest_change_id)()}
        if notes_hops():
            hello["painted"] = True  # the page shall tell of painted cards
        await self.send_json(hello)
        given = parse_qs(self.scope["query_string"].decode("latin-1")).get("after")
        if given is None:
            return
        after = given[-1]
        is_id = after.isascii() and after.isdigit() and len(after) < 19
        missed = await database_sync_to_async(missed_changes)(int(after)) if is_id else None
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
                await self.send_json(message)
                _note_sent(message)
            if self._queue:
                self._has_updates.set()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._is_urgent.wait(), MESSAGE_SECONDS)

    async def _look_up_visibility(self) -> Visibility | None:
        return await visibility_look_up.of(self.scope["session"].session_key)


def painted_question(text: str) -> int:
    """Return the question whose card a browser says to have painted; 0 if it says anything else."""
    found = re.fullmatch(r'\{"painted":([1-9][0-9]{0,17})\}', text, re.ASCII)
    return int(found[1]) if found else 0


def _note_painted(question_id: int, visibility: Visibility, at: datetime) -> None:
    seen = Question.objects.open().filter(pk=question_id, task__project__in=visibility.project_ids)
    for task_id in seen.values_list("task", flat=True):
        note_of_wait(task_id, HopName.CARD_PAINTED, at, question_id=question_id)


def _note_sent(message: Message) -> None:
    match message:
        case {"task": int(task_id), "kinds": list(kinds)} if ChangeKind.QUESTION in kinds:
            note_of_wait(task_id, HopName.SOCKET)


def _seconds_until_next_look() -> float:
    return IDLE_SECONDS - time.monotonic() % IDLE_SECONDS
