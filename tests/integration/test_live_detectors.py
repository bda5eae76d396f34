"""How a web process learns that there may be new changes (W3)."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from redis.asyncio import Redis

from catherder_site.logs import SeldomWithoutServices
from tasks_app.web.live import detectors
from tasks_app.web.live import notifier as notifier_module
from tasks_app.web.live.detectors import RedisDetector, SqliteDetector
from tasks_app.web.live.notifier import Notifier
from tests.integration.redis_server import RedisServer, redis_server
from tests.waiting import wait_until


async def test_a_commit_of_another_process_to_a_sqlite_file_wakes(tmp_path: Path) -> None:
    path = tmp_path / "with space?.sqlite3"
    with sqlite3.connect(path) as own:
        own.executescript("PRAGMA journal_mode=WAL; CREATE TABLE t (n)")
    own.close()
    detector = SqliteDetector(path)
    await detector.wait()  # the first read only remembers the number
    waiting = asyncio.create_task(detector.wait())

    write = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('CREATE TABLE u (n)')"
    await asyncio.to_thread(subprocess.check_call, [sys.executable, "-c", write, path])

    await asyncio.wait_for(waiting, 20)
    await detector.close()


async def test_a_missing_file_is_an_error_and_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(sqlite3.OperationalError):
        await SqliteDetector(tmp_path / "none.sqlite3").wait()

    assert not (tmp_path / "none.sqlite3").exists()


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    with redis_server() as server:
        yield server


@pytest.fixture
async def detector(redis: RedisServer) -> AsyncIterator[RedisDetector]:
    detector = RedisDetector(redis.layer())
    yield detector
    await detector.close()


@pytest.fixture
def notifier(redis: RedisServer) -> Iterator[Notifier]:
    notifier = Notifier(redis.layer())
    yield notifier
    notifier.close()


async def notify_until_received(notifier: Notifier, detector: RedisDetector) -> None:
    """A notification before the detector listens is lost, so repeat it until it is received."""
    received = asyncio.create_task(detector.wait())
    while not received.done():
        notifier.notify(1)
        await asyncio.wait({received}, timeout=0.05)
    await received


@pytest.mark.redis
async def test_a_notification_wakes_through_redis(
    detector: RedisDetector, notifier: Notifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(detectors, "FALLBACK_SECONDS", 3600)

    await asyncio.wait_for(notify_until_received(notifier, detector), 20)
    await asyncio.wait_for(notify_until_received(notifier, detector), 20)


@pytest.mark.redis
async def test_the_detector_wakes_after_a_while_without_a_notification(
    detector: RedisDetector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(detectors, "FALLBACK_SECONDS", 0.01)

    await asyncio.wait_for(detector.wait(), 20)


@pytest.mark.redis
async def test_writers_and_detectors_outlive_redis(
    redis: RedisServer, detector: RedisDetector, notifier: Notifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While Redis is down, writing continues and the rows are read; afterwards notifications arrive again."""
    monkeypatch.setattr(detectors, "FALLBACK_SECONDS", 0.05)
    await asyncio.wait_for(notify_until_received(notifier, detector), 20)

    redis.stop()
    notifier.notify(2)
    await asyncio.wait_for(detector.wait(), 20)
    redis.start()

    monkeypatch.setattr(detectors, "FALLBACK_SECONDS", 3600)
    await asyncio.wait_for(notify_until_received(notifier, detector), 20)


@pytest.mark.redis
async def test_many_notifications_use_one_connection(redis: RedisServer, notifier: Notifier) -> None:
    await asyncio.gather(*(asyncio.to_thread(notifier.notify, number) for number in range(500)))
    notifier.close()

    async with Redis(port=redis.port) as client:
        assert len(await client.client_list()) == 1, "none is left open"
        assert (await client.info("stats"))["total_connections_received"] == 2


def test_a_redis_that_hangs_is_logged_in_one_line(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Hanging:
        async def group_send(self, group: str, message: object) -> None:
            await asyncio.sleep(3600)

    monkeypatch.setattr(notifier_module, "TIMEOUT_SECONDS", 0.05)
    notifier = Notifier(Hanging())
    notifier.notify(1)
    wait_until(lambda: bool(caplog.records))
    notifier.close()
    (record,) = caplog.records
    assert SeldomWithoutServices().filter(record) and not record.exc_info
    assert record.getMessage().endswith("Redis did not respond within 0.05 s.")


async def test_a_redis_that_hangs_does_not_hold_up_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hanging:
        async def new_channel(self) -> str:
            return "one"

        async def group_add(self, group: str, channel: str) -> None: ...

        async def receive(self, channel: str) -> None:
            await asyncio.sleep(3600)

        async def flush(self) -> None:
            await asyncio.sleep(3600)

    monkeypatch.setattr(detectors, "FALLBACK_SECONDS", 0.01)
    monkeypatch.setattr(detectors, "CLOSING_SECONDS", 0.05)
    detector = RedisDetector(Hanging())
    await detector.wait()
    await asyncio.wait_for(detector.close(), 20)
