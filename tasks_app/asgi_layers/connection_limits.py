"""Limit the number of connections, and how long they may wait for their client.

uvicorn waits for ever for a request's headers and body, and for a client that does not read its answer. A
process may open few files, and a stranger who opens a thousand slow connections uses them all. So each that
waits for its client makes room for a new one, whatever the client has sent so far. uvicorn's own bound
(`limit_concurrency`) would refuse the new ones, as long as the silent ones stay.
"""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Sequence
from functools import cache
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_network
from typing import Protocol

import h11
from django.conf import settings
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from tasks_app.asgi_layers.body_limits import Application, Message, Receive, Send
from tasks_app.asgi_layers.proxies import parsed_address
from tasks_app.asgi_layers.requests import answer

#: Seconds in which a request line with its headers must have come, from the connection or the last answer on.
HEADER_SECONDS = 15.0
#: A body must bring `BODY_BYTES` in every `BODY_SECONDS`. Except below /worker/ it must be faster, see
#: `body_limits.py`.
BODY_SECONDS = 20.0
BODY_BYTES = 1_000
#: Seconds in which a client must take some of an answer that waits for it.
WRITE_SECONDS = 60.0
#: Seconds for which such a client keeps its place when there are too many connections.
SLOW_READER_SECONDS = 5.0
#: Seconds for which the rest of a body is taken that nobody reads, so that the client can read the answer.
REST_SECONDS = 5.0
#: Files of the process that are not connections: databases, templates, static files, threads.
OTHER_FILES = 200
FEWEST = 50

_REFUSAL = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain; charset=utf-8\r\nRetry-After: 10\r\n"
    b"Connection: close\r\n\r\nToo many connections. Close some, or try again in a while.\n"
)


class Member(Protocol):
    """Interface of a connection in the register."""

    @property
    def waits_for_client(self) -> bool:
        """Return whether there is nothing to do until the client has sent, or taken, something."""

    def drop(self) -> None:
        """Close the connection."""


class Register:
    """The open connections, at most `most`, and at most `most_of_one` per IP address.

    When there are too many, the oldest that waits for its client is closed, first of the address that has the
    most, so slow connections keep nobody out. A new one is refused only while all others are at work.
    `proxies` speak for many people: their connections count for the client of the present request (`move`),
    and between requests only `most` holds for them. An IPv6 network of 64 bits counts as one address.
    """

    def __init__(
        self, *, most: int, most_of_one: int, proxies: Sequence[IPv4Network | IPv6Network] = ()
    ) -> None:
        self._most = most
        self._most_of_one = most_of_one
        self._proxies = proxies
        self._open: dict[object, Member] = {}
        self._group_of: dict[object, str] = {}
        self._of_one: dict[str, dict[object, Member]] = {}

    def __len__(self) -> int:
        return len(self._open)

    def admit(self, key: object, address: str, member: Member) -> bool:
        """Add a new connection under `key`, its transport; return false if there are too many."""
        group, exempt = self._group(address)
        of_one = self._of_one.get(group, {})
        if not exempt and len(of_one) >= self._most_of_one and not self._make_room(of_one):
            return False
        if len(self._open) >= self._most and not self._make_room_among_all():
            return False
        self._open[key] = member
        self._enter(key, group)
        return True

    def move(self, key: object, address: str, *, limited: bool = True) -> bool:
        """Count a connection for another address; return false if that address has too many at work."""
        member = self._open.get(key)
        if member is None:  # it was closed meanwhile
            return True
        group, _ = self._group(address)
        if group == self._group_of[key] and not (limited and len(self._of_one[group]) > self._most_of_one):
            return True
        self._leave(key)
        of_one = self._of_one.get(group, {})
        has_room = not limited or len(of_one) < self._most_of_one or self._make_room(of_one)
        self._enter(key, group)
        return has_room

    def release(self, key: object) -> None:
        """Remove an ended connection, if it is known."""
        if self._open.pop(key, None):
            self._leave(key)

    def _enter(self, key: object, group: str) -> None:
        self._group_of[key] = group
        self._of_one.setdefault(group, {})[key] = self._open[key]

    def _leave(self, key: object) -> None:
        group = self._group_of.pop(key)
        del self._of_one[group][key]
        if not self._of_one[group]:
            del self._of_one[group]

    def _make_room_among_all(self) -> bool:
        """Close a stranger's many connections before the single one of somebody with a slow network."""
        return self._make_room(max(self._of_one.values(), key=len)) or self._make_room(self._open)

    def _make_room(self, among: dict[object, Member]) -> bool:
        """Close the oldest connection that waits for its client; dictionaries keep the insertion order."""
        oldest = next((key for key, member in among.items() if member.waits_for_client), None)
        if oldest is None:
            return False
        member = among[oldest]
        self.release(oldest)
        member.drop()
        return True

    def _group(self, text: str) -> tuple[str, bool]:
        """Return the key under which an IP address is counted, and whether it is a proxy."""
        address = parsed_address(text)
        if address is None:
            return text, False
        exempt = any(address in network for network in self._proxies)
        if isinstance(address, IPv6Address):
            return str(ip_network((address, 64), strict=False)), exempt
        return str(address), exempt


