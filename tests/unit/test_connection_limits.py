"""How many connections may be open, and how long each may be silent."""

from __future__ import annotations

import asyncio
import logging
import resource
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from ipaddress import ip_network
from typing import Any

import pytest
from uvicorn.config import Config
from uvicorn.server import ServerState
from websockets.asyncio.client import connect

from catherder_site.logs import Formatter, Seldom, WithoutSecrets
from tasks_app.asgi_layers import connection_limits
from tasks_app.asgi_layers.connection_limits import Connection, CountedClients, Register
from tasks_app.asgi_layers.proxies import ForwardedClients


@dataclass(eq=False)
class Fake:
    """A connection for the register."""

    waits_for_client: bool = True
    dropped: bool = False

    def drop(self) -> None:
        self.dropped = True


def admitted(register: Register, address: str, *members: Fake) -> list[bool]:
    return [register.admit(member, address, member) for member in members]


class TestRegister:
    def test_the_oldest_idle_connection_of_an_ip_address_is_closed(self) -> None:
        register = Register(most=100, most_of_one=3)
        busy, first, second, third = Fake(waits_for_client=False), Fake(), Fake(), Fake()
        assert admitted(register, "192.0.2.1", busy, first, second, third) == [True] * 4
        assert [one.dropped for one in (busy, first, second, third)] == [False, True, False, False]
        assert len(register) == 3

    def test_where_all_are_at_work_a_new_one_is_refused(self) -> None:
        register = Register(most=100, most_of_one=2)
        members = [Fake(waits_for_client=False) for _ in range(3)]
        assert admitted(register, "192.0.2.1", *members) == [True, True, False]
        assert admitted(register, "192.0.2.2", Fake()) == [True]

    def test_an_ended_connection_leaves_its_place(self) -> None:
        register = Register(most=100, most_of_one=1)
        first, second = Fake(waits_for_client=False), Fake(waits_for_client=False)
        admitted(register, "192.0.2.1", first)
        register.release(first)
        register.release(first)
        assert admitted(register, "192.0.2.1", second) == [True]
        assert (len(register), len(register._of_one)) == (1, 1)

    def test_a_proxy_speaks_for_many_people_but_not_for_more_than_there_may_be(self) -> None:
        register = Register(most=5, most_of_one=1, proxies=[ip_network("10.0.0.0/8")])
        members = [Fake() for _ in range(6)]
        assert admitted(register, "10.0.0.1", *members) == [True] * 6
        assert [one.dropped for one in members] == [True, *[False] * 5]

    def test_a_client_behind_a_proxy_is_counted_for_itself(self) -> None:
        """W1: however many connections one has, those of others stay, and its newest request is served."""
        register = Register(most=100, most_of_one=2, proxies=[ip_network("127.0.0.0/8")])
        strangers, other = [Fake() for _ in range(3)], Fake()
        admitted(register, "127.0.0.1", other, *strangers)
        assert register.move(other, "192.0.2.2")
        assert [register.move(one, "192.0.2.1") for one in strangers] == [True] * 3
        assert [one.dropped for one in [other, *strangers]] == [False, True, False, False]
        for one in strangers:
            one.waits_for_client = False
        late = Fake()
        admitted(register, "127.0.0.1", late)
        assert not register.move(late, "192.0.2.1"), "all others are at work"
        assert register.move(late, "127.0.0.1", limited=False)

    def test_a_program_on_the_machine_of_a_proxy_is_limited(self) -> None:
        register = Register(most=100, most_of_one=2, proxies=[ip_network("127.0.0.0/8")])
        local = [Fake() for _ in range(3)]
        admitted(register, "127.0.0.1", *local)
        assert all(register.move(one, "127.0.0.1") for one in local)
        assert len(register) == 2 and [one.dropped for one in local].count(True) == 1

    def test_the_client_with_the_most_connections_makes_room(self) -> None:
        register = Register(most=4, most_of_one=4)
        first, strangers = Fake(), [Fake() for _ in range(3)]
        admitted(register, "192.0.2.1", first)
        admitted(register, "192.0.2.2", *strangers)
        admitted(register, "192.0.2.3", Fake())
        assert not first.dropped and strangers[0].dropped

    def test_a_network_of_ipv6_is_one_address(self) -> None:
        """A stranger has as many addresses of it as he likes."""
        register = Register(most=100, most_of_one=2)
        for number in range(4):
            admitted(register, f"2001:db8::{number}", Fake())
        admitted(register, "2001:db8:0:1::1", Fake())
        assert len(register) == 3


