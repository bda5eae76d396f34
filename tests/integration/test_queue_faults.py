"""The queue only hints at work: damaged, locked, full or away, it keeps no process from starting and no due
task from being found (R2)."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from huey import Huey
from huey.contrib.djhuey import HUEY
from huey.storage import BaseStorage, RedisStorage

from catherder_site.queue import QueueFile, _is_damage
from tasks_app import tasks
from tasks_app.engine.workers.intake import LOOK_AGAIN_SECONDS, Found, Intake, TakingWorker
from tests.integration.redis_server import redis_server


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "huey.sqlite3"


@pytest.fixture
def storage(path: Path) -> Iterator[QueueFile]:
    storage = QueueFile("cat-herder", filename=path)
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
    first = QueueFile("cat-herder", filename=path)
    first.enqueue(b"from before")
    first.close()
    _remove_log_files(path)
    damage(path)  # type: ignore[operator]
    caplog.clear()
    storages = [QueueFile("cat-herder", filename=path) for _ in range(3)]
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
    other = QueueFile("cat-herder", filename=path)
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


def test_a_locked_file_is_not_set_aside(path: Path) -> None:
    storage = QueueFile("cat-herder", filename=path, timeout=0.01)
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("begin exclusive")
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        storage.enqueue(b"lost")
    holder.execute("rollback")
    holder.close()
    storage.enqueue(b"after")
    assert storage.dequeue() == b"after"
    storage.close()
    assert not list(path.parent.glob("*.damaged-*"))  # nothing was wrong with it


@pytest.mark.parametrize("redis", [False, pytest.param(True, marks=pytest.mark.redis)])
def test_a_queue_that_fails_raises_nothing(
    redis: bool, path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    if redis:
        with redis_server() as server:
            pass
        broken: BaseStorage = RedisStorage("x", url=server.url)
    else:
        broken = QueueFile("x", filename=path / "missing" / "huey.sqlite3")
    monkeypatch.setattr(HUEY, "storage", broken)
    tasks.notify_worker(7)
    tasks.notify_worker(7, 5.0)
    assert tasks._pending() == 0
    assert len(caplog.records) == 2


def test_a_reader_of_a_queue_that_fails_waits_before_it_tries_again(
    path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    stop = threading.Event()
    monkeypatch.setattr(stop, "wait", waits.append)
    huey = Huey("x", storage_class=QueueFile, filename=path / "missing" / "huey.sqlite3")
    reader = TakingWorker(
        huey, stop, 0.1, 0.1, 1, intake=Intake(), found=Found(lambda task_id: None), pipe=None
    )
    reader.loop()
    assert waits == [LOOK_AGAIN_SECONDS]


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
        "from pathlib import Path; file = Path(sys.argv[1]);"
        "huey = Huey('x', storage_class=QueueFile, filename=file); huey.storage.enqueue(b'1');"
        "print(huey.storage.dequeue())"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout) == (0, "b'1'\n")
    assert len(done.stderr.splitlines()) == 1 and "damaged" in done.stderr


def test_a_job_does_not_wait_for_the_disk(storage: QueueFile) -> None:
    """It is a hint, and a file that a power cut damages is set aside."""
    assert storage.sql("pragma journal_mode", results=True) == [("wal",)]
    assert storage.sql("pragma synchronous", results=True) == [(0,)]
