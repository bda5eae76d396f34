"""From where a request comes is what the connection says, or a proxy that was named (R4)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
import requests

from tasks_app.asgi_layers import sandboxed_peers
from tasks_app.asgi_layers.proxies import ForwardedClients
from tasks_app.asgi_layers.sandboxed_peers import (
    RefuseForwardedSandboxes,
    RefuseTokensFromWorkers,
    SandboxGuard,
)
from tests.portal import WebServer

OPTIONS = "from tasks_app.management.commands import up; result = up.server_options()"
FAILED = (
    "result = list(AuditEntry.objects.filter(action='login_failed').values_list('ip_address', flat=True))"
)


def addresses_of_failed_logins(portal: WebServer) -> list[str]:
    browser = requests.Session()
    page = f"http://{portal.address}/login/"
    browser.get(page, timeout=60)
    given = {"username": "ann", "password": "wrong", "csrfmiddlewaretoken": browser.cookies["csrftoken"]}
    for number in range(2):
        browser.post(page, given, headers={"X-Forwarded-For": f"192.0.2.{number}"}, timeout=60)
    found: list[str] = portal.rows(FAILED)
    return sorted(found)


@pytest.mark.parametrize(
    ("named", "seen"),
    [("", ["127.0.0.1", "127.0.0.1"]), ("127.0.0.1", ["192.0.2.0", "192.0.2.1"])],
    ids=["none is named", "this machine is named"],
)
def test_only_a_proxy_that_was_named_says_whose_request_it_is(
    named: str, seen: list[str], tmp_path: Path
) -> None:
    """Else an agent on this machine could try passwords from as many addresses as it likes."""
    portal = WebServer(tmp_path, CATHERDER_PROXY=named)
    portal.start(*portal.rows(OPTIONS))
    try:
        assert addresses_of_failed_logins(portal) == seen
    finally:
        portal.stop()


TRUSTED = [ip_network("10.0.0.0/8"), ip_network("::1/128")]


def passed_on(client: str, *headers: tuple[str, str], kind: str = "http") -> dict[str, Any]:
    """What the application gets of a request by `client` with these headers."""
    got: dict[str, Any] = {}

    async def application(scope: dict[str, Any], *_: Any) -> None:
        got.update(scope)

    raw = [(name.encode(), value.encode("latin-1")) for name, value in headers]
    scope = {"type": kind, "scheme": kind[:4].replace("webs", "ws"), "client": (client, 7), "headers": raw}
    entry = ForwardedClients(application, networks=TRUSTED)
    asyncio.run(entry(scope, None, None))  # type: ignore[arg-type]
    return got


@pytest.mark.parametrize(
    ("named", "seen"),
    [
        (["192.0.2.1"], "192.0.2.1"),
        (["6.6.6.6, 192.0.2.1"], "192.0.2.1"),
        (["6.6.6.6, 192.0.2.1, 10.2.0.1"], "192.0.2.1"),
        (["6.6.6.6", "192.0.2.1"], "192.0.2.1"),
        (["10.3.0.1, 10.2.0.1"], "10.3.0.1"),
        (["192.0.2.1:8080"], "192.0.2.1"),
        (["[2001:db8::1]:80"], "2001:db8::1"),
        (["::ffff:192.0.2.1"], "192.0.2.1"),
        (["192.0.2.1, <script>"], "10.0.0.1"),
        (["192.0.2.1, <script>, 10.2.0.1"], "10.2.0.1"),
        ([""], "10.0.0.1"),
        ([], "10.0.0.1"),
    ],
)
def test_the_client_is_the_nearest_that_no_trusted_proxy_is(named: Sequence[str], seen: str) -> None:
    headers = [("x-forwarded-for", one) for one in named]
    assert passed_on("10.0.0.1", *headers)["client"][0] == seen


@pytest.mark.parametrize(
    ("kind", "told", "scheme"),
    [
        ("http", ["https"], "https"),
        ("websocket", ["https"], "wss"),
        ("http", ["nonsense"], "http"),
        ("http", ["https", "http"], "http"),
        ("http", [], "http"),
    ],
)
def test_a_trusted_proxy_says_whether_it_was_asked_by_https(kind: str, told: list[str], scheme: str) -> None:
    headers = [("x-forwarded-proto", one) for one in told]
    assert passed_on("::1", *headers, kind=kind)["scheme"] == scheme


def test_nobody_else_gets_a_header_of_proxies_through() -> None:
    """Django itself reads X-Forwarded-Proto behind https, whoever sent it."""
    names = ("X-Forwarded-For", "x-forwarded-proto", "X-Forwarded-Host", "Forwarded", "X-Real-IP")
    got = passed_on("192.0.2.9", *((name, "https") for name in names), ("accept", "*/*"))
    assert got["headers"] == [(b"accept", b"*/*")]
    assert (got["client"], got["scheme"]) == (("192.0.2.9", 7), "http")


@pytest.mark.parametrize(
    ("header", "status"),
    [
        ("127.0.0.1", 403),
        ("8.8.8.8, 127.0.0.1", 403),
        ("8.8.8.8, 127.0.0.1, 127.0.0.2", 403),
        (", ".join(["192.0.2.7", *["127.0.0.3"] * 3_000]), 403),
        ("127.0.0.1, 8.8.8.8", 200),
        ("8.8.8.8", 200),
    ],
)
def test_an_agent_is_refused_behind_a_proxy_that_appends_to_its_header(
    header: str, status: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As nginx does with `$proxy_add_x_forwarded_for`: the agent chooses what stands before its address."""
    monkeypatch.setattr(sandboxed_peers, "sandbox_is_active", lambda **_: True)
    sent: list[dict[str, Any]] = []

    async def page(scope: dict[str, Any], receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200})

    async def send(message: Any) -> None:
        sent.append(message)

    guarded = RefuseForwardedSandboxes(page, SandboxGuard(folder=tmp_path))
    entry = ForwardedClients(guarded, networks=[ip_network("127.0.0.0/8")])
    headers = [(b"x-forwarded-for", header.encode())]
    scope = {"type": "http", "scheme": "http", "client": ("127.0.0.1", 7), "headers": headers}
    asyncio.run(entry(scope, None, send))  # type: ignore[arg-type]
    assert sent[0]["status"] == status


