"""Huey's storages. The queue is only a hint, so its failures do not stop workers.

A job that cannot be stored is kept in this process's memory. The sweeper runs in the workers' process, so due
tasks are found without the queue too, at the latest in its next round.
"""

from __future__ import annotations

import fcntl
import json
import logging
import queue
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from huey.registry import Message
from huey.serializer import SignedSerializer
from huey.storage import BaseStorage, RedisStorage, SqliteStorage
from redis import ConnectionPool
from redis.exceptions import RedisError

from tasks_app.core.wakeup import Wakeup

logger = logging.getLogger(__name__)

T = TypeVar("T")

#: Seconds for which a queue that failed is left alone.
PAUSE_SECONDS = 1.0
#: Jobs kept in memory; the sweeper repeats what is lost.
MOST_KEPT = 10_000
#: Seconds that a worker's thread waits for a job from memory while Redis is away.
MEMORY_WAIT = 0.2
#: Seconds that Redis gets to answer; longer than the second for which Huey waits for a job.
REDIS_SECONDS = 5.0

_FAILED: Any = object()
#: Results of SQLite that pass: nothing is wrong with the file. A full disk may say so as a failed write.
_PASSING = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR}
_FILES = ("", "-wal", "-shm", "-journal")


class JobSerializer(SignedSerializer):  # type: ignore[misc]
    """Signed JSON that says only which job, of which task, when. It replaces Huey's pickle.

    Worker hosts have the key, also when they were broken into: what they put into the queue must not run code
    on the portal's host.
    """

    def __init__(self, *, secret: str) -> None:
        super().__init__(secret=secret, salt="cat-herder-queue")

    def _serialize(self, message: Message) -> bytes:
        (task_id,) = message.args
        eta = message.eta and message.eta.isoformat()
        signed: bytes = self._sign(json.dumps([message.id, message.name, task_id, eta]).encode())
        return signed

    def _deserialize(self, data: bytes) -> Message:
        """Raises ValueError for anything else than a job that a holder of the key has signed."""
        try:
            found = json.loads(self._unsign(data))
        except RecursionError:
            found = None
        match found:
            case [str(job), str(name), int(task_id), str() | None as eta] if not isinstance(task_id, bool):
                # Without a zone, as Huey compares it.
                when = datetime.fromisoformat(eta).replace(tzinfo=None) if eta else None
            case _:
                raise ValueError("this is no job")
        return Message(job, name, when, args=(task_id,), kwargs={}, retries=0, retry_delay=0, retry_backoff=0)


class TolerantStorage(BaseStorage):  # type: ignore[misc]
    """A storage that never raises; failures are logged once when they begin and end."""

    faults: tuple[type[Exception], ...] = ()

    def __init__(self, *args: Any, **options: Any) -> None:
        self._kept: queue.Queue[bytes] = queue.Queue(MOST_KEPT)
        self._failing = False
        self._try_again_at = 0.0
        super().__init__(*args, **options)

    def enqueue(self, data: bytes, priority: float | None = None) -> None:
        if self._tried(partial(super().enqueue, data, priority), _FAILED) is _FAILED:
            self.enqueue_here(data)

    def enqueue_here(self, data: bytes) -> None:
        """Put a job where only this process takes it from."""
        with suppress(queue.Full):
            self._kept.put_nowait(data)

    def dequeue(self) -> bytes | None:
        with suppress(queue.Empty):
            return self._kept.get_nowait()
        found: bytes | None = self._tried(super().dequeue, None)
        if found is None and self._failing and self.blocking:
            with suppress(queue.Empty):  # Huey does not pause after a storage that blocks by itself
                return self._kept.get(timeout=MEMORY_WAIT)
        return found

    def add_to_schedule(self, data: bytes, ts: datetime) -> None:
        """A job that cannot be stored is lost: the sweeper finds its task."""
        self._tried(partial(super().add_to_schedule, data, ts), None)

    def queue_size(self) -> int:
        return self._kept.qsize() + self._tried(super().queue_size, 0)

    def peek_many(self, keys: Iterable[str]) -> dict[str, bytes]:
        """Skip Huey's query whether a job was revoked, which the portal never does."""
        return self._tried(partial(super().peek_many, keys), {})

    def delete_data(self, key: str) -> bool:
        """Skip Huey's deletion of revocations."""
        return self._tried(partial(super().delete_data, key), False)

    def read_schedule(self, ts: datetime) -> list[bytes]:
        return self._tried(partial(super().read_schedule, ts), [])

    def seconds_until_scheduled(self, now: datetime) -> float | None:
        """Return in how many seconds the next scheduled job is due; None if there is none."""
        at = self._tried(self._first_scheduled, None)
        return None if at is None else at - self._as_number(now)

    def _first_scheduled(self) -> float | None:
        """Return when the first scheduled job is due, in the numbers of `_as_number`."""
        raise NotImplementedError

    @staticmethod
    def _as_number(when: datetime) -> float:
        """Return the number that Huey stores for a time."""
        return when.timestamp()

    def _tried(self, action: Callable[[], T], otherwise: T) -> T:
        if time.monotonic() < self._try_again_at:
            return otherwise
        try:
            result = action()
        except self.faults as error:
            self._failed(error)
            return otherwise
        if self._failing:
            self._failing = False
            logger.warning("%s works again.", self._name)
        return result

    def _failed(self, error: Exception) -> None:
        self._try_again_at = time.monotonic() + PAUSE_SECONDS
        if not self._failing:
            self._failing = True
            logger.warning("%s cannot be used (%s); due tasks are found without it.", self._name, error)

    @property
    def _name(self) -> str:
        raise NotImplementedError


