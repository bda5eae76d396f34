"""The proxy's server: on loopback and on a Unix socket, in a thread of the worker.

A run is lent a token. While the run lasts, its requests are sent on to the few addresses that an agent
needs, with the real key, and answers stream back. Bodies are never held: each is passed on as it comes, but
for its last piece, which waits until the whole request was looked at.
"""

from __future__ import annotations

import asyncio
import atexit
import json
import logging
import secrets
import shutil
import socket
import tempfile
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, MutableMapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from tasks_app.agent.proxy.meter import Exchange, Refused, RunLimits, RunMeter
from tasks_app.agent.proxy.request_reader import BadRequestBody, RequestReader
from tasks_app.agent.proxy.response_reader import ResponseReader

logger = logging.getLogger(__name__)

DEFAULT_UPSTREAM = "https://api.anthropic.com"
MESSAGES = "/v1/messages"
PATHS = (MESSAGES, "/v1/messages/count_tokens")
#: The header that names the run where the CLI holds the credentials itself.
RUN_HEADER = "x-cat-herder-run"
REQUEST_BYTES = 64 * 1024 * 1024
#: Seconds without a byte; the model may think for minutes before its first one.
UPSTREAM_SECONDS = 900.0
CONNECT_SECONDS = 30.0
#: Seconds for which a sandboxed process may keep a connection waiting for its next byte, or for taking one.
CLIENT_SECONDS = 60.0
#: Requests of one run that are under way at once, and that wait for their turn.
PER_RUN = 4
WAITING_PER_RUN = 12
#: Requests of all runs of this process that are under way at once.
PER_PROCESS = 32
#: Open connections: each takes a file descriptor of the worker.
CONNECTIONS = 256
OWN_HEADERS = {
    "host",
    "x-api-key",
    "content-length",
    "content-encoding",
    "connection",
    "transfer-encoding",
    "accept-encoding",
    "expect",
    RUN_HEADER,
}
HOP_HEADERS = {"connection", "transfer-encoding", "keep-alive", "content-length"}

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


@dataclass
class _Run:
    """A run that holds a token."""

    meter: RunMeter
    places: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(PER_RUN))
    waiting: int = 0
    settled: asyncio.Event = field(default_factory=asyncio.Event)


