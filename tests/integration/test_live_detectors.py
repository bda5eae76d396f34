"""How a web process learns that there may be new changes (W3)."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from redis.asyncio import Redis

from catherder_site.logs import SeldomWithoutServices
from tasks_app.core.wakeup import Pipe, notify
from tasks_app.models import Change, Task
from tasks_app.web.live import wakeup
from tasks_app.web.live.wakeup import (
    ChangeDetector,
    PipeDetector,
    RedisDetector,
    RedisNotifier,
    choose_detector,
)
from tests.factories import TaskFactory
from tests.integration.redis_server import RedisServer, redis_server
from tests.waiting import wait_until


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "wakeup"


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a notification ends a wait."""
    monkeypatch.setattr(wakeup, "FALLBACK_SECONDS", 3600)


@pytest.fixture
async def piped(folder: Path) -> AsyncIterator[PipeDetector]:
    detector = PipeDetector(Pipe(folder))
    yield detector
    await detector.close()


async def test_a_notification_of_this_machine_wakes(piped: PipeDetector, folder: Path) -> None:
    waiting = asyncio.create_task(piped.wait())
    await asyncio.sleep(0.1)
    assert not waiting.done()
    notify(folder)
    await asyncio.wait_for(waiting, 20)


async def test_a_notification_before_the_wait_counts(piped: PipeDetector, folder: Path) -> None:
    notify(folder)
    await asyncio.wait_for(piped.wait(), 20)


async def test_a_change_that_nobody_notified_of_is_found_a_little_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(wakeup, "FALLBACK_SECONDS", 0.01)
    await asyncio.wait_for(ChangeDetector().wait(), 20)


async def test_while_many_write_the_rows_are_not_read_all_the_time(
    piped: PipeDetector, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages must stay quick meanwhile."""
    monkeypatch.setattr(wakeup, "SPACING_SECONDS", 3600)
    notify(folder)
    await asyncio.wait_for(piped.wait(), 20)
    waiting = asyncio.create_task(piped.wait())
    for _ in range(10):
        notify(folder)
        await asyncio.sleep(0.01)
    assert not waiting.done()
    waiting.cancel()


async def test_where_no_pipe_can_be_made_the_rows_are_read_now_and_then(
    tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(wakeup, "FALLBACK_SECONDS", 0.01)
    (tmp_path / "file").touch()
    settings.DATA_DIR = tmp_path / "file"
    detector = choose_detector()
    await asyncio.wait_for(detector.wait(), 20)
    assert len(caplog.messages) == 1
    await detector.close()


@pytest.mark.django_db(transaction=True)
async def test_every_committed_change_is_notified_of() -> None:
    detector = choose_detector()
    waiting = asyncio.create_task(detector.wait())
    await sync_to_async(TaskFactory.create)()
    task = await Task.objects.aget()
    await Change.objects.acreate(task=task, kind="phase")
    await asyncio.wait_for(waiting, 20)
    await detector.close()


async def test_a_closed_detector_leaves_no_pipe(folder: Path) -> None:
    detector = PipeDetector(Pipe(folder))
    assert len(list(folder.iterdir())) == 1
    await detector.close()
    assert not list(folder.iterdir())


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    with redis_server() as server:
        yield server


@pytest.fixture
async def detector(redis: RedisServer) -> AsyncIterator[RedisDetector]:
    detector = RedisDetector(redis.url)
    yield detector
    await detector.close()


@pytest.fixture
def notifier(redis: RedisServer) -> Iterator[RedisNotifier]:
    notifier = RedisNotifier(redis.url)
    yield notifier
    notifier.close()


async def notify_until_received(notifier: RedisNotifier, detector: RedisDetector) -> None:
    """A notification before the detector listens is lost, so repeat it until it is received."""
    received = asyncio.create_task(detector.wait())
    while not received.done():
        notifier.notify()
        await asyncio.wait({received}, timeout=0.05)
    await received


@pytest.mark.redis
async def test_a_notification_wakes_through_redis(detector: RedisDetector, notifier: RedisNotifier) -> None:
    await asyncio.wait_for(notify_until_received(notifier, detector), 20)
    await asyncio.wait_for(notify_until_received(notifier, detector), 20)


@pytest.mark.redis
async def test_writers_and_detectors_outlive_redis(
    redis: RedisServer, detector: RedisDetector, notifier: RedisNotifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While Redis is down, writing continues and the rows are read; afterwards notifications arrive again."""
    monkeypatch.setattr(wakeup, "FALLBACK_SECONDS", 0.05)
    monkeypatch.setattr(wakeup, "REDIS_SECONDS", 0.05)
    await asyncio.wait_for(notify_until_received(notifier, detector), 20)

    redis.stop()
    notifier.notify()
    await asyncio.wait_for(detector.wait(), 20)
    redis.start()

    monkeypatch.setattr(wakeup, "FALLBACK_SECONDS", 3600)
    await asyncio.wait_for(notify_until_received(notifier, detector), 20)


@pytest.mark.redis
async def test_many_notifications_use_one_connection(redis: RedisServer, notifier: RedisNotifier) -> None:
    await asyncio.gather(*(asyncio.to_thread(notifier.notify) for _ in range(500)))
    notifier.close()

    async with Redis(port=redis.port) as client:
        assert len(await client.client_list()) == 1, "none is left open"
        assert (await client.info("stats"))["total_connections_received"] == 2


@pytest.fixture
def hanging() -> Iterator[str]:
    """The URL of a Redis that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"redis://127.0.0.1:{server.getsockname()[1]}/0"


def test_a_redis_that_hangs_holds_up_no_writer_and_is_logged_in_one_line(
    hanging: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(wakeup, "TIMEOUT_SECONDS", 0.05)
    notifier = RedisNotifier(hanging)
    notifier.notify()
    assert not caplog.records
    wait_until(lambda: bool(caplog.records))
    notifier.close()
    assert SeldomWithoutServices().filter(caplog.records[0]) and not caplog.records[0].exc_info


async def test_a_redis_that_hangs_does_not_hold_up_the_end(
    hanging: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wakeup, "FALLBACK_SECONDS", 0.01)
    detector = RedisDetector(hanging)
    await detector.wait()
    await asyncio.wait_for(detector.close(), 20)