class QueueFile(TolerantStorage, SqliteStorage):  # type: ignore[misc]
    """The queue in an SQLite file. A damaged one is moved aside and replaced. `wakeup` wakes its workers."""

    faults = (sqlite3.Error, OSError)
    _conn: sqlite3.Connection | None

    def __init__(self, *args: Any, **options: Any) -> None:
        self._inode: int | None = None
        super().__init__(*args, **options)
        folder = Path(self.filename).parent
        shutil.rmtree(folder / "bells", ignore_errors=True)  # as an earlier version called it
        self.wakeup = Wakeup(folder / "wakeup" / "workers")

    def enqueue(self, data: bytes, priority: float | None = None) -> None:
        super().enqueue(data, priority)
        self.wakeup.notify()

    def enqueue_here(self, data: bytes) -> None:
        super().enqueue_here(data)
        self.wakeup.notify()

    @property
    def _name(self) -> str:
        return f"The queue {self.filename}"

    def _first_scheduled(self) -> float | None:
        statement = "select min(timestamp) from schedule where queue = ?"
        found: float | None = self.sql(statement, (self.name,), results=True)[0][0]
        return found

    def initialize_schema(self) -> None:
        """Create the tables; an error must not prevent the start."""
        self._tried(super().initialize_schema, None)

    @property
    def conn(self) -> sqlite3.Connection:
        """Return the connection, reopened if the file was replaced or removed."""
        if self._conn is not None and _inode(self.filename) != self._inode:
            self._conn.close()
            self._conn = None
        if self._conn is None:
            fresh: sqlite3.Connection = self._create_connection()
            # With WAL no commit waits for the disk. A power cut may lose the last jobs, and damages nothing:
            # a job is a hint, and the sweeper finds what is due.
            fresh.execute("pragma synchronous=normal")
            for statement in self.ddl:
                fresh.execute(statement)
            self._conn, self._inode = fresh, _inode(self.filename)
        return self._conn

    def _failed(self, error: Exception) -> None:
        if _is_damage(error) and self._put_aside(error):
            return
        super()._failed(error)

    def _put_aside(self, error: Exception) -> bool:
        """Move a damaged file aside and return whether there is a sound one; only one process does it."""
        with suppress(sqlite3.Error, AttributeError):  # another thread may have closed it meanwhile
            self.close()
        try:
            with Path(f"{self.filename}.lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                if not _is_sound(self.filename):
                    aside = f"{self.filename}.damaged-{time.strftime('%Y%m%d-%H%M%S')}"
                    for end in _FILES:
                        with suppress(FileNotFoundError):
                            Path(self.filename + end).rename(aside + end)
                    logger.warning("%s was damaged (%s); it is now %s.", self._name, error, aside)
                SqliteStorage.initialize_schema(self)
        except (sqlite3.Error, OSError):
            return False
        return True


class RedisQueue(TolerantStorage, RedisStorage):  # type: ignore[misc]
    """The queue in Redis, with timeouts."""

    faults = (RedisError, OSError)

    def __init__(self, *args: Any, url: str, **options: Any) -> None:
        bounds = {"socket_connect_timeout": REDIS_SECONDS, "socket_timeout": REDIS_SECONDS}
        pool = ConnectionPool.from_url(url, **bounds)
        super().__init__(*args, connection_pool=pool, **options)

    @property
    def _name(self) -> str:
        return "The queue in Redis"

    def _first_scheduled(self) -> float | None:
        first = self.conn.zrange(self.schedule_key, 0, 0, withscores=True)
        return first[0][1] if first else None


def _inode(path: str) -> int | None:
    try:
        return Path(path).stat().st_ino
    except OSError:
        return None


def _is_sound(path: str) -> bool:
    """Return whether the file is a readable queue; false if it does not exist."""
    try:
        with closing(sqlite3.connect(f"{Path(path).as_uri()}?mode=rw", uri=True, timeout=5)) as connection:
            connection.execute("select count(*), max(data), max(priority) from task").fetchone()
            return bool(connection.execute("pragma quick_check(1)").fetchone() == ("ok",))
    except sqlite3.Error as error:
        return not _is_damage(error)


def _is_damage(error: Exception) -> bool:
    """Return whether the error means a damaged file, including a truncated one."""
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:
        return False
    return code == sqlite3.SQLITE_IOERR_SHORT_READ or code & 0xFF not in _PASSING