class ApiKeyProxy:
    """Start it once in a process; `run_token` gives each run a token of its own.

    Without an API key the requests' own `authorization` is passed on: then the agent holds the token of a
    login itself, and the proxy only counts and limits what is sent through it.
    """

    def __init__(self, *, api_key: str = "", upstream: str = "") -> None:
        self._api_key = api_key
        self._upstream = (upstream or DEFAULT_UPSTREAM).rstrip("/")
        self._runs: dict[str, _Run] = {}
        self._places = asyncio.Semaphore(PER_PROCESS)
        self._client: httpx2.AsyncClient | None = None
        self._folder = _folder_for_socket()
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=128)
        self._local = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._local.bind(str(self.socket_path))
        self._local.listen(128)
        self._port = int(self._listening.getsockname()[1])
        self._server = _Server(_config(self._answer), self._close)
        self._thread = threading.Thread(target=self._serve, name="api-key-proxy", daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def socket_path(self) -> Path:
        """The same service as a Unix socket, for sandboxes without a network."""
        return self._folder / "model.sock"

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join()
        shutil.rmtree(self._folder, ignore_errors=True)

    @contextmanager
    def run_token(self, limits: RunLimits | None = None) -> Iterator[tuple[str, RunMeter]]:
        """A token that is good until the context ends, and the counts of what is done with it."""
        token = f"cat-herder-{secrets.token_urlsafe(24)}"
        run = _Run(RunMeter(limits or RunLimits()))
        self._runs[token] = run
        try:
            yield token, run.meter
        finally:
            del self._runs[token]

    def _serve(self) -> None:
        self._server.run(sockets=[self._listening, self._local])

    def _run_of(self, headers: Mapping[str, str]) -> _Run | None:
        bearer = headers.get("authorization", "").removeprefix("Bearer ")
        shown = headers.get(RUN_HEADER) or headers.get("x-api-key") or bearer
        for token, run in tuple(self._runs.items()):
            if secrets.compare_digest(shown.encode(), token.encode()):
                return run
        return None

    async def _answer(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """One request of an agent, as an ASGI application."""
        reply = _Reply(send)
        try:
            if scope["method"] in ("HEAD", "GET"):  # the CLI warms its connection up with this
                await reply.error(200, "", "")
            else:
                await self._take(scope, _Incoming(receive), reply)
        except Refused as refusal:
            await reply.error(refusal.status, refusal.kind, str(refusal))
        except BadRequestBody as error:
            await reply.error(400, "invalid_request_error", str(error))
        except TimeoutError:
            await reply.error(408, "timeout_error", "The rest of the request did not come.")
        except (OSError, httpx2.HTTPError) as error:
            await reply.error(
                502, "api_error", f"The model cannot be reached: {error or type(error).__name__}"
            )
        except _HungUp:
            pass
        except Exception:
            logger.exception("the API key proxy failed on a request")
            await reply.error(500, "api_error", "The API key proxy failed on this request.")

    async def _take(self, scope: Mapping[str, Any], incoming: _Incoming, reply: _Reply) -> None:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        run = self._run_of(headers)
        # As it was sent, to the letter: a whole URL in its place would send the key to any host.
        path = scope["raw_path"].decode("latin-1")
        if run is None:
            raise Refused(401, "authentication_error", "This run token is not, or no longer, valid.")
        if scope["method"] != "POST" or path not in PATHS:
            raise Refused(403, "permission_error", f"Agents may not use {path[:200]}.")
        _check_length(headers)
        query = scope["query_string"].decode("latin-1")
        target = f"{self._upstream}{path}{'?' if query else ''}{query}"
        async with self._turn(run):
            sending = asyncio.ensure_future(self._send_on(run, target, headers, incoming, reply))
            await _unless_hung_up(sending, incoming)

    @asynccontextmanager
    async def _turn(self, run: _Run) -> AsyncIterator[None]:
        """Few requests at once: the others wait, and some are turned away."""
        if run.waiting >= WAITING_PER_RUN:
            raise Refused(529, "overloaded_error", f"This run has {PER_RUN + WAITING_PER_RUN} requests open.")
        run.waiting += 1
        try:
            await run.places.acquire()
        finally:
            run.waiting -= 1
        try:
            async with self._places:
                yield
        finally:
            run.places.release()

    async def _send_on(
        self, run: _Run, target: str, headers: Mapping[str, str], incoming: _Incoming, reply: _Reply
    ) -> None:
        exchange: Exchange | None = None
        counted = target.partition("?")[0].endswith(MESSAGES)

        async def body() -> AsyncIterator[bytes]:
            nonlocal exchange
            request, held = RequestReader(), b""
            async for piece in incoming.body():
                request.feed(piece)
                if held:
                    yield held
                held = piece
            request.finish()
            exchange = await _admitted(run, request)
            if not counted:
                exchange.sent = False
            yield held

        try:
            async with self._upstream_client().stream(
                "POST", target, headers=self._headers(headers), content=body()
            ) as response:
                if exchange is None and response.status_code == 200:  # an answer to half a request
                    raise Refused(502, "api_error", "The model answered before it had the request.")
                await _pass_on(response, run.meter, exchange if counted else None, reply)
        except httpx2.HTTPError:
            if exchange is not None:
                exchange.sent = False
            raise
        finally:
            if exchange is not None:
                run.meter.settle(exchange)
            run.settled.set()
            run.settled.clear()

    def _headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        own = {name: value for name, value in headers.items() if name not in OWN_HEADERS}
        if self._api_key:
            own.pop("authorization", None)
            own["x-api-key"] = self._api_key
        if "content-length" in headers:
            own["content-length"] = headers["content-length"]
        # What is compressed cannot be counted.
        return {**own, "accept-encoding": "identity"}

    async def _close(self) -> None:
        if self._client is not None:
            await self._client.aclose()

    def _upstream_client(self) -> httpx2.AsyncClient:
        """Made in the loop that uses it. HTTPS_PROXY and the like do not count: the key goes to one host."""
        if self._client is None:
            timeout = httpx2.Timeout(UPSTREAM_SECONDS, connect=CONNECT_SECONDS)
            limits = httpx2.Limits(max_connections=PER_PROCESS, max_keepalive_connections=8)
            self._client = httpx2.AsyncClient(timeout=timeout, limits=limits, trust_env=False)
        return self._client


def _folder_for_socket() -> Path:
    """A folder of this process, removed when it ends. A socket's whole path must have at most 107 bytes."""
    usual = tempfile.gettempdir()
    folder = Path(tempfile.mkdtemp(prefix="cat-herder-model-", dir=usual if len(usual) < 60 else "/tmp"))  # noqa: S108
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


async def _admitted(run: _Run, request: RequestReader) -> Exchange:
    while (exchange := run.meter.admit(request)) is None:
        await run.settled.wait()
    return exchange


async def _pass_on(
    response: httpx2.Response, meter: RunMeter, exchange: Exchange | None, reply: _Reply
) -> None:
    if response.status_code == 429:
        meter.note_limit(dict(response.headers))
    reader = ResponseReader(response.headers.get("content-type", ""))
    if exchange is not None and response.status_code == 200:
        exchange.response = reader
    elif exchange is not None:
        exchange.sent = False  # a request that the model refused costs nothing
    headers = [
        (name, value) for name, value in response.headers.raw if name.decode().lower() not in HOP_HEADERS
    ]
    await reply.begin(response.status_code, headers)
    async for piece in response.aiter_raw():
        reader.feed(piece)
        await reply.more(piece)
    reader.finish()
    await reply.end()


async def _unless_hung_up(sending: asyncio.Future[None], incoming: _Incoming) -> None:
    """Wait for the exchange, and end it when the agent hangs up: what nobody reads need not be written."""
    gone: asyncio.Future[Any] = asyncio.ensure_future(incoming.gone.wait())
    watching = asyncio.ensure_future(incoming.watch())
    try:
        both: set[asyncio.Future[Any]] = {sending, gone}
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if not sending.done():
            raise _HungUp
        await sending
    finally:
        for task in (sending, gone, watching):
            task.cancel()
        await asyncio.gather(sending, gone, watching, return_exceptions=True)


class _HungUp(Exception):
    """The agent closed its connection."""


class _Incoming:
    """The body of a request, and afterwards the news that the agent has hung up."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._whole = asyncio.Event()
        self.gone = asyncio.Event()

    async def body(self) -> AsyncIterator[bytes]:
        """The pieces as they come. Raises TimeoutError, and Refused for a body that is too large."""
        size, more = 0, True
        while more:
            async with asyncio.timeout(CLIENT_SECONDS):
                message = await self._receive()
            if message["type"] == "http.disconnect":
                self.gone.set()
                raise _HungUp
            piece = message.get("body", b"")
            size += len(piece)
            if size > REQUEST_BYTES:
                raise Refused(413, "request_too_large", "The request is too large.")
            more = message.get("more_body", False)
            if piece:
                yield piece
        self._whole.set()

    async def watch(self) -> None:
        await self._whole.wait()
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.gone.set()


class _Reply:
    """What the agent is answered. Its connection ends with it: none stays open without a request."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._begun = False

    async def begin(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self._begun = True
        headers = [*headers, (b"connection", b"close")]
        await self._put({"type": "http.response.start", "status": status, "headers": headers})

    async def more(self, piece: bytes) -> None:
        await self._put({"type": "http.response.body", "body": piece, "more_body": True})

    async def end(self) -> None:
        await self._put({"type": "http.response.body", "body": b"", "more_body": False})

    async def error(self, status: int, kind: str, message: str) -> None:
        """Send an error as the Messages API words it. An answer that has begun is cut instead."""
        if self._begun:
            return
        fault = {"type": "error", "error": {"type": kind, "message": message}}
        body = json.dumps(fault).encode() if message else b""
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        with suppress(TimeoutError):
            await self.begin(status, headers)
            await self._put({"type": "http.response.body", "body": body, "more_body": False})

    async def _put(self, message: MutableMapping[str, Any]) -> None:
        async with asyncio.timeout(CLIENT_SECONDS):
            await self._send(message)


def _check_length(headers: Mapping[str, str]) -> None:
    length = headers.get("content-length", "")
    if headers.get("content-encoding", "identity") != "identity":
        raise Refused(415, "invalid_request_error", "Requests must not be compressed.")
    if length and int(length) > REQUEST_BYTES:
        raise Refused(413, "request_too_large", "The request is too large.")
    if length and "transfer-encoding" in headers:  # two lengths can be read two ways
        raise Refused(400, "invalid_request_error", "The request must say in one way how long it is.")
    if not length and "transfer-encoding" not in headers:
        raise Refused(411, "invalid_request_error", "The request must say how long it is.")


class _Protocol(H11Protocol):
    """uvicorn's own, with a bound on connections and on the time that one may stay silent."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.logger = _quiet  # what an application leaves unfinished is cut on purpose here
        self.access_log = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._began = self.loop.time()
        self._silent = self.loop.call_later(CLIENT_SECONDS, self._give_up)
        if len(self.connections) > CONNECTIONS:
            self._longest_silent().transport.close()

    def _longest_silent(self) -> _Protocol:
        """The connection that has waited longest without a request, else this one.

        Turning away the newest would let one agent keep all others from their model.
        """
        own: list[_Protocol] = [one for one in self.connections if isinstance(one, _Protocol)]
        silent = [one for one in own if one.cycle is None and not one.transport.is_closing()]
        return min(silent, key=lambda one: one._began, default=self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._silent.cancel()
        super().connection_lost(exc)

    def _give_up(self) -> None:
        if self.cycle is None:
            self.transport.close()


class _Server(uvicorn.Server):
    """uvicorn's own, which closes the connections to the model as well when it ends."""

    def __init__(self, config: uvicorn.Config, close: Callable[[], Awaitable[None]]) -> None:
        super().__init__(config)
        self._close = close

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        await self._close()


_quiet = logging.getLogger(f"{__name__}.http")
_quiet.setLevel(logging.CRITICAL + 1)


def _config(application: Any) -> uvicorn.Config:
    return uvicorn.Config(
        application,
        interface="asgi3",
        http=_Protocol,
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
