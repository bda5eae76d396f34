"""How a web process learns that there may be new changes (W3)."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from asgiref.sync import sync_to_async
from django.db import connection
from redis.asyncio import Redis

from catherder_site.logs import SeldomWithoutServices
from tasks_app.core.wakeup import Wakeup
from tasks_app.models import Change, Task
from tasks_app.web.live import detectors
from tasks_app.web.live import notifier as notifier_module
from tasks_app.web.live.detectors import RedisDetector, SqliteDetector, choose_detector
from tasks_app.web.live.notifier import Notifier
from tests.factories import TaskFactory
from tests.integration.redis_server import RedisServer, redis_server
from tests.waiting import wait_until


@pytest.fixture
def wakeup(tmp_path: Path) -> Wakeup:
    return Wakeup(tmp_path / "wakeup")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "with space?.sqlite3"
    with sqlite3.connect(path) as own:
        own.executescript("PRAGMA journal_mode=WAL; CREATE TABLE t (n)")
    own.close()
    return path


@pytest.fixture
async def sqlite(path: Path, wakeup: Wakeup) -> AsyncIterator[SqliteDetector]:
    detector = SqliteDetector(path, wakeup)
    await detector.wait()  # the first read only remembers the number
    yield detector
    await detector.close()


async def commit_elsewhere(path: Path) -> None:
    """Commit in another process, which notifies nobody."""
    write = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('CREATE TABLE u (n)')"
    await asyncio.to_thread(subprocess.check_call, [sys.executable, "-c", write, path])


async def test_a_notification_of_a_commit_to_a_sqlite_file_wakes(
    sqlite: SqliteDetector, path: Path, wakeup: Wakeup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(detectors, "SQLITE_SECONDS", 3600)
    looked, look = asyncio.Event(), sqlite._read_version

    def noted() -> int | None:
        looked.set()
        return look()

    monkeypatch.setattr(sqlite, "_read_version", noted)
    waiting = asyncio.create_task(sqlite.wait())
    await (
        looked.wait()
    )  # it looks some time after what it found last; a commit before that is found by itself
    await commit_elsewhere(path)
    assert not waiting.done()
    wakeup.notify()
    await asyncio.wait_for(waiting, 20)


async def test_a_notification_before_the_wait_counts(
    sqlite: SqliteDetector, path: Path, wakeup: Wakeup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(detectors, "SQLITE_SECONDS", 3600)
    await commit_elsewhere(path)
    wakeup.notify()
    await asyncio.wait_for(sqlite.wait(), 20)


async def test_a_commit_that_nobody_notified_of_is_found_a_little_later(
    sqlite: SqliteDetector, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(detectors, "SQLITE_SECONDS", 0.01)
    waiting = asyncio.create_task(sqlite.wait())
    await commit_elsewhere(path)
    await asyncio.wait_for(waiting, 20)


async def test_a_web_process_at_rest_wakes_up_only_for_notifications_and_twice_a_second(
    sqlite: SqliteDetector, wakeup: Wakeup, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert detectors.SQLITE_SECONDS >= 0.5
    monkeypatch.setattr(detectors, "SQLITE_SECONDS", 3600)
    looks: list[int | None] = []
    look = sqlite._read_version

    def noted() -> int | None:
        looks.append(look())
        return looks[-1]

    monkeypatch.setattr(sqlite, "_read_version", noted)
    waiting = asyncio.create_task(sqlite.wait())
    for expected in (1, 2, 3):
        await asyncio.sleep(0.1)
        assert len(looks) == expected and not waiting.done()
        wakeup.notify()  # of something that changed no row
        await reach(looks, expected + 1)
    waiting.cancel()


async def test_while_many_write_it_looks_no_more_often_than_before(
    sqlite: SqliteDetector, path: Path, wakeup: Wakeup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look that finds something reads rows, and pages must stay quick meanwhile."""
    monkeypatch.setattr(detectors, "SPACING_SECONDS", 3600)
    await commit_elsewhere(path)
    monkeypatch.setattr(sqlite, "_read_version", lambda: pytest.fail("it looked"))
    waiting = asyncio.create_task(sqlite.wait())
    for _ in range(10):
        wakeup.notify()
        await asyncio.sleep(0.01)
    assert not waiting.done()
    waiting.cancel()


async def reach(looks: list[int | None], count: int) -> None:
    async with asyncio.timeout(20):
        while len(looks) != count:
            await asyncio.sleep(0.01)


async def test_where_no_pipe_can_be_made_the_file_is_polled(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(detectors, "SQLITE_SECONDS", 3600)
    (tmp_path / "file").touch()
    detector = SqliteDetector(path, Wakeup(tmp_path / "file" / "wakeup"))
    await detector.wait()
    waiting = asyncio.create_task(detector.wait())
    await commit_elsewhere(path)
    await asyncio.wait_for(waiting, 20)
    assert [message.startswith("changes cannot be notified") for message in caplog.messages] == [True]
    await detector.close()


@pytest.mark.once(on="sqlite")
@pytest.mark.django_db(transaction=True)
async def test_every_committed_change_is_notified_of_on_sqlite(monkeypatch: pytest.MonkeyPatch) -> None:
    if connection.vendor != "sqlite":
        pytest.skip("web processes poll on PostgreSQL without Redis")
    monkeypatch.setattr(detectors, "SQLITE_SECONDS", 3600)
    detector = choose_detector()
    await detector.wait()
    waiting = asyncio.create_task(detector.wait())
    await sync_to_async(TaskFactory.create)()
    task = await Task.objects.aget()
    await Change.objects.acreate(task=task, kind="phase")
    await asyncio.wait_for(waiting, 20)
    await detector.close()


async def test_a_closed_detector_leaves_no_pipe(path: Path, wakeup: Wakeup, tmp_path: Path) -> None:
    detector = SqliteDetector(path, wakeup)
    await detector.wait()
    assert len(list((tmp_path / "wakeup").iterdir())) == 1
    await detector.close()
    assert not list((tmp_path / "wakeup").iterdir())


async def test_a_missing_file_is_an_error_and_is_not_made(tmp_path: Path, wakeup: Wakeup) -> None:
    detector = SqliteDetector(tmp_path / "none.sqlite3", wakeup)
    with pytest.raises(sqlite3.OperationalError):
        await detector.wait()
    await detector.close()

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