def most_connections(wanted: int, files: int) -> int:
    """Return the maximum number of connections for a limit of open files, which can be RLIM_INFINITY."""
    if files == resource.RLIM_INFINITY:
        return wanted
    return max(FEWEST, min(wanted, files - OTHER_FILES))


@cache
def register() -> Register:
    """Return the register of this process, according to the settings and its file limit."""
    environment = settings.ENVIRONMENT
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return Register(
        most=most_connections(environment.connections, files),
        most_of_one=environment.connections_of_one,
        proxies=environment.proxies,
    )


class Connection(H11Protocol):
    """uvicorn's HTTP connection with timeouts, counted in the register."""

    #: Whether its request has shown the token of a worker host, whose bodies are large and may be slow.
    is_of_worker_host = False

    _timer: asyncio.TimerHandle | None = None
    _write_timer: asyncio.TimerHandle | None = None
    _awaited = ""
    _body_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.app_state = {**self.app_state, "connection": self}
        if register().admit(transport, self._peer, self):
            self._watch()
        else:
            transport.write(_REFUSAL)
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        register().release(self.transport)
        for timer in (self._timer, self._write_timer):
            if timer:
                timer.cancel()
        self._timer = self._write_timer = None
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._body_bytes += len(data)
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        self.is_of_worker_host = False
        register().move(self.transport, self._peer, limited=False)
        super().on_response_complete()
        self._watch()

    def counts_for(self, address: str) -> bool:
        """Count this connection for the client of its request; return false if that client has too many."""
        return register().move(self.transport, address)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._write_timer = self.loop.call_later(WRITE_SECONDS, self.drop)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._write_timer:
            self._write_timer.cancel()
            self._write_timer = None

    @property
    def waits_for_client(self) -> bool:
        if self._waits_for_request:
            return True
        if self.is_of_worker_host or self._is_taken_over:
            return False
        return self._sends_body or self._reads_slowly

    def drop(self) -> None:
        self.transport.abort()

    def _watch(self) -> None:
        """Start the timeout for what the client has to send. Bytes of headers do not restart it."""
        awaited = self._expected_input()
        if awaited == self._awaited:
            return
        self._awaited = awaited
        if self._timer:
            self._timer.cancel()
            self._timer = None
        if awaited == "headers":
            self._timer = self.loop.call_later(HEADER_SECONDS, self.drop)
        elif awaited == "rest":
            self._timer = self.loop.call_later(REST_SECONDS, self.drop)
        elif awaited == "body":
            self._body_bytes = 0
            self._timer = self.loop.call_later(BODY_SECONDS, self._check_body_timeout)

    def _expected_input(self) -> str:
        if self.transport.is_closing() or self._is_taken_over:
            return ""
        if self._waits_for_request:
            return "headers"
        if not self._sends_body:
            return ""
        return "rest" if self.cycle.response_complete else "body"

    @property
    def _peer(self) -> str:
        return self.client[0] if self.client else ""

    @property
    def _waits_for_request(self) -> bool:
        return self.conn.their_state is h11.IDLE

    @property
    def _reads_slowly(self) -> bool:
        left = self._write_timer.when() - self.loop.time() if self._write_timer else WRITE_SECONDS
        return left < WRITE_SECONDS - SLOW_READER_SECONDS

    @property
    def _is_taken_over(self) -> bool:
        """Return whether this is a WebSocket now. uvicorn then leaves `conn` as if a body were to come."""
        return self.transport.get_protocol() is not self

    @property
    def _sends_body(self) -> bool:
        return self.conn.their_state is h11.SEND_BODY

    def _check_body_timeout(self) -> None:
        """Check the body's timeout, except while uvicorn itself has paused reading."""
        if self._body_bytes < BODY_BYTES and not self.flow.read_paused:
            self.drop()
            return
        self._body_bytes = 0
        self._timer = self.loop.call_later(BODY_SECONDS, self._check_body_timeout)


class Socket(WebSocketsSansIOProtocol):
    """uvicorn's WebSocket, which takes over a connection that is already in the register.

    uvicorn pings it every 20 s; a peer that does not answer is cut off even with data waiting for it.
    """

    def connection_lost(self, exc: Exception | None) -> None:
        register().release(self.transport)
        super().connection_lost(exc)

    def keepalive_timeout(self) -> None:
        super().keepalive_timeout()
        self.transport.abort()


class CountedClients:
    """Counts each request for its client, which a trusted proxy has told, and not for the proxy."""

    def __init__(self, application: Application) -> None:
        self._application = application

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        connection = scope.get("state", {}).get("connection")
        if connection is None or connection.counts_for((scope.get("client") or ("",))[0]):
            await self._application(scope, receive, send)
            return
        text = b"Too many requests from your network. Try again in a while.\n"
        await answer(scope, send, 503, text, {b"retry-after": b"10", b"connection": b"close"})
