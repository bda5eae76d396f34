"""How a web process learns that there may be news (W3)."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from redis.asyncio import Redis

from tasks_app.web.live import detectors
from tasks_app.web.live.detectors import Bell, DataVersion
from tasks_app.web.live.notifier import Ringer
from tests.integration.redis_server import RedisServer, redis_server


async def test_a_commit_of_another_process_to_a_sqlite_file_wakes(tmp_path: Path) -> None:
    path = tmp_path / "with space?.sqlite3"
    with sqlite3.connect(path) as own:
        own.executescript("PRAGMA journal_mode=WAL; CREATE TABLE t (n)")
    own.close()
    waiter = DataVersion(path)
    await waiter.wait()  # the first look only takes the number down
    waiting = asyncio.create_task(waiter.wait())

    write = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('CREATE TABLE u (n)')"
    await asyncio.to_thread(subprocess.run, [sys.executable, "-c", write, path], check=True)

    await asyncio.wait_for(waiting, 20)
    await waiter.close()


async def test_a_missing_file_is_an_error_and_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(sqlite3.OperationalError):
        await DataVersion(tmp_path / "none.sqlite3").wait()

    assert not (tmp_path / "none.sqlite3").exists()


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    with redis_server() as server:
        yield server


@pytest.fixture
async def bell(redis: RedisServer) -> AsyncIterator[Bell]:
    bell = Bell(redis.layer())
    yield bell
    await bell.close()


@pytest.fixture
def ringer(redis: RedisServer) -> Iterator[Ringer]:
    ringer = Ringer(redis.layer())
    yield ringer
    ringer.close()


async def ring_until_heard(ringer: Ringer, bell: Bell) -> None:
    """A ring before the bell hangs is lost, so ring on until it is heard."""
    heard = asyncio.create_task(bell.wait())
    while not heard.done():
        ringer.ring(1)
        await asyncio.wait({heard}, timeout=0.05)
    await heard


@pytest.mark.redis
async def test_a_ring_wakes_through_redis(
    bell: Bell, ringer: Ringer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(detectors, "SAFETY_SECONDS", 3600)

    await asyncio.wait_for(ring_until_heard(ringer, bell), 20)
    await asyncio.wait_for(ring_until_heard(ringer, bell), 20)


@pytest.mark.redis
async def test_the_bell_wakes_after_a_while_although_nobody_rang(
    bell: Bell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(detectors, "SAFETY_SECONDS", 0.01)

    await asyncio.wait_for(bell.wait(), 20)


@pytest.mark.redis
async def test_writers_and_waiters_outlive_redis(
    redis: RedisServer, bell: Bell, ringer: Ringer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While Redis is down writing goes on and the rows are looked at; afterwards rings arrive again."""
    monkeypatch.setattr(detectors, "SAFETY_SECONDS", 0.05)
    await asyncio.wait_for(ring_until_heard(ringer, bell), 20)

    redis.stop()
    ringer.ring(2)
    await asyncio.wait_for(bell.wait(), 20)
    redis.start()

    monkeypatch.setattr(detectors, "SAFETY_SECONDS", 3600)
    await asyncio.wait_for(ring_until_heard(ringer, bell), 20)


@pytest.mark.redis
async def test_many_rings_use_one_connection(redis: RedisServer, ringer: Ringer) -> None:
    await asyncio.gather(*(asyncio.to_thread(ringer.ring, number) for number in range(500)))
    ringer.close()

    async with Redis(port=redis.port) as client:
        assert len(await client.client_list()) == 1, "none is left open"
        assert (await client.info("stats"))["total_connections_received"] == 2


async def test_a_redis_that_hangs_does_not_hold_up_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hanging:
        async def new_channel(self) -> str:
            return "one"

        async def group_add(self, group: str, channel: str) -> None: ...

        async def receive(self, channel: str) -> None:
            await asyncio.sleep(3600)

        async def flush(self) -> None:
            await asyncio.sleep(3600)

    monkeypatch.setattr(detectors, "SAFETY_SECONDS", 0.01)
    monkeypatch.setattr(detectors, "CLOSING_SECONDS", 0.05)
    bell = Bell(Hanging())
    await bell.wait()
    await asyncio.wait_for(bell.close(), 20)
