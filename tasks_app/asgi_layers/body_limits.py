"""Limit the size and the slowness of bodies, which Django reads whole before it does anything else."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from django.conf import settings

from tasks_app.api.problems import MEDIA_TYPE, Kind, problem

Message = dict[str, Any]
Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]

#: Maximum bytes of a body without a user's session or an API token, such as a login.
STRANGERS_LIMIT = 64_000
#: Seconds in which such a body must be there. Others have these seconds, too, before their pace counts.
FIRST_SECONDS = 10.0
#: Bytes of others that must have come, times the square of the seconds: 40 kB in 20 s, 360 kB in a minute.
PACE = 100
_SESSION_KEY = re.compile(r"[a-z0-9]{32}")


class _TooLarge(Exception):
    """The body is longer than `limit`, which holds for its sender."""

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self.limit = limit


class _TooSlow(Exception):
    """The body came too slowly."""


@dataclass(frozen=True)
class Credentials:
    """Credentials of a request, unverified: anybody can invent them."""

    session_key: str = ""
    token: str = ""


class LimitedBodies:
    """Responds with 413 to bodies of more than `limit` bytes, and with 408 to slow ones.

    Most bodies are within what a stranger may send. Only for one that is not, `is_logged_in` looks into the
    database, once, whether the session or token exists.
    """

    def __init__(
        self, application: Application, *, limit: int, is_logged_in: Callable[[Credentials], Awaitable[bool]]
    ) -> None:
        self._application = application
        self._limit = limit
        self._is_logged_in = is_logged_in

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        body = _Body(scope, receive, self._limit, self._is_logged_in)
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        try:
            if declared.isdigit():
                await body.require_allowed(int(declared[:20]))
            await self._application(scope, body.receive, send)
        except _TooLarge as error:
            await _refuse_long(scope, send, error.limit)
        except _TooSlow:
            text = b"The request came too slowly. Nothing was changed.\n"
            await _refuse(send, 408, b"text/plain; charset=utf-8", text)


class _Body:
    """A body that is limited until it is whole; then `receive` waits for the client to leave."""

    def __init__(
        self,
        scope: Message,
        receive: Receive,
        limit: int,
        is_logged_in: Callable[[Credentials], Awaitable[bool]],
    ) -> None:
        self._receive = receive
        self._limit = limit
        self._is_logged_in = is_logged_in
        self._credentials = _credentials(scope)
        self._may_be_long: bool | None = None
        self._begun = asyncio.get_running_loop().time()
        self._seen = 0
        self._is_whole = False

    async def receive(self) -> Mapping[str, Any]:
        if self._is_whole:
            return await self._receive()
        message = await self._next_message()
        self._seen += len(message.get("body", b""))
        await self.require_allowed(self._seen)
        self._is_whole = not message.get("more_body")
        return message

    async def require_allowed(self, size: int) -> None:
        """Raise _TooLarge if the body may not have this many bytes."""
        limit = self._limit
        if size > STRANGERS_LIMIT and not await self._is_of_user():
            limit = min(limit, STRANGERS_LIMIT)
        if size > limit:
            raise _TooLarge(limit)

    async def _next_message(self) -> Mapping[str, Any]:
        seconds = FIRST_SECONDS
        while True:
            try:
                async with asyncio.timeout_at(self._begun + seconds):
                    return await self._receive()
            except TimeoutError:
                longer = max(FIRST_SECONDS, (self._seen / PACE) ** 0.5)
                if longer <= seconds or not await self._is_of_user():
                    raise _TooSlow from None
                seconds = longer

    async def _is_of_user(self) -> bool:
        if self._may_be_long is None:
            shown = self._credentials
            self._may_be_long = shown != Credentials() and await self._is_logged_in(shown)
        return self._may_be_long


def _credentials(scope: Message) -> Credentials:
    session_key = token = ""
    for name, value in scope["headers"]:
        if name == b"authorization" and value.lower().startswith(b"bearer cath_"):
            token = value.decode("latin-1").split(" ", 1)[1].strip()
        if name == b"cookie":
            for cookie in value.decode("latin-1").split(";"):
                key, _, text = cookie.strip().partition("=")
                if key == settings.SESSION_COOKIE_NAME and _SESSION_KEY.fullmatch(text):
                    session_key = text
    return Credentials(session_key, token)


async def _refuse_long(scope: Message, send: Send, limit: int) -> None:
    """Refuse in words; below /api/ in JSON."""
    text = f"This is too long: the portal takes up to {limit:,} bytes at once."
    if scope.get("path", "").startswith("/api/"):
        await _refuse(send, 413, MEDIA_TYPE.encode(), problem(Kind.TOO_LONG, text).content)
    else:
        await _refuse(send, 413, b"text/plain; charset=utf-8", f"{text}\n".encode())


async def _refuse(send: Send, status: int, kind: bytes, body: bytes) -> None:
    length = str(len(body)).encode()
    headers = [(b"content-type", kind), (b"content-length", length), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
