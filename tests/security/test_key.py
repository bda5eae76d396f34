"""The API key against an agent that has a run token of its own (R4)."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from tasks_app.agent.proxy import ApiKeyProxy


@pytest.fixture
def upstream() -> Iterator[socket.socket]:
    """Where requests are sent on to; as a company's proxy, it would take them to any host."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(0)
        yield listening


@pytest.fixture
def proxy(upstream: socket.socket) -> Iterator[ApiKeyProxy]:
    running = ApiKeyProxy(api_key="sk-real", upstream=f"http://127.0.0.1:{upstream.getsockname()[1]}")
    running.start()
    yield running
    running.stop()


@pytest.mark.parametrize(
    "target",
    [
        "http://evil.example/v1/messages",
        "//evil.example/v1/messages",
        "/v1/messages/../../admin",
        "/v1/messages#@evil.example/",
        "/v1/%6dessages",
        "*",
    ],
)
def test_the_key_goes_to_no_other_address(target: str, proxy: ApiKeyProxy, upstream: socket.socket) -> None:
    with proxy.run_token() as (token, _):
        status = ask(
            proxy, f"POST {target} HTTP/1.1\r\nhost: x\r\nx-api-key: {token}\r\ncontent-length: 2\r\n\r\n{{}}"
        )
    assert status == 403
    with pytest.raises(BlockingIOError):
        upstream.accept()


@pytest.mark.parametrize("length", ["²", "-1", "1e9", "99999999999999", ""])
def test_an_odd_length_is_refused_before_anything_is_read(length: str, proxy: ApiKeyProxy) -> None:
    with proxy.run_token() as (token, _):
        words = (
            f"POST /v1/messages HTTP/1.1\r\nhost: x\r\nx-api-key: {token}\r\ncontent-length: {length}\r\n\r\n"
        )
        assert ask(proxy, words) in (400, 411, 413)


def test_without_a_run_token_not_even_the_length_counts(proxy: ApiKeyProxy) -> None:
    assert (
        ask(proxy, "POST /v1/messages HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999999999\r\n\r\n") == 401
    )


def ask(proxy: ApiKeyProxy, request: str) -> int:
    place = urlsplit(proxy.url)
    with socket.create_connection((place.hostname, place.port), timeout=20) as connection:
        connection.sendall(request.encode("latin-1"))
        return int(b"".join(iter(lambda: connection.recv(4096), b"")).split()[1])