TOKEN = (b"authorization", b"Bearer cath_x")


def through(proxy: str, header: str) -> dict[str, Any]:
    return {"client": (proxy, 7), "headers": [TOKEN, (b"x-forwarded-for", header.encode())]}


@pytest.mark.parametrize(
    ("request_of", "status"),
    [
        ({"client": ("192.0.2.7", 7), "headers": [TOKEN]}, 403),
        ({"client": ("::ffff:192.0.2.7", 7), "headers": [TOKEN]}, 403),
        ({"client": ("192.0.2.7", 7), "headers": [TOKEN, TOKEN]}, 403),
        (through("127.0.0.1", "192.0.2.7"), 403),
        (through("127.0.0.1", "8.8.8.8, 192.0.2.7"), 403),
        (through("192.0.2.7", "8.8.8.8"), 403),
        (through("127.0.0.1", "192.0.2.7, 8.8.8.8"), 200),
        ({"client": ("192.0.2.7", 7), "headers": [(b"cookie", b"sessionid=x")]}, 200),
        ({"client": ("192.0.2.8", 7), "headers": [TOKEN]}, 200),
        ({"client": ("127.0.0.1", 7), "headers": [TOKEN]}, 200),
    ],
)
def test_a_token_is_refused_from_the_address_of_a_machine_where_agents_work(
    request_of: dict[str, Any], status: int
) -> None:
    """A worker's machine may be in a network of trusted proxies, and its agents write what these would."""
    sent: list[dict[str, Any]] = []

    async def page(scope: dict[str, Any], receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200})

    async def send(message: Any) -> None:
        sent.append(message)

    async def addresses() -> set[str]:
        return {"192.0.2.7", "127.0.0.1"}

    guarded = RefuseTokensFromWorkers(page, addresses)
    entry = ForwardedClients(guarded, networks=[ip_network("127.0.0.0/8"), ip_network("192.0.2.7/32")])
    asyncio.run(entry({"type": "http", "scheme": "http", **request_of}, None, send))  # type: ignore[arg-type]
    assert sent[0]["status"] == status


def test_requests_that_wait_share_a_look_at_the_processes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A flood took minutes, each with a look of its own. For each counts one that began after it came."""
    began: list[int] = []
    release = threading.Event()

    def look(**_: object) -> bool:
        began.append(len(asked))
        assert release.wait(30)
        return False

    asked: list[asyncio.Task[bool]] = []
    monkeypatch.setattr(sandboxed_peers, "sandbox_is_active", look)

    async def flood() -> list[bool]:
        guard = SandboxGuard(folder=tmp_path)

        async def ask(times: int) -> None:
            asked.extend(asyncio.create_task(guard.refuses_address("127.0.0.1")) for _ in range(times))
            await asyncio.sleep(0)

        await ask(1)
        while not began:
            await asyncio.sleep(0.01)
        await ask(500)
        asked[3].cancel()  # its client has left
        release.set()
        return [await one for number, one in enumerate(asked) if number != 3]

    assert asyncio.run(flood()) == [False] * 500
    assert began == [1, 501]
