"""Which projects the users behind sockets may see."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection
from dataclasses import dataclass

from channels.db import database_sync_to_async
from django.utils import timezone

from tasks_app.models import BrowserSession, User
from tasks_app.models.browser_session import hash_session_key
from tasks_app.permissions import projects_visible_to_each


@dataclass(frozen=True)
class Visibility:
    """The projects that a user could see when this was looked up, at a moment of the monotonic clock."""

    project_ids: frozenset[int]
    looked_up_at: float
    user_id: int = 0


def look_up_visibility(session_keys: Collection[str]) -> dict[str, Visibility]:
    """Return what the owners of the sessions may see now, by session key, with at most three queries.

    Keys without a login are left out; so are those after a logout or a change of password, and those of users
    who were deactivated.
    """
    looked_up_at = time.monotonic()
    keys = {hash_session_key(key): key for key in session_keys}
    rows = BrowserSession.objects.filter(pk__in=keys, expire_date__gt=timezone.now()).select_related("user")
    users = {keys[row.pk]: row.user for row in rows if isinstance(row.user, User) and row.is_valid}
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
