"""The proxy's server: on loopback and on a Unix socket, in a thread of the worker.

Each run gets a token. During the run, its requests are sent on to the few paths that an agent needs, with
the real key, and responses stream back. Bodies are never held as a whole: each piece is passed on as it
arrives, except the last one, which waits until the whole request was checked. Spans of a traced run are for
the portal.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import secrets
import socket
import tempfile
import threading
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, MutableMapping
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2

from tasks_app.agent.notices import REFUSED
from tasks_app.agent.proxy.connections import (
    HungUp,
    Incoming,
    LimitedServer,
    Receive,
    Reply,
    Send,
    check_length,
)
from tasks_app.agent.proxy.meter import Exchange, Refused, RunLimits, RunMeter
from tasks_app.agent.proxy.readers import BadRequestBody, RequestReader, ResponseReader
from tasks_app.core.files import temporary_folder

if TYPE_CHECKING:
    from tasks_app.agent.proxy.spans import RunSpans

logger = logging.getLogger(__name__)

DEFAULT_UPSTREAM = "https://api.anthropic.com"
MESSAGES = "/v1/messages"
PATHS = (MESSAGES, "/v1/messages/count_tokens")
#: Where a run that is traced may send spans (OTLP).
TRACES = "/v1/traces"
#: Largest body of a request with spans: Claude Code sends at most 512 at once, of about 750 bytes each.
SPANS_BYTES = 1024 * 1024
#: Requests with spans of one run that may be open at once, and seconds that one may take to arrive.
SPANS_PER_RUN = 4
SPANS_SECONDS = 10.0
#: The header that identifies the run if the CLI holds the credentials itself.
RUN_HEADER = "x-cat-herder-run"
#: The prefix of the folder with the socket of a process.
SOCKET_FOLDER = "cat-herder-model-"
#: The headers in which Claude Code names its session, and the sub-agent that makes the request.
SESSION_HEADER = "x-claude-code-session-id"
SUBAGENT_HEADER = "x-claude-code-agent-id"
#: Seconds without a byte; the model may think for minutes before its first one.
UPSTREAM_SECONDS = 900.0
CONNECT_SECONDS = 30.0
#: How often a request that waits for others to settle looks whether there is more to spend.
LOOK_SECONDS = 5.0
#: Requests of one run that may be open at once, and that may wait.
PER_RUN = 4
WAITING_PER_RUN = 12
#: Requests of all runs of this process that may be open at once.
PER_PROCESS = 32
#: Request headers that the proxy sets itself or must not send on.
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
#: Response headers that concern one connection only.
HOP_HEADERS = {"connection", "transfer-encoding", "keep-alive", "content-length"}


@dataclass
class _Run:
    """A run that holds a token. `spans` takes its spans, if the run is traced."""

    meter: RunMeter
    spans: RunSpans | None = None
    slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(PER_RUN))
    waiting: int = 0
    taking_spans: int = 0


class ApiKeyProxy:
    """The proxy of this process. Start it once; `run_token` gives each run a token of its own.

    Without an API key the requests' own `authorization` is passed on. Then the agent holds the token of a
    login itself, and the proxy only counts and limits its requests. With `free` a script plays the model, and
    requests cost nothing.
    """

    def __init__(self, *, api_key: str = "", upstream: str = "", free: bool = False) -> None:
        self._api_key = api_key
        self._free = free
        self._upstream = (upstream or DEFAULT_UPSTREAM).rstrip("/")
        self._runs: dict[str, _Run] = {}
        self._slots = asyncio.Semaphore(PER_PROCESS)
        self._settled = asyncio.Event()
        self._client: httpx2.AsyncClient | None = None
        self._open = ExitStack()
        usual = tempfile.gettempdir()  # the path of a socket may have at most 107 bytes
        parent = Path(usual if len(usual) < 60 else "/tmp")  # noqa: S108
        self._folder = self._open.enter_context(temporary_folder(SOCKET_FOLDER, parent=parent))
        atexit.register(self._open.close)
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=128)
        self._local = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._local.bind(str(self.socket_path))
        self._local.listen(128)
        self._port = int(self._listening.getsockname()[1])
        self._server = LimitedServer(self._answer, close=self._close_client)
        serve = partial(self._server.run, sockets=[self._listening, self._local])
        self._thread = threading.Thread(target=serve, name="api-key-proxy", daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def socket_path(self) -> Path:
        """The Unix socket of the proxy, for sandboxes without a network."""
        return self._folder / "model.sock"

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join()
        self._open.close()

    @contextmanager
    def run_token(
        self,
        limits: RunLimits | None = None,
        spans: RunSpans | None = None,
        budgets: Iterable[str] = (),
    ) -> Iterator[tuple[str, RunMeter]]:
        """Yield a token that is valid until the context ends, and the meter of its requests.

        Without `spans` the run may send no spans. Runs with one of the same `budgets` share its dollars.
        """
        token = f"cat-herder-{secrets.token_urlsafe(24)}"
        meter = RunMeter(
            limits or RunLimits(), free=self._free, budgets=frozenset(budgets), all_meters=self._meters
        )
        run = _Run(meter, spans)
        self._runs[token] = run
        try:
            yield token, run.meter
        finally:
            del self._runs[token]

    def _meters(self) -> list[RunMeter]:
        return [run.meter for run in tuple(self._runs.values())]

    def _find_run(self, headers: Mapping[str, str]) -> _Run | None:
        bearer = headers.get("authorization", "").removeprefix("Bearer ")
        shown = headers.get(RUN_HEADER) or headers.get("x-api-key") or bearer
        for token, run in tuple(self._runs.items()):
            if secrets.compare_digest(shown.encode(), token.encode()):
                return run
        return None

    async def _answer(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request of an agent, as an ASGI application."""
        reply = Reply(send)
        try:
            if scope["method"] in ("HEAD", "GET"):  # the CLI opens its connection with this
                await reply.error(200, "", "")
            else:
                await self._forward_if_allowed(scope, Incoming(receive), reply)
        except Refused as refusal:
            await reply.error(refusal.status, refusal.kind, f"{REFUSED}{refusal}")
        except BadRequestBody as error:
            await reply.error(400, "invalid_request_error", str(error))
        except TimeoutError:
            await reply.error(408, "timeout_error", "The rest of the request did not come.")
        except (OSError, httpx2.HTTPError) as error:
            await reply.error(
                502, "api_error", f"The model cannot be reached: {error or type(error).__name__}"
            )
        except HungUp:
            pass
        except Exception:
            logger.exception("the API key proxy failed on a request")
            await reply.error(500, "api_error", "The API key proxy failed on this request.")

    async def _forward_if_allowed(self, scope: Mapping[str, Any], incoming: Incoming, reply: Reply) -> None:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        run = self._find_run(headers)
        # Use exactly what was sent: with a whole URL as path the key would be sent to any host.
        path = scope["raw_path"].decode("latin-1")
        if run is None:
            raise Refused(401, "authentication_error", "This run token is not, or no longer, valid.")
        if scope["method"] == "POST" and path == TRACES and run.spans is not None:
            await _take_spans(run, run.spans, headers, incoming, reply)
            return
        if scope["method"] != "POST" or path not in PATHS:
            raise Refused(403, "permission_error", f"Agents may not use {path[:200]}.")
        check_length(headers)
        query = scope["query_string"].decode("latin-1")
        target = f"{self._upstream}{path}{'?' if query else ''}{query}"
        async with self._slot(run):
            sending = asyncio.ensure_future(self._forward(run, target, headers, incoming, reply))
            await incoming.wait_for_end(sending)

    @asynccontextmanager
    async def _slot(self, run: _Run) -> AsyncIterator[None]:
        """Wait until few enough requests are open. Refuse the request if too many wait already."""
        if run.waiting >= WAITING_PER_RUN:
            raise Refused(529, "overloaded_error", f"This run has {PER_RUN + WAITING_PER_RUN} requests open.")
        run.waiting += 1
        try:
            await run.slots.acquire()
        finally:
            run.waiting -= 1
        try:
            async with self._slots:
                yield
        finally:
            run.slots.release()

    async def _forward(
        self, run: _Run, target: str, headers: Mapping[str, str], incoming: Incoming, reply: Reply
    ) -> None:
        exchange: Exchange | None = None
        is_counted = target.partition("?")[0].endswith(MESSAGES)

        async def body() -> AsyncIterator[bytes]:
            nonlocal exchange
            request, held = RequestReader(calls=run.meter.awaited), b""
            async for piece in incoming.body():
                request.feed(piece)
                if held:
                    yield held
                held = piece
            request.finish()
            run.meter.check_answers(
                request,
                session_id=headers.get(SESSION_HEADER, ""),
                by_subagent=SUBAGENT_HEADER in headers,
                asks_model=is_counted,
            )
            while (exchange := run.meter.admit(request)) is None:
                with suppress(TimeoutError):  # the budget may have been raised
                    await asyncio.wait_for(self._settled.wait(), LOOK_SECONDS)
            if not is_counted:
                exchange.sent = False
            yield held

        try:
            async with self._upstream_client().stream(
                "POST", target, headers=self._upstream_headers(headers), content=body()
            ) as response:
                if exchange is None and response.status_code == 200:  # a response to half a request
                    raise Refused(502, "api_error", "The model answered before it had the request.")
                await _pass_on(response, run.meter, exchange if is_counted else None, reply)
        except httpx2.HTTPError:
            if exchange is not None:
                exchange.sent = False
            raise
        finally:
            if exchange is not None:
                run.meter.settle(exchange)
            self._settled.set()
            self._settled.clear()

    def _upstream_headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        kept = {name: value for name, value in headers.items() if name not in OWN_HEADERS}
        if self._api_key:
            kept.pop("authorization", None)
            kept["x-api-key"] = self._api_key
        if "content-length" in headers:
            kept["content-length"] = headers["content-length"]
        # Usage in a compressed response could not be counted.
        return {**kept, "accept-encoding": "identity"}

    async def _close_client(self) -> None:
        if self._client is not None:
            await self._client.aclose()

    def _upstream_client(self) -> httpx2.AsyncClient:
        """Return the client, made in the loop that uses it.

        It ignores HTTPS_PROXY and similar variables, because the key must go to one host only.
        """
        if self._client is None:
            timeout = httpx2.Timeout(UPSTREAM_SECONDS, connect=CONNECT_SECONDS)
            limits = httpx2.Limits(max_connections=PER_PROCESS, max_keepalive_connections=8)
            self._client = httpx2.AsyncClient(timeout=timeout, limits=limits, trust_env=False)
        return self._client


