"""The key keeper (R4): an agent uses the model without ever seeing the API key."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tasks_app.agents.keykeeper import KeyKeeper, _Handler


class Upstream(ThreadingHTTPServer):
    """Stands where the Messages API would: answers in two pieces, the second when told to."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.seen: list[tuple[str, dict[str, str], bytes]] = []
        self.go_on = threading.Event()


class _Answer(BaseHTTPRequestHandler):
    server: Upstream

    def log_message(self, format: str, *args: Any) -> None: ...

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.seen.append((self.path, {k.lower(): v for k, v in self.headers.items()}, body))
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        self.wfile.write("data: ☃\n\n".encode())
        self.wfile.flush()
        self.server.go_on.wait(10)
        self.wfile.write(b"data: end\n\n")


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    server = Upstream()
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield server
    server.go_on.set()
    server.shutdown()
    server.server_close()


@pytest.fixture
def keeper(upstream: Upstream) -> Iterator[KeyKeeper]:
    keeper = KeyKeeper(api_key="sk-real", upstream=f"http://127.0.0.1:{upstream.server_port}/base")
    keeper.start()
    yield keeper
    keeper.stop()


@contextmanager
def posted(keeper: KeyKeeper, lent: str, path: str = "/v1/messages?beta=true") -> Iterator[HTTPResponse]:
    connection = HTTPConnection(keeper.url.removeprefix("http://"), timeout=10)
    connection.request("POST", path, b'{"a": 1}', {"x-api-key": lent, "anthropic-version": "2023-06-01"})
    with connection.getresponse() as response:
        yield response
    connection.close()


def post(keeper: KeyKeeper, lent: str, path: str = "/v1/messages?beta=true") -> tuple[int, bytes]:
    with posted(keeper, lent, path) as response:
        return response.status, response.read()


def test_a_request_with_a_pass_goes_on_with_the_real_key(keeper: KeyKeeper, upstream: Upstream) -> None:
    upstream.go_on.set()
    with keeper.lend() as lent:
        assert post(keeper, lent)[1] == "data: ☃\n\ndata: end\n\n".encode()
    path, headers, body = upstream.seen[0]
    assert path == "/base/v1/messages?beta=true"
    assert (headers["x-api-key"], headers["anthropic-version"]) == ("sk-real", "2023-06-01")
    assert json.loads(body) == {"a": 1}
    assert "sk-real" not in lent


def test_an_answer_streams_before_it_has_ended(keeper: KeyKeeper, upstream: Upstream) -> None:
    with keeper.lend() as lent, posted(keeper, lent) as response:
        assert response.read1(100) == "data: ☃\n\n".encode()  # the upstream has not sent the rest yet
        upstream.go_on.set()
        assert response.read() == b"data: end\n\n"


def test_a_pass_is_good_only_while_its_run_lasts(keeper: KeyKeeper, upstream: Upstream) -> None:
    with keeper.lend() as lent:
        pass
    status, body = post(keeper, lent)
    assert (status, json.loads(body)["error"]["type"]) == (401, "authentication_error")
    assert post(keeper, "sk-real")[0] == 401
    assert upstream.seen == []


def test_each_pass_has_the_reset_of_its_own_last_limit(keeper: KeyKeeper) -> None:
    """P8."""
    with keeper.lend() as lent, keeper.lend() as other:
        keeper.note_limit(lent, {"retry-after": "3600"})
        assert keeper.resets_at(lent) is not None
        assert keeper.resets_at(other) is None
        keeper.note_limit(lent, {})
        assert keeper.resets_at(lent) is None
    keeper.note_limit(lent, {"retry-after": "3600"})  # the answer to a run that has ended
    assert keeper.resets_at(lent) is None
    assert not keeper.knows(lent)


@pytest.mark.parametrize(
    "path", ["/v1/organizations/api_keys", "/v1/files", "/v1/models", "/v1/messages/../files", "//evil/"]
)
def test_only_the_addresses_that_an_agent_needs_are_reached(
    keeper: KeyKeeper, upstream: Upstream, path: str
) -> None:
    with keeper.lend() as lent:
        assert post(keeper, lent, path)[0] == 403
    assert upstream.seen == []


def test_an_unreachable_model_is_a_readable_error() -> None:
    keeper = KeyKeeper(api_key="sk-real", upstream="http://127.0.0.1:9")
    keeper.start()
    try:
        with keeper.lend() as lent:
            status, body = post(keeper, lent)
            assert status == 502
            assert "cannot be reached" in json.loads(body)["error"]["message"]
    finally:
        keeper.stop()


@pytest.mark.parametrize("sent", ["", "x-api-key: {lent}\r\ncontent-length: 60000000\r\n\r\n"])
def test_a_guest_that_never_says_the_rest_is_let_go(
    keeper: KeyKeeper, monkeypatch: pytest.MonkeyPatch, sent: str
) -> None:
    """R4: else each of its connections would hold a thread of the worker for ever."""
    assert _Handler.timeout == 60
    monkeypatch.setattr(_Handler, "timeout", 0.1)
    with keeper.lend() as lent, socket.create_connection(("127.0.0.1", keeper._server.server_port)) as guest:
        guest.settimeout(20)
        guest.sendall(b"POST /v1/messages HTTP/1.1\r\n" + sent.format(lent=lent).encode())
        assert guest.recv(100) == b""
