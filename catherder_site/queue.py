"""Serialisation of Huey's jobs, and the queue in a file for an installation without Redis.

The queue is only a hint. If it fails, a job is lost, and the sweeper finds its task.
"""

from __future__ import annotations

import fcntl
import logging
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing, suppress
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from django.core.signing import BadSignature, Signer
from huey.registry import Message
from huey.serializer import Serializer
from huey.storage import SqliteStorage

from tasks_app.core import wakeup

logger = logging.getLogger(__name__)

T = TypeVar("T")

#: Results of SQLite that pass: nothing is wrong with the file. A full disk may say so as a failed write.
_PASSING = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR}


class JobSerializer(Serializer):  # type: ignore[misc]
    """Signed JSON that says only which job, of which task, when. It replaces Huey's pickle.

    Worker hosts have the key, also when they were broken into: what they put into the queue must not run code
    on the portal's host.
    """

    def __init__(self, *, secret: str) -> None:
        super().__init__()
        self._signer = Signer(key=secret, salt="cat-herder-queue", fallback_keys=[])

    def serialize(self, message: Message) -> bytes:
        (task_id,) = message.args
        eta = message.eta and message.eta.isoformat()
        return self._signer.sign_object([message.id, message.name, task_id, eta]).encode()

    def deserialize(self, data: bytes) -> Message:
        """Raises ValueError for anything else than a job that a holder of the key has signed."""
        try:
            found = self._signer.unsign_object(data.decode())
        except (BadSignature, RecursionError):
            found = None
        match found:
            case [str(job), str(name), int(task_id), str() | None as eta] if not isinstance(task_id, bool):
                # Without a zone, as Huey compares it.
                when = datetime.fromisoformat(eta).replace(tzinfo=None) if eta else None
            case _:
                raise ValueError("this is no job")
        return Message(job, name, when, args=(task_id,), kwargs={}, retries=0, retry_delay=0, retry_backoff=0)


class QueueFile(SqliteStorage):  # type: ignore[misc]
    """The queue in an SQLite file. A damaged one is set aside, and a new one is made."""

    #: The folder with the pipes of this machine's workers. A file tells nobody that it has grown.
    pipes: Path
    _inode: int | None = None

    def __init__(self, *args: Any, filename: Path, **options: Any) -> None:
        self.pipes = filename.parent / "wakeup" / "workers"
        # No commit waits for the disk: a power cut may lose jobs or damage the file.
        super().__init__(*args, filename=str(filename), fsync=False, **options)

    def enqueue(self, data: bytes, priority: float | None = None) -> None:
        self._with_file(partial(super().enqueue, data, priority))
        wakeup.notify(self.pipes)

    def dequeue(self) -> bytes | None:
        found: bytes | None = self._with_file(super().dequeue)
        return found

    def initialize_schema(self) -> None:
        """Make the file and its tables, one process at a time. What fails here fails again when used."""
        with suppress(sqlite3.Error, OSError), Path(f"{self.filename}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if damage := self._find_damage():
                aside = f"{self.filename}.damaged-{time.strftime('%Y%m%d-%H%M%S')}"
                for end in ("", "-wal", "-shm", "-journal"):
                    with suppress(FileNotFoundError):
                        Path(self.filename + end).rename(aside + end)
                logger.warning("The queue %s was damaged (%s); it is now %s.", self.filename, damage, aside)
                self._find_damage()
        self._inode = _inode(self.filename)

    def _with_file(self, operation: Callable[[], T]) -> T:
        """Do the operation; with a new file if the present one was removed, replaced or damaged."""
        try:
            if _inode(self.filename) == self._inode:
                return operation()
        except sqlite3.Error as error:
            if not _is_damage(error):
                raise
        with suppress(AttributeError):  # another thread has closed it meanwhile
            self.close()
        self.initialize_schema()
        return operation()

    def _find_damage(self) -> str:
        """Make the tables that are missing. Return what is wrong with the file, or ""."""
        try:
            with closing(sqlite3.connect(self.filename, timeout=5, isolation_level=None)) as connection:
                for statement in self.ddl:
                    connection.execute(statement)
                (found,) = connection.execute("pragma quick_check(1)").fetchone()
        except sqlite3.Error as error:
            if not _is_damage(error):
                raise
            return str(error)
        return "" if found == "ok" else str(found)


def _inode(path: str) -> int | None:
    try:
        return Path(path).stat().st_ino
    except OSError:
        return None


def _is_damage(error: sqlite3.Error) -> bool:
    """Return whether the error means a damaged file, including a truncated one."""
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:
        return False
    return code == sqlite3.SQLITE_IOERR_SHORT_READ or code & 0xFF not in _PASSING
