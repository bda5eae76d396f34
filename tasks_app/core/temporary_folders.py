"""Folders that are recognised as abandoned once the processes that made or used them were killed.

Such a process locks the folder. The system releases the lock when the process ends, however that happens.
"""

from __future__ import annotations

import fcntl
import os
import re
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tasks_app.core.nofollow import open_folder_itself

#: What `tempfile` adds to a prefix.
_ADDED = r"[a-z0-9_]{8}"


@contextmanager
def temporary_folder(prefix: str, *, parent: Path | None = None) -> Iterator[Path]:
    """Make a folder in `parent` that exists until the context ends.

    If the process is killed before, `abandoned_folders` finds the folder: give it the prefix, too.
    """
    while True:
        folder = tempfile.TemporaryDirectory(prefix=prefix, dir=parent)
        lock = _lock(Path(folder.name), fcntl.LOCK_EX)
        if lock is not None:
            break
        folder.cleanup()  # somebody took it for an abandoned one before it was locked
    try:
        with folder as name:
            yield Path(name)
    finally:
        os.close(lock)


@contextmanager
def folder_in_use(folder: Path) -> Iterator[int]:
    """Lock a folder together with others that use it, and yield the descriptor that holds the lock.

    A program that inherits the descriptor holds the lock, too, even once this process was killed. Raises
    OSError.
    """
    descriptor = open_folder_itself(folder)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield descriptor
    finally:
        os.close(descriptor)


def is_unused(folder: Path) -> bool:
    """Return whether no process is within `folder_in_use` for this folder."""
    lock = _lock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    if lock is None:
        return False
    os.close(lock)
    return True


def abandoned_folders(parent: Path, *prefixes: str) -> Iterator[Path]:
    """Yield this user's temporary folders in `parent` whose processes have ended, each one locked.

    Earlier versions did not lock theirs. One with a socket on which a process listens is in use all the same.
    """
    names = re.compile(f"({'|'.join(map(re.escape, prefixes))}){_ADDED}")
    for path in sorted(parent.iterdir()) if parent.is_dir() else ():
        if not names.fullmatch(path.name) or (lock := _lock(path, fcntl.LOCK_EX | fcntl.LOCK_NB)) is None:
            continue
        try:
            if os.fstat(lock).st_uid == os.geteuid() and not _has_listener(path):
                yield path
        finally:
            os.close(lock)


def _lock(path: Path, operation: int) -> int | None:
    """Lock a folder and return its descriptor. None if it is in use, gone, unreadable or no folder."""
    try:
        descriptor = open_folder_itself(path)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, operation)
        if os.path.samestat(os.fstat(descriptor), path.lstat()):
            return descriptor
    except OSError:
        pass
    os.close(descriptor)
    return None


def _has_listener(folder: Path) -> bool:
    for path in folder.iterdir():
        if path.is_socket():
            with socket.socket(socket.AF_UNIX) as client:
                client.settimeout(1.0)
                try:
                    client.connect(str(path))
                except (ConnectionRefusedError, FileNotFoundError):
                    continue
                except OSError:
                    pass  # for example a full queue: somebody listens
                return True
    return False