@pytest.mark.parametrize(
    ("files", "most"), [(65_536, 4_000), (1_024, 824), (100, 50), (resource.RLIM_INFINITY, 4_000)]
)
def test_there_are_no_more_connections_than_files_for_them(files: int, most: int) -> None:
    assert connection_limits.most_connections(4_000, files) == most


@dataclass
class Server:
    """uvicorn's parts around one application, in the loop of the test."""

    port: int = 0
    made: list[Connection] = field(default_factory=list)
    bodies: list[int] = field(default_factory=list)

    async def application(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "websocket":
            await self._echo(receive, send)
            return
        length, message = 0, {"type": ""}
        while scope["path"] != "/refused" and (message := await receive())["type"] == "http.request":
            length += len(message["body"])
            if not message.get("more_body"):
                break
        self.bodies.append(length)
        if message["type"] == "http.disconnect":
            return
        if scope["path"] == "/work":
            await asyncio.sleep(30)
        body = b"x" * int(scope["query_string"] or b"2")
        headers = [(b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    async def _echo(self, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        while (message := await receive())["type"] == "websocket.receive":
            await send({"type": "websocket.send", "text": message["text"]})

    async def call(self, sent: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(sent)
        await writer.drain()
        return reader, writer


@asynccontextmanager
async def serving(most: int = 50, most_of_one: int = 50) -> AsyncIterator[Server]:
    """Serve the application, and trust proxies of this machine."""
    server = Server()
    here = [ip_network("127.0.0.0/8")]
    register = Register(most=most, most_of_one=most_of_one, proxies=here)
    before = connection_limits.register
    connection_limits.register = lambda: register  # type: ignore[assignment]
    counted: Any = ForwardedClients(CountedClients(server.application), networks=here)
    config = Config(counted, log_config=None, lifespan="off", interface="asgi3", ws=connection_limits.Socket)
    config.load()
    state = ServerState()

    def connection() -> Connection:
        server.made.append(Connection(config, state, {}))
        return server.made[-1]

    listening = await asyncio.get_running_loop().create_server(connection, "127.0.0.1", 0)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listening.close()
        for one in server.made:
            one.drop()
        await asyncio.sleep(0.05)
        connection_limits.register = before


def in_a_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    def run(**fixtures: Any) -> None:
        asyncio.run(asyncio.wait_for(test(**fixtures), 60))

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    run.__signature__ = __import__("inspect").signature(test)  # type: ignore[attr-defined]
    return run


async def ended(reader: asyncio.StreamReader) -> bytes:
    """What came until the server closed the connection."""
    try:
        return await asyncio.wait_for(reader.read(), 30)
    except ConnectionError:
        return b""


GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize("sent", [b"", b"GET / HT", GET[:-2]], ids=["nothing", "a line", "headers"])
@in_a_loop
async def test_who_sends_no_whole_request_is_cut_off(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_limits, "HEADER_SECONDS", 0.1)
    async with serving() as server:
        reader, writer = await server.call(sent)
        assert await ended(reader) == b""
        writer.close()


@in_a_loop
async def test_drop_by_drop_is_not_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte would begin the time anew if it were counted from the last one."""
    monkeypatch.setattr(connection_limits, "HEADER_SECONDS", 0.3)
    async with serving() as server:
        reader, writer = await server.call(b"GET / HTTP/1.1\r\nX: ")
        closed = asyncio.create_task(ended(reader))
        while not closed.done():
            writer.write(b"x")
            await asyncio.sleep(0.02)
        assert closed.result() == b""
        writer.close()


@in_a_loop
async def test_the_second_request_has_its_time_as_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving() as server:
        reader, writer = await server.call(GET)
        assert (await reader.readuntil(b"\r\n")) == OK
        monkeypatch.setattr(connection_limits, "HEADER_SECONDS", 0.1)
        writer.write(GET)
        await reader.readuntil(OK)
        writer.write(GET[:10])
        assert OK not in await ended(reader)
        writer.close()


@in_a_loop
async def test_a_body_that_stalls_is_cut_off_and_its_request_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_limits, "BODY_SECONDS", 0.1)
    async with serving() as server:
        reader, writer = await server.call(POST + b"x" * 10)
        assert await ended(reader) == b""
        writer.close()
        while not server.bodies:
            await asyncio.sleep(0.01)


@in_a_loop
async def test_a_body_that_comes_slowly_may_come() -> None:
    async with serving() as server:
        reader, writer = await server.call(POST)
        while not server.made or server.made[0]._awaited != "body":
            await asyncio.sleep(0.01)
        writer.write(b"x" * 2_000)
        while server.made[0]._body_bytes < 2_000:
            await asyncio.sleep(0.01)
        server.made[0]._check_body_timeout()
        assert not server.made[0].transport.is_closing()
        server.made[0]._check_body_timeout()
        assert server.made[0].transport.is_closing()
        assert await ended(reader) == b""
        writer.close()


@in_a_loop
async def test_a_silent_socket_stays_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its request has no body to wait for; every live page lost its socket after `BODY_SECONDS`."""
    monkeypatch.setattr(connection_limits, "BODY_SECONDS", 0.05)
    async with serving() as server, connect(f"ws://127.0.0.1:{server.port}/") as socket:
        assert (server.made[0]._awaited, server.made[0]._timer) == ("", None)
        await asyncio.sleep(0.2)
        await socket.send("still here")
        assert await socket.recv() == "still here"


@in_a_loop
async def test_who_does_not_read_the_answer_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_limits, "WRITE_SECONDS", 0.1)
    async with serving() as server:
        _, writer = await server.call(b"GET /?50000000 HTTP/1.1\r\nHost: x\r\n\r\n")
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        while not server.made or not server.made[0].transport.is_closing():
            await asyncio.sleep(0.01)
        writer.transport.abort()


@in_a_loop
async def test_idle_connections_are_closed_for_new_ones_and_busy_ones_are_not() -> None:
    async with serving(most=3) as server:
        silent = [await server.call(b"") for _ in range(3)]
        slow = [await server.call(POST) for _ in range(3)]
        for reader, _ in silent:
            assert await ended(reader) == b""
        busy = [await server.call(GET.replace(b"/", b"/work", 1)) for _ in range(3)]
        for reader, _ in slow:
            assert await ended(reader) == b"", "most of its body is still to come"
        reader, writer = await server.call(GET)
        assert b"503 Service Unavailable" in await ended(reader)
        for _, one in [*silent, *slow, *busy, (reader, writer)]:
            one.transport.abort()


@in_a_loop
async def test_requests_count_for_the_client_that_a_proxy_has_told() -> None:
    """W1: one with too many at work is refused, and no other one that comes through the same proxy."""
    work = GET.replace(b"/", b"/work", 1)
    async with serving(most_of_one=2) as server:
        first = GET[:-2] + b"X-Forwarded-For: 192.0.2.1\r\n\r\n"
        other = GET[:-2] + b"X-Forwarded-For: 192.0.2.2\r\n\r\n"
        busy = [await server.call(first.replace(b"/", b"/work", 1)) for _ in range(2)]
        while len(server.bodies) < 2:
            await asyncio.sleep(0.01)
        refused = await server.call(first)
        assert b"503 Service Unavailable" in await ended(refused[0])
        served = await server.call(other)
        assert await served[0].readuntil(OK) == OK
        local = [await server.call(work) for _ in range(4)]
        assert b"503 Service Unavailable" in await ended(local[3][0]), "a program that is no proxy"
        for _, one in [*busy, refused, served, *local]:
            one.transport.abort()


@in_a_loop
async def test_who_does_not_read_makes_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_limits, "SLOW_READER_SECONDS", 0.0)
    async with serving(most=1) as server:
        _, slow = await server.call(b"GET /?50000000 HTTP/1.1\r\nHost: x\r\n\r\n")
        slow.transport.pause_reading()  # type: ignore[attr-defined]
        while not server.made or not server.made[0]._write_timer:
            await asyncio.sleep(0.01)
        reader, writer = await server.call(GET)
        assert await reader.readuntil(OK) == OK
        for one in (slow, writer):
            one.transport.abort()


@in_a_loop
async def test_a_body_that_a_worker_host_sends_keeps_its_place() -> None:
    async with serving(most=1) as server:
        _, sending = await server.call(POST)
        while not server.made or not server.made[0]._sends_body:
            await asyncio.sleep(0.01)
        server.made[0].is_of_worker_host = True
        refused, writer = await server.call(GET)
        assert b"503 Service Unavailable" in await ended(refused)
        assert not server.made[0].transport.is_closing()
        for one in (sending, writer):
            one.transport.abort()


@in_a_loop
async def test_the_rest_of_a_body_that_nobody_reads_is_taken_for_a_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As after a refusal; each such connection could be kept with a few bytes."""
    monkeypatch.setattr(connection_limits, "REST_SECONDS", 0.2)
    async with serving() as server:
        reader, writer = await server.call(POST.replace(b"/", b"/refused", 1))
        assert await reader.readuntil(OK) == OK
        assert server.made[0]._awaited == "rest"
        closed = asyncio.create_task(ended(reader))
        while not closed.done():
            writer.write(b"x" * 1_000)
            await asyncio.sleep(0.02)
        writer.close()


def record(message: str, *args: Any, name: str = "asyncio") -> logging.LogRecord:
    return logging.LogRecord(name, logging.WARNING, __file__, 1, message, args, None)


def test_what_anonymous_visitors_can_cause_at_will_is_logged_now_and_then() -> None:
    seldom = Seldom(seconds=60)
    heard = [seldom.filter(record("Forbidden (%s): %s", "no token", f"/{number}")) for number in range(500)]
    assert heard == [True, *[False] * 499]
    assert seldom.filter(record("something else"))


def test_the_number_of_repeats_is_logged_with_the_next_one() -> None:
    seldom = Seldom(seconds=60)
    again = record("no more files")
    assert seldom.filter(record("no more files")) and not seldom.filter(again)
    key = next(iter(seldom._seen))
    seldom._seen[key] = (float("-inf"), 412)
    assert seldom.filter(again)
    assert again.getMessage() == "no more files (412 more like this before)"


def test_two_errors_at_one_place_of_code_are_logged_once_and_another_error_too() -> None:
    seldom = Seldom(seconds=60)

    def failed(fault: Exception) -> bool:
        try:
            raise fault
        except Exception as error:
            made = logging.LogRecord("uvicorn.error", 40, __file__, 1, "failed", (), None)
            made.exc_info = (type(error), error, error.__traceback__)
            return seldom.filter(made)

    assert [failed(OSError("a")), failed(OSError("b")), failed(KeyError("a"))] == [True, False, True]


def test_many_kinds_are_not_remembered_for_ever() -> None:
    seldom = Seldom(seconds=60)
    for number in range(3 * Seldom.MOST):
        seldom.filter(record(f"fault {number}"))
    assert len(seldom._seen) <= Seldom.MOST


SECRETS = (
    "/invitations/s3cr3t-of-the-link/",
    "/password/reset/1-s3cr3t-of-the-link/",
    "/email/confirm/s3cr3t:x/",
)


@pytest.mark.parametrize("path", SECRETS)
def test_no_secret_of_a_path_is_in_the_log(path: str) -> None:
    shown = Formatter("%(name)s %(message)s").format(record("Forbidden (%s): %s", "why", path))
    assert "s3cr3t" not in shown and "[secret]" in shown and "Forbidden (why)" in shown
    access = record('%s - "%s %s HTTP/%s" %d', "192.0.2.1:7", "GET", path, "1.1", 200)
    assert WithoutSecrets().filter(access)
    assert "s3cr3t" not in access.getMessage() and access.args and len(access.args) == 5


def test_other_paths_are_shown_unchanged() -> None:
    for path in ("/projects/7/invitations/12/again/", "/tasks/7/", "/password/reset/sent/"):
        shown = Formatter("%(message)s").format(record("Forbidden: %s", path))
        assert shown == f"Forbidden: {path}"


def test_the_log_of_a_portal_is_written_so() -> None:
    assert any(isinstance(handler.formatter, Formatter) for handler in logging.getLogger().handlers)
    for name in ("asyncio", "uvicorn.error", "django.security.csrf"):
        assert any(isinstance(one, Seldom) for one in logging.getLogger(name).filters), name
