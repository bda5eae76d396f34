"""A job that is stored for a later time is in the queue at that time, and not a second later."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from huey import Huey, RedisHuey

from catherder_site.queue import JobSerializer, QueueFile
from tasks_app.engine.workers.intake import LOOK_SECONDS, PunctualScheduler
from tests.integration.redis_server import redis_server

NOW = datetime(2026, 11, 25, 12, 0, tzinfo=UTC)


class Sleeps(threading.Event):
    """A stop flag that notes for how long somebody wants to sleep."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.seconds.append(timeout)
        return False


@pytest.fixture(params=["file", pytest.param("redis", marks=pytest.mark.redis)])
def queue(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Huey]:
    options: dict[str, Any] = {"immediate": False, "serializer": JobSerializer(secret="a key of the queue")}
    if request.param == "file":
        yield Huey("x", storage_class=QueueFile, filename=tmp_path / "queue.sqlite3", **options)
    else:
        with redis_server() as server:
            yield RedisHuey("x", url=server.url, **options)


@pytest.fixture
def job(queue: Huey) -> Any:
    @queue.task()
    def job(task_id: int) -> None: ...

    return job


def schedule(queue: Huey, job: Any, task_id: int, *, seconds: float) -> None:
    queue.add_schedule(
        job.task_class((task_id,), eta=(NOW + timedelta(seconds=seconds)).replace(tzinfo=None))
    )


def slept(queue: Huey) -> float:
    """Look at the schedule at `NOW`; for how long the scheduler sleeps then."""
    sleeps = Sleeps()
    PunctualScheduler(queue, sleeps, interval=1, periodic=False).loop(NOW.replace(tzinfo=None))
    (seconds,) = sleeps.seconds
    return seconds


def test_without_a_job_it_looks_again_after_a_second(queue: Huey) -> None:
    assert slept(queue) == LOOK_SECONDS


def test_it_sleeps_no_longer_than_until_the_next_job(queue: Huey, job: Any) -> None:
    schedule(queue, job, 1, seconds=60)
    assert slept(queue) == LOOK_SECONDS
    schedule(queue, job, 2, seconds=0.5)
    assert slept(queue) == pytest.approx(0.5)


def test_what_is_due_is_put_into_the_queue_and_nothing_else(queue: Huey, job: Any) -> None:
    schedule(queue, job, 1, seconds=-1)
    schedule(queue, job, 2, seconds=0.5)
    assert slept(queue) == pytest.approx(0.5)
    assert [queue.pending_count(), queue.scheduled_count()] == [1, 1]
    assert queue.dequeue().args == (1,)


def test_a_schedule_that_cannot_be_read_does_not_end_the_scheduler(
    queue: Huey, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(queue.storage, "read_schedule", fail)
    assert slept(queue) == LOOK_SECONDS
    assert "the scheduled jobs cannot be read" in caplog.text
