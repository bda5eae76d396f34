"""Connections of agents to the proxy: their limits, reading a request's body, and sending a reply."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from contextlib import suppress
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from tasks_app.agent.proxy.meter import Refused

REQUEST_BYTES = 64 * 1024 * 1024
#: Seconds for which a sandboxed process may keep a connection waiting, to send or to take its next byte.
CLIENT_SECONDS = 60.0
#: Maximum open connections: each takes a file descriptor of the worker.
CONNECTIONS = 256

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class HungUp(Exception):
    """The agent closed its connection."""


class Incoming:
    """The body of a request, and afterwards the event that the agent hangs up."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._is_complete = asyncio.Event()
        self.hung_up = asyncio.Event()

    async def body(self, most: int = REQUEST_BYTES) -> AsyncIterator[bytes]:
        """Yield the pieces as they arrive. Raises TimeoutError, and Refused for a body over `most`."""
        size, more = 0, True
        while more:
            async with asyncio.timeout(CLIENT_SECONDS):
                message = await self._receive()
            if message["type"] == "http.disconnect":
                self.hung_up.set()
                raise HungUp
            piece = message.get("body", b"")
            size += len(piece)
            if size > most:
                raise Refused(413, "request_too_large", "The request is too large.")
            more = message.get("more_body", False)
            if piece:
                yield piece
        self._is_complete.set()

    async def wait_for_end(self, sending: asyncio.Future[None]) -> None:
        """Wait for `sending`, but cancel it if the agent hangs up: nobody would read the response."""
        hung_up: asyncio.Future[Any] = asyncio.ensure_future(self.hung_up.wait())
        watching = asyncio.ensure_future(self._watch_connection())
        try:
            both: set[asyncio.Future[Any]] = {sending, hung_up}
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if not sending.done():
                raise HungUp
            await sending
        finally:
            for task in (sending, hung_up, watching):
                task.cancel()
            await asyncio.gather(sending, hung_up, watching, return_exceptions=True)

    async def _watch_connection(self) -> None:
        await self._is_complete.wait()
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.hung_up.set()


class Reply:
    """The reply to an agent. It closes the connection, so that none stays open without a request."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._has_begun = False

    async def begin(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self._has_begun = True
        headers = [*headers, (b"connection", b"close")]
        await self._send_in_time({"type": "http.response.start", "status": status, "headers": headers})

    async def send(self, piece: bytes, *, more: bool = True) -> None:
        await self._send_in_time({"type": "http.response.body", "body": piece, "more_body": more})

    async def error(self, status: int, kind: str, message: str) -> None:
        """Send an error in the format of the Messages API. A reply that has begun is cut instead."""
        if self._has_begun:
            return
        fault = {"type": "error", "error": {"type": kind, "message": message}}
        body = json.dumps(fault).encode() if message else b""
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        with suppress(TimeoutError):
            await self.begin(status, headers)
            await self.send(body, more=False)

    async def _send_in_time(self, message: MutableMapping[str, Any]) -> None:
        async with asyncio.timeout(CLIENT_SECONDS):
            await self._send(message)


def check_length(headers: Mapping[str, str], most: int = REQUEST_BYTES) -> None:
    """Raise Refused for a request that is compressed, larger than `most`, or does not say how long it is."""
    length = headers.get("content-length", "")
    if headers.get("content-encoding", "identity") != "identity":
        raise Refused(415, "invalid_request_error", "Requests must not be compressed.")
    if length and int(length) > most:
        raise Refused(413, "request_too_large", "The request is too large.")
    if length and "transfer-encoding" in headers:  # two servers could read two different lengths
        raise Refused(400, "invalid_request_error", "The request must say in one way how long it is.")
    if not length and "transfer-encoding" not in headers:
        raise Refused(411, "invalid_request_error", "The request must say how long it is.")


class _LimitedProtocol(H11Protocol):
    """uvicorn's own protocol with limits on the number of connections and on how long one may be silent."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.logger = _silent_logger  # it would log replies that are cut on purpose
        self.access_log = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._began = self.loop.time()
        self._silence_timer = self.loop.call_later(CLIENT_SECONDS, self._close_if_silent)
        if len(self.connections) > CONNECTIONS:
            self._longest_silent().transport.close()

    def _longest_silent(self) -> _LimitedProtocol:
        """Return the connection that has waited longest without a request, or this one if there is none.

        Refusing the newest one would let one agent keep all others from their model.
        """
        own: list[_LimitedProtocol] = [one for one in self.connections if isinstance(one, _LimitedProtocol)]
        silent = [one for one in own if one.cycle is None and not one.transport.is_closing()]
        return min(silent, key=lambda one: one._began, default=self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._silence_timer.cancel()
        super().connection_lost(exc)

    def _close_if_silent(self) -> None:
        if self.cycle is None:
            self.transport.close()


_silent_logger = logging.getLogger(f"{__name__}.http")
_silent_logger.setLevel(logging.CRITICAL + 1)


class LimitedServer(uvicorn.Server):
    """uvicorn's own server with limited connections. When it ends, it calls `close`, too."""

    def __init__(self, application: Any, *, close: Callable[[], Awaitable[None]]) -> None:
        super().__init__(
            uvicorn.Config(
                application,
                interface="asgi3",
                http=_LimitedProtocol,
                loop="asyncio",
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                date_header=False,
                timeout_keep_alive=30,
                timeout_graceful_shutdown=1,
            )
        )
        self._close = close

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        await self._close()
