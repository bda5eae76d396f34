"""`/healthz` and `/readyz` (O1): for load balancers, without a login and without a secret."""

from __future__ import annotations

import asyncio
import threading
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
from asgiref.testing import ApplicationCommunicator
from django.db import connection
from django.test.utils import CaptureQueriesContext

from catherder_site.asgi import application
from tasks_app.asgi_layers import probes
from tasks_app.asgi_layers.probes import Probes, Readiness
from tasks_app.asgi_layers.proxies import ForwardedClients
from tasks_app.operations import health
from tasks_app.operations.doctor import Level, services
from tests.integration.worker_host import serving
from tests.portal import WebServer


class NoPage:
    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        raise AssertionError(f"{scope['path']} is a page")


async def asked(
    app: Any, path: str, method: str = "GET", **scope_values: Any
) -> tuple[int, str, dict[bytes, bytes]]:
    """Status, body and headers, as a probe that names the machine by its IP address gets them."""
    scope = {
        "type": "http", "method": method, "path": path, "headers": [(b"host", b"10.9.8.7:8000")],
        "query_string": b"", "client": None, "server": None, **scope_values,
    }  # fmt: skip
    there = ApplicationCommunicator(app, scope)
    await there.send_input({"type": "http.request", "body": b""})
    start = await there.receive_output(5)
    body = await there.receive_output(5)
    return start["status"], body["body"].decode(), dict(start["headers"])


def probes_with(look: Any) -> Probes:
    return Probes(NoPage(), readiness=Readiness(look))


async def test_a_living_process_is_healthy_whatever_the_database_does() -> None:
    status, body, headers = await asked(application, "/healthz")
    assert (status, body) == (200, "ok\n")
    assert headers[b"cache-control"] == b"no-store" and b"set-cookie" not in headers


async def test_a_proxy_that_is_not_trusted_is_told_so_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Strangers elsewhere can send the header themselves; so only one on this machine is logged."""
    forwarded = [(b"x-forwarded-for", b"192.0.2.7")]
    portal = ForwardedClients(probes_with(lambda: ()), networks=[ip_network("10.0.0.0/8")])
    for peer, headers, seen in [
        ("203.0.113.9", forwarded, b"203.0.113.9"),
        ("127.0.0.1", forwarded, b"127.0.0.1"),
        ("::1", forwarded, b"::1"),
        ("127.0.0.1", [], None),
        ("10.0.0.3", forwarded, None),
    ]:
        _, body, answered = await asked(portal, "/healthz", client=(peer, 7), headers=headers)
        assert (body, answered.get(b"x-ignored-proxy")) == ("ok\n", seen), peer
    (warning,) = caplog.messages
    assert "CATHERDER_PROXY=127.0.0.1" in warning


def test_doctor_sees_a_proxy_that_is_not_trusted(settings: Any) -> None:
    """It asks at the portal's URL; what the proxy adds tells the portal that there is one."""

    async def proxied(scope: Any, receive: Any, send: Any) -> None:
        added = (b"x-forwarded-for", b"192.0.2.7")
        scope = {**scope, "headers": [*scope["headers"], added]}
        await ForwardedClients(probes_with(lambda: ()), networks=())(scope, receive, send)

    with serving(proxied) as url:
        settings.ENVIRONMENT = settings.ENVIRONMENT.model_copy(update={"url": url})
        (found,) = services.web()
    assert (found.level, found.advice) == (Level.WARNING, "Set CATHERDER_PROXY=127.0.0.1.")


async def test_head_has_the_headers_alone_and_nothing_can_be_posted() -> None:
    for path in ("/healthz", "/readyz"):
        status, body, headers = await asked(probes_with(lambda: ()), path, "HEAD")
        assert (status, body) == (200, "") and int(headers[b"content-length"]) > 0
        status, _, headers = await asked(probes_with(lambda: ()), path, "POST")
        assert status == 405 and headers[b"allow"] == b"GET, HEAD"


async def test_problems_are_reported_with_503() -> None:
    status, body, _ = await asked(probes_with(lambda: ("The database cannot be used.",)), "/readyz")
    assert (status, body) == (503, "The database cannot be used.\n")


async def test_a_hundred_probes_at_once_look_once() -> None:
    looks: list[int] = []

    def look() -> tuple[str, ...]:
        looks.append(1)
        return ()

    app = probes_with(look)
    answers = await asyncio.gather(*(asked(app, "/readyz") for _ in range(100)))
    assert {status for status, _, _ in answers} == {200}
    assert len(looks) == 1


async def test_a_database_that_never_answers_is_reported_and_blocks_one_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(probes, "PATIENCE_SECONDS", 0.05)
    monkeypatch.setattr(probes, "CACHED_SECONDS", 0.0)
    answered, looks = threading.Event(), []

    def look() -> tuple[str, ...]:
        looks.append(1)
        answered.wait(30)
        return ()

    app = probes_with(look)
    for _ in range(3):
        status, body, _ = await asked(app, "/readyz")
        assert status == 503 and "does not answer in time" in body
    assert len(looks) == 1
    answered.set()
    while (await asked(app, "/readyz"))[0] != 200:
        await asyncio.sleep(0.01)


async def test_an_error_of_the_probe_itself_does_not_leak_its_text(caplog: pytest.LogCaptureFixture) -> None:
    def look() -> tuple[str, ...]:
        raise RuntimeError("password=secret")

    status, body, _ = await asked(probes_with(look), "/readyz")
    assert status == 503 and "secret" not in body
    assert "password=secret" in caplog.text


@pytest.mark.django_db
@pytest.mark.both
def test_a_prepared_database_costs_one_query() -> None:
    health.needed_migrations()
    with CaptureQueriesContext(
        connection,
    ) as queries:
        assert list(health._reasons()) == []
    assert len(queries) == 1


@pytest.mark.django_db
@pytest.mark.both
def test_a_database_that_lacks_a_migration_is_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    needed = health.needed_migrations() | {("tasks_app", "9999_of_tomorrow")}
    monkeypatch.setattr(health, "needed_migrations", lambda: needed)
    assert list(health._reasons()) == ["The database is not prepared for this version."]


@pytest.mark.django_db
def test_a_redis_that_is_away_is_named_without_its_address(settings: Any) -> None:
    settings.ENVIRONMENT = settings.ENVIRONMENT.model_copy(
        update={"redis_url": "redis://:secret@127.0.0.1:1/0"}
    )
    assert list(health._reasons()) == ["Redis cannot be used."]


def test_a_running_server_says_so_over_http_and_logs_nothing(tmp_path: Path) -> None:
    """A database that is gone is a reason; the process lives on."""
    from http.client import HTTPConnection

    portal = WebServer(tmp_path).start()
    host, port = portal.address.split(":")

    def get(path: str) -> tuple[int, bytes]:
        there = HTTPConnection(host, int(port), timeout=10)
        there.request("GET", path, headers={"Host": "10.9.8.7"})
        answer = there.getresponse()
        found = answer.status, answer.read()
        there.close()
        return found

    try:
        assert get("/readyz") == (200, b"ready\n")
        (tmp_path / "catherder.sqlite3").write_bytes(b"no database" * 1000)
        for leftover in tmp_path.glob("catherder.sqlite3-*"):
            leftover.unlink()
        while (found := get("/readyz"))[0] == 200:
            pass
        assert found == (503, b"The database cannot be used.\n")
        assert get("/healthz") == (200, b"ok\n")
    finally:
        said = portal.stop()
    assert "readyz" not in said and "healthz" not in said
