"""The key keeper: agents talk to the model through it, and never see the API key.

A small proxy on loopback, in the worker. A run is lent a pass; while the run lasts, requests that carry
the pass are sent on with the real key, to the few addresses that an agent needs, and answers stream back.
"""

from __future__ import annotations

import http.client
import json
import logging
import secrets
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast
from urllib.parse import SplitResult, urlsplit

from tasks_app.agents.resets import reset_time

logger = logging.getLogger(__name__)

DEFAULT_UPSTREAM = "https://api.anthropic.com"
PATHS = ("/v1/messages", "/v1/messages/count_tokens")
REQUEST_BYTES = 64 * 1024 * 1024
#: Seconds without a byte; the model may think for minutes before its first one.
UPSTREAM_SECONDS = 900
#: Seconds for which a guest may keep a thread waiting for its next byte, or for taking one.
GUEST_SECONDS = 60
CHUNK = 65_536
OWN_HEADERS = {
    "host",
    "x-api-key",
    "authorization",
    "content-length",
    "connection",
    "transfer-encoding",
    "accept-encoding",
}
HOP_HEADERS = {"connection", "transfer-encoding", "keep-alive", "content-length"}


@dataclass
class _Pass:
    """What a run was told with its last 429: when the limit resets, None if that was not said."""

    resets_at: datetime | None = None


class KeyKeeper:
    """Start it once in a process; `lend` gives each run a pass of its own."""

    def __init__(self, *, api_key: str, upstream: str = "") -> None:
        self._api_key = api_key
        self._upstream = urlsplit(upstream or DEFAULT_UPSTREAM)
        self._passes: dict[str, _Pass] = {}
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.keeper = self

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def start(self) -> None:
        threading.Thread(
            target=self._server.serve_forever, args=(0.1,), name="key-keeper", daemon=True
        ).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    @contextmanager
    def lend(self) -> Iterator[str]:
        """A pass that is good until the context ends."""
        lent = f"cat-herder-{secrets.token_urlsafe(24)}"
        self._passes[lent] = _Pass()
        try:
            yield lent
        finally:
            del self._passes[lent]

    def knows(self, shown: str) -> bool:
        return any(secrets.compare_digest(shown.encode(), lent.encode()) for lent in tuple(self._passes))

    def resets_at(self, lent: str) -> datetime | None:
        """When the limit that last stopped a request with this pass resets, in UTC; None if not known.

        The CLI does not pass this on in its messages. Nothing is known any more once the pass is no good.
        """
        held = self._passes.get(lent)
        return held.resets_at if held else None

    def note_limit(self, lent: str, headers: Mapping[str, str]) -> None:
        """Keep what a 429 says of its reset."""
        held = self._passes.get(lent)
        if held:  # the run may have ended meanwhile
            held.resets_at = reset_time(headers, now=datetime.now(UTC))

    @contextmanager
    def exchange(self, path: str, headers: dict[str, str], body: bytes) -> Iterator[http.client.HTTPResponse]:
        """Send a run's request on, with the key. Raises OSError or HTTPException."""
        connection = _connect(self._upstream)
        try:
            target = self._upstream.path.rstrip("/") + path
            connection.request("POST", target, body, {**headers, "x-api-key": self._api_key})
            yield connection.getresponse()
        finally:
            connection.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    keeper: KeyKeeper


def _connect(upstream: SplitResult) -> http.client.HTTPConnection:
    kind = http.client.HTTPSConnection if upstream.scheme == "https" else http.client.HTTPConnection
    return kind(upstream.hostname or "", upstream.port, timeout=UPSTREAM_SECONDS)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = GUEST_SECONDS

    def log_message(self, format: str, *args: Any) -> None:
        logger.debug(format, *args)

    def do_HEAD(self) -> None:
        """The CLI warms its connection up with this."""
        self._refuse(200, "")

    do_GET = do_HEAD

    def do_POST(self) -> None:
        self.close_connection = True
        keeper = cast(_Server, self.server).keeper
        shown = self.headers.get("x-api-key") or self.headers.get("authorization", "").removeprefix("Bearer ")
        length = self.headers.get("content-length", "")
        if not keeper.knows(shown):
            self._refuse(401, "This pass is not, or no longer, good for the model.")
        elif self.path.partition("?")[0] not in PATHS:
            # To the letter: a whole URL in its place would send the key through a proxy to any host.
            self._refuse(403, f"Agents may not use {self.path.partition('?')[0]}.")
        elif not (length.isascii() and length.isdigit()) or int(length) > REQUEST_BYTES:
            self._refuse(413, "The request is too large.")
        else:
            self._send_on(keeper, shown, int(length))

    def _send_on(self, keeper: KeyKeeper, lent: str, length: int) -> None:
        headers = {name: value for name, value in self.headers.items() if name.lower() not in OWN_HEADERS}
        body = self.rfile.read(length)
        try:
            with keeper.exchange(self.path, headers, body) as response:
                if response.status == 429:
                    keeper.note_limit(lent, dict(response.getheaders()))
                self._pass_on(response)
        except (OSError, http.client.HTTPException) as error:
            self._refuse(502, f"The model cannot be reached: {error}")

    def _pass_on(self, response: http.client.HTTPResponse) -> None:
        self.send_response(response.status)
        for name, value in response.getheaders():
            if name.lower() not in HOP_HEADERS:
                self.send_header(name, value)
        self.send_header("connection", "close")
        self.end_headers()
        with suppress(OSError, http.client.HTTPException):  # either side may hang up; the CLI tries again
            while chunk := response.read1(CHUNK):
                self.wfile.write(chunk)
                self.wfile.flush()

    def _refuse(self, status: int, message: str) -> None:
        kind = {401: "authentication_error", 403: "permission_error", 413: "request_too_large"}.get(
            status, "api_error"
        )
        body = (
            json.dumps({"type": "error", "error": {"type": kind, "message": message}}).encode()
            if message
            else b""
        )
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
