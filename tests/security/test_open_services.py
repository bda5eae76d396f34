"""Open services on loopback are a way out of a sandbox that shares the network (R4, M7)."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import dj_database_url
import pytest

from tasks_app.core.errors import SandboxUnavailable
from tasks_app.operations.open_services import check_open_services, require_closed_services
from tests.integration.redis_server import redis_server
from tests.machine import POSTGRES
from tests.security.test_start import _started


@pytest.fixture
def closed_postgres() -> Iterator[int]:
    """Stands where a PostgreSQL that asks for a password would: it begins SCRAM with whoever comes."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=_ask_for_passwords, args=(listening,), daemon=True).start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)


def _ask_for_passwords(listening: socket.socket) -> None:
    mechanisms = (10).to_bytes(4, "big") + b"SCRAM-SHA-256\0\0"
    while True:
        try:
            connection, _ = listening.accept()
        except OSError:
            return
        with connection:
            if connection.recv(1000)[4:8] == (80877103).to_bytes(4, "big"):  # a request for TLS
                connection.sendall(b"N")
                connection.recv(1000)
            connection.sendall(b"R" + (len(mechanisms) + 4).to_bytes(4, "big") + mechanisms)
            connection.recv(1000)


@pytest.fixture
def use(settings: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Configures the portal with these services; without a database it is SQLite."""

    def configure(*, database: str = "", redis: str = "", sandbox: str = "auto") -> None:
        engine = "catherder_site.postgresql" if database else None
        parsed = dj_database_url.parse(database or "sqlite://", engine=engine)
        monkeypatch.setitem(settings.DATABASES, "default", parsed)
        update = {"redis_url": redis or None, "sandbox": sandbox}
        settings.ENVIRONMENT = settings.ENVIRONMENT.model_copy(update=update)

    return configure


@pytest.mark.postgres
def test_a_database_that_trusts_is_named_with_what_to_do(use: Callable[..., None]) -> None:
    use(database=POSTGRES)
    (said,) = check_open_services()
    assert f"{urlsplit(POSTGRES).hostname}:5432" in said
    assert "without a password" in said
    assert "scram-sha-256" in said


def test_a_database_that_asks_for_a_password_is_closed(
    use: Callable[..., None],
    closed_postgres: int,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Whatever password this user's own settings hold, and without a warning of libpq."""
    monkeypatch.setenv("PGPASSWORD", "secret")
    use(database=f"postgresql://ann:secret@127.0.0.1:{closed_postgres}/herd")
    assert check_open_services() == []
    assert capfd.readouterr().err == ""


@pytest.mark.redis
def test_a_redis_without_a_password_is_named(use: Callable[..., None]) -> None:
    with redis_server() as server:
        use(redis=server.url)
        (said,) = check_open_services()
    assert f"127.0.0.1:{server.port}" in said
    assert "requirepass" in said


@pytest.mark.redis
def test_a_redis_with_a_password_is_closed(use: Callable[..., None]) -> None:
    with redis_server("--requirepass", "secret") as server:
        use(redis=f"redis://:secret@127.0.0.1:{server.port}/0")
        assert check_open_services() == []


@pytest.mark.redis
def test_with_a_demanded_sandbox_it_is_an_error(use: Callable[..., None]) -> None:
    with redis_server() as server:
        use(redis=server.url, sandbox="require")
        with pytest.raises(SandboxUnavailable, match="way out of the sandbox"):
            require_closed_services()
        use(redis=server.url)
        assert len(require_closed_services()) == 1


@pytest.mark.redis
@pytest.mark.bubblewrap
@pytest.mark.once(on="sqlite")
@pytest.mark.parametrize("command", ["up", "worker"])
def test_nothing_starts_with_an_open_service_and_a_demanded_sandbox(command: str, tmp_path: Path) -> None:
    with redis_server() as server:
        done = _started(command, tmp_path, REDIS_URL=server.url, CATHERDER_SANDBOX="require")
    assert done.returncode == 2
    assert f"Redis at 127.0.0.1:{server.port} lets anybody in without a password" in done.stderr
    assert "Traceback" not in done.stderr
