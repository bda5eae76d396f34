"""Limit the size of request bodies before Django stores them on the disk."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from tasks_app.api.problems import MEDIA_TYPE, Kind, problem

Message = dict[str, Any]
Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]


class _TooLarge(Exception):
    """The body is longer than declared or allowed."""


class LimitedBodies:
    """Responds with 413 to bodies of more than `limit` bytes."""

    def __init__(self, application: Application, *, limit: int) -> None:
        self._application = application
        self._limit = limit

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        if declared.isdigit() and int(declared[:20]) > self._limit:
            await self._refuse(scope, send)
            return
        try:
            await self._application(scope, self._counted(receive), send)
        except _TooLarge:
            await self._refuse(scope, send)

    def _counted(self, receive: Receive) -> Receive:
        seen = 0

        async def counted() -> Mapping[str, Any]:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > self._limit:
                raise _TooLarge
            return message

        return counted

    async def _refuse(self, scope: Message, send: Send) -> None:
        kind, body = self._words(scope.get("path", ""))
        length = str(len(body)).encode()
        headers = [(b"content-type", kind), (b"content-length", length), (b"connection", b"close")]
        await send({"type": "http.response.start", "status": 413, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def _words(self, path: str) -> tuple[bytes, bytes]:
        """Return content type and text of the response; below /api/ it is JSON."""
        text = f"This is too long: the portal takes up to {self._limit:,} bytes at once."
        if path.startswith("/api/"):
            return MEDIA_TYPE.encode(), problem(Kind.TOO_LONG, text).content
        return b"text/plain; charset=utf-8", f"{text}\n".encode()