async def _take_spans(
    run: _Run, spans: RunSpans, headers: Mapping[str, str], incoming: Incoming, reply: Reply
) -> None:
    """Answer without a slot for requests to the model: an agent's program waits for it when it exits.

    Few may be open, and only for a short time: otherwise one run could use up the connections of all.
    """
    spans.charge(0)
    check_length(headers, SPANS_BYTES)
    if run.taking_spans >= SPANS_PER_RUN:
        sentence = f"This run has {SPANS_PER_RUN} requests with spans open."
        raise Refused(400, "invalid_request_error", sentence)  # an exporter would repeat it after a 429
    body = bytearray()
    run.taking_spans += 1
    try:
        async with asyncio.timeout(SPANS_SECONDS):
            async for piece in incoming.body(SPANS_BYTES):
                spans.charge(len(piece))
                body += piece
    finally:
        run.taking_spans -= 1
    response = spans.take(bytes(body))
    length = str(len(response)).encode()
    await reply.begin(200, [(b"content-type", b"application/x-protobuf"), (b"content-length", length)])
    await reply.send(response, more=False)


async def _pass_on(
    response: httpx2.Response, meter: RunMeter, exchange: Exchange | None, reply: Reply
) -> None:
    """Stream the response to the agent while reading what it used."""
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
        if exchange is not None and not reader.complete:
            meter.check_run_limit()  # the model stops when nobody reads, and what it would say costs nothing
        await reply.send(piece)
    reader.finish()
    await reply.send(b"", more=False)
