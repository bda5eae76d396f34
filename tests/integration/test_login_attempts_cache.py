"""Login attempts are counted in Redis for all processes, and in memory while it is unavailable (W1, R4)."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from django.core.cache import caches
from django.test import Client

from tasks_app.models import User
from tests.integration.redis_server import RedisServer, redis_server

pytestmark = [pytest.mark.django_db, pytest.mark.redis]


@pytest.fixture
def server(settings: Any) -> Iterator[RedisServer]:
    with redis_server() as server:
        backend = "tasks_app.web.accounts.attempts.RedisOrMemoryCache"
        settings.CACHES = {"default": {"BACKEND": backend, "LOCATION": server.url}}
        yield server
        caches["default"].in_memory.clear()  # type: ignore[attr-defined]


WRONG = "wrong"


def try_in(password: str = WRONG, name: str = "ann") -> int:
    return int(Client().post("/login/", {"username": name, "password": password}).status_code)


@pytest.fixture(autouse=True)
def ann() -> User:
    return User.objects.create_user("ann", "ann@example.org", "correct horse")


def test_a_name_waits_after_five_failures_in_whichever_process(server: RedisServer) -> None:
    assert [try_in() for _ in range(6)] == [200] * 5 + [429]
    with redis.Redis.from_url(server.url) as client:
        kept = [client.get(key) for key in client.keys()]  # noqa: SIM118
    assert kept and not any(value.startswith(b"\x80") for value in kept)  # what pickle begins with
    assert try_in(name="ben") == 200


def test_while_redis_is_away_people_log_in_and_attempts_are_counted_here(server: RedisServer) -> None:
    server.stop()
    assert try_in("correct horse") == 302
    assert [try_in() for _ in range(6)] == [200] * 5 + [429]
    server.start()
    assert try_in("correct horse") == 302


class Bomb:
    def __reduce__(self) -> Any:
        return (pytest.fail, ("what lay in Redis was run",))


@pytest.mark.parametrize("poison", [pickle.dumps(Bomb()), b"\xff", b"", b"[]", b"7", b"[]:1abc:xyz"])
def test_foreign_jobs_in_redis_are_not_run_and_counting_continues(server: RedisServer, poison: bytes) -> None:
    """A service on loopback may have no password, and the network is shared with agents."""
    try_in()
    with redis.Redis.from_url(server.url) as client:
        keys = client.keys()
        for key in keys:
            client.set(key, poison)
    assert keys and try_in("correct horse") == 302
    assert 429 in [try_in() for _ in range(8)]
