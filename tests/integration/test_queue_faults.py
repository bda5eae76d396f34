"""The queue only hints at work: damaged, locked, full or away, it keeps no process from starting and no due
task from being found (R2)."""

from __future__ import annotations

import logging
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from huey import Huey

from catherder_site.queue import QueueFile, RedisQueue, _is_damage
from tests.integration.redis_server import RedisServer, redis_server


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "huey.sqlite3"


@pytest.fixture
def storage(path: Path) -> Iterator[QueueFile]:
    storage = QueueFile("cat-herder", filename=str(path))
    yield storage
    storage.close()


def _overwrite(path: Path) -> None:
    path.write_bytes(b"this is no database\n" * 500)


def _truncate(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(5000)


def _drop(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("drop table task")
    connection.close()


def _make_a_folder(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.mkdir()


DAMAGES = [_overwrite, _truncate, _drop, _make_a_folder]


@pytest.mark.parametrize("damage", [_overwrite, _truncate, _make_a_folder])
def test_a_file_damaged_before_the_start_is_put_aside_and_said_once(
    damage: object, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first = QueueFile("cat-herder", filename=str(path))
    first.enqueue(b"from before")
    first.close()
    _remove_log_files(path)
    damage(path)  # type: ignore[operator]
    caplog.clear()
    storages = [QueueFile("cat-herder", filename=str(path)) for _ in range(3)]
    storages[0].enqueue(b"look at 7")
    assert storages[1].dequeue() == b"look at 7"
    assert [storage.queue_size() for storage in storages] == [0, 0, 0]
    assert len(caplog.messages) == 1 and str(path) in caplog.messages[0]
    assert len(list(path.parent.glob("*.damaged-*[0-9]"))) == 1
    for storage in storages:
        storage.close()


def _remove_log_files(path: Path) -> None:
    for end in ("-wal", "-shm"):
        path.with_name(path.name + end).unlink(missing_ok=True)


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_file_damaged_while_it_is_used_is_put_aside(damage: object, path: Path, storage: QueueFile) -> None:
    other = QueueFile("cat-herder", filename=str(path))
    other.enqueue(b"one")
    assert storage.dequeue() == b"one"
    storage.close()
    other.close()
    _remove_log_files(path)
    damage(path)  # type: ignore[operator]
    for number in range(3):
        other.enqueue(b"look at %d" % number)
    assert {storage.dequeue() or other.dequeue() for _ in range(3)} == {b"look at %d" % n for n in range(3)}


def test_a_file_that_somebody_removed_is_made_again(path: Path, storage: QueueFile) -> None:
    storage.enqueue(b"lost with the file")
    path.unlink()
    storage.enqueue(b"look at 1")
    assert storage.dequeue() == b"look at 1"
    assert path.exists()


def test_a_locked_file_costs_no_ring_and_says_so_once(
    path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("catherder_site.queue.PAUSE_SECONDS", 0.0)
    storage = QueueFile("cat-herder", filename=str(path), timeout=0.01)
    caplog.clear()
    caplog.set_level(logging.WARNING)
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("begin exclusive")
    for number in range(20):
        storage.enqueue(b"look at %d" % number)
    assert [storage.dequeue() for _ in range(20)] == [b"look at %d" % n for n in range(20)]
    assert len(caplog.messages) == 1 and "database is locked" in caplog.messages[0]
    holder.execute("rollback")
    holder.close()
    storage.enqueue(b"after")
    assert storage.dequeue() == b"after"
    assert caplog.messages[1:] == [f"The queue {path} works again."]
    storage.close()
    assert not list(path.parent.glob("*.damaged-*"))  # nothing was wrong with it


@pytest.mark.parametrize(
    ("code", "is_put_aside"),
    [
        (sqlite3.SQLITE_FULL, False),
        (sqlite3.SQLITE_IOERR_WRITE, False),
        (sqlite3.SQLITE_IOERR_SHORT_READ, True),
        (sqlite3.SQLITE_CORRUPT, True),
    ],
)
def test_a_full_disk_is_no_damaged_file(code: int, is_put_aside: bool) -> None:
    error = sqlite3.OperationalError("in its own words")
    error.sqlite_errorcode = code
    assert _is_damage(error) is is_put_aside


def test_a_process_starts_with_a_damaged_file_and_takes_a_ring(path: Path) -> None:
    """The queue is opened when the settings are read, so by every command and by the web server."""
    path.write_bytes(b"garbage " * 4000)
    script = (
        "import sys; from huey import Huey; from catherder_site.queue import QueueFile;"
        "huey = Huey('x', storage_class=QueueFile, filename=sys.argv[1]); huey.storage.enqueue(b'1');"
        "print(huey.storage.dequeue())"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout) == (0, "b'1'\n")
    assert len(done.stderr.splitlines()) == 1 and "damaged" in done.stderr


def test_the_folder_of_an_earlier_version_is_removed(path: Path) -> None:
    (path.parent / "bells" / "workers").mkdir(parents=True)
    Huey("x", storage_class=QueueFile, filename=str(path))
    assert not (path.parent / "bells").exists()


def test_a_job_does_not_wait_for_the_disk(storage: QueueFile) -> None:
    """It is a hint; SQLite's own default would write it to the disk at once (2)."""
    assert storage.sql("pragma journal_mode", results=True) == [("wal",)]
    assert storage.sql("pragma synchronous", results=True) == [(1,)]


@pytest.mark.redis
def test_without_redis_jobs_stay_in_the_process_and_with_it_they_travel_again(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("catherder_site.queue.PAUSE_SECONDS", 0.0)
    with redis_server() as server:
        _stop_and_start(server, caplog)


def _stop_and_start(server: RedisServer, caplog: pytest.LogCaptureFixture) -> None:
    huey = Huey("x", storage_class=RedisQueue, url=server.url, read_timeout=1)
    here, there = huey.storage, RedisQueue("x", url=server.url, read_timeout=1)
    here.enqueue(b"1")
    assert there.dequeue() == b"1"
    server.stop()
    caplog.clear()
    for number in range(20):
        here.enqueue(b"%d" % number)
    assert here.queue_size() == 20
    assert [here.dequeue() for _ in range(20)] == [b"%d" % n for n in range(20)]
    assert here.dequeue() is None
    assert len(caplog.messages) == 1 and "due tasks are found without it" in caplog.messages[0]
    server.start()
    here.enqueue(b"again")
    assert there.dequeue() == b"again"
