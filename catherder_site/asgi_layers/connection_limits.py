"""Limit the number of connections, and how long they may be silent before a request.

uvicorn waits for ever for a request's headers and body, and for a client that does not read its answer. A
process may open few files, and a stranger who opens a thousand connections and says nothing uses them all.
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

from catherder_site.asgi_layers.proxies import parsed_address

#: Seconds in which a request line with its headers must have come, from the connection or the last answer on.
HEADER_SECONDS = 15.0
#: A body must bring `BODY_BYTES` in every `BODY_SECONDS`.
BODY_SECONDS = 20.0
BODY_BYTES = 1_000
#: Seconds in which a client must take some of an answer that waits for it.
WRITE_SECONDS = 60.0
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
    def waits_for_request(self) -> bool:
        """Return whether the connection can be closed without losing a request."""

    def drop(self) -> None:
        """Close the connection."""


class Register:
    """The open connections, at most `most`, and at most `most_of_one` per IP address.

    When there are too many, the oldest that has not sent a whole request is closed, so silent connections
    keep nobody out. A new one is refused only while all others are at work. `proxies` speak for many people,
    so only `most` holds for them. An IPv6 network of 64 bits counts as one address.
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
        if len(self._open) >= self._most and not self._make_room(self._open):
            return False
        self._open[key] = member
        self._group_of[key] = group
        self._of_one.setdefault(group, {})[key] = member
        return True

    def release(self, key: object) -> None:
        """Remove an ended connection, if it is known."""
        self._open.pop(key, None)
        group = self._group_of.pop(key, "")
        if of_one := self._of_one.get(group):
            of_one.pop(key, None)
            if not of_one:
                del self._of_one[group]

    def _make_room(self, among: dict[object, Member]) -> bool:
        """Close the oldest connection that waits for a request; dictionaries keep the insertion order."""
        oldest = next((key for key, member in among.items() if member.waits_for_request), None)
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
    return wanted if files == resource.RLIM_INFINITY else max(FEWEST, min(wanted, files - OTHER_FILES))


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

    _timer: asyncio.TimerHandle | None = None
    _write_timer: asyncio.TimerHandle | None = None
    _awaited = ""
    _body_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if register().admit(transport, self.client[0] if self.client else "", self):
            self._watch()
        else:
            transport.write(_REFUSAL)
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        register().release(self.transport)
        self._end_timers()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._body_bytes += len(data)
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._write_timer = self.loop.call_later(WRITE_SECONDS, self.drop)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._write_timer:
            self._write_timer.cancel()
            self._write_timer = None

    @property
    def waits_for_request(self) -> bool:
        return self.conn.their_state is h11.IDLE

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
        elif awaited == "body":
            self._body_bytes = 0
            self._timer = self.loop.call_later(BODY_SECONDS, self._check_body_timeout)

    def _expected_input(self) -> str:
        if self.transport.is_closing() or self._is_taken_over:
            return ""
        return "headers" if self.waits_for_request else "body" if self._sends_body else ""

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

    def _end_timers(self) -> None:
        for timer in (self._timer, self._write_timer):
            if timer:
                timer.cancel()
        self._timer = self._write_timer = None


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
