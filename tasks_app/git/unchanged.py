"""Noticing that nothing in a workspace has changed since it was recorded, without starting git.

Runs that only ask or look change nothing, and a recording starts a dozen processes. A fingerprint covers what
the recording reads: each entry of the workspace with its git directory, by inode, kind, size and both times.
The agent can set the time of modification, but not that of the last change (ctime): the kernel sets it
whenever content, name or rights of a file change, also through a hard link or a mapping, from wherever. To
set the clock takes rights that no sandboxed process has. tmpfs does not set it for a mapping, so only file
systems count of which this is known.

Both are taken while no process of the agent lives. What is remembered is in this process's memory: after a
restart the files are recorded as ever.
"""

from __future__ import annotations

import errno
import hashlib
import os
import threading
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Generic, TypeVar

#: Workspaces with more entries are recorded each time: to look at all of them would take as long.
MOST_ENTRIES = 20_000
#: Workspaces that are remembered; of others the oldest are forgotten.
MOST_REMEMBERED = 1_000

#: They set the time of the last change for every change, also through a mapping.
_FILE_SYSTEMS = {"ext2", "ext3", "ext4", "f2fs", "overlay", "xfs"}
_MOUNTS = Path("/proc/self/mountinfo")

T = TypeVar("T")


def fingerprint(folders: Sequence[Path]) -> str | None:
    """Return a fingerprint of all that is in the folders; None if that is too much, or cannot be read.

    Links are not followed. All must be on one file system that sets the times of changes.
    """
    digest = hashlib.blake2b(digest_size=32)
    left = MOST_ENTRIES
    waiting = [os.fsencode(folder) for folder in folders]
    try:
        device = os.lstat(waiting[0]).st_dev
        if _file_system(device) not in _FILE_SYSTEMS:
            return None
        for folder in waiting:
            _add(digest, folder, os.lstat(folder), device)
        while waiting:
            with os.scandir(waiting.pop()) as found:
                entries = sorted(found, key=lambda entry: entry.name)
            if (left := left - len(entries)) < 0:
                return None
            for entry in entries:
                _add(digest, entry.path, entry.stat(follow_symlinks=False), device)
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
    except OSError:
        return None
    return digest.hexdigest()


def _file_system(device: int) -> str:
    """Return the kind of file system that is mounted from the device; "" if that is not known."""
    number = f"{os.major(device)}:{os.minor(device)}"
    for line in _MOUNTS.read_text().splitlines():
        words = line.split(" ")
        if words[2] == number:
            return words[words.index("-") + 1]
    return ""


def _add(digest: hashlib.blake2b, path: bytes, status: os.stat_result, device: int) -> None:
    """Add an entry. Raises OSError if it is on another file system."""
    if status.st_dev != device:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), os.fsdecode(path))
    numbers = (
        status.st_ino, status.st_mode, status.st_uid, status.st_gid,
        status.st_size, status.st_mtime_ns, status.st_ctime_ns,
    )  # fmt: skip
    digest.update(path + b"\0" + repr(numbers).encode() + b"\0")


class Remembered(Generic[T]):
    """The last result for each key, with the fingerprint of what it was made of."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._results: dict[Hashable, tuple[str, T]] = {}

    def get(self, key: Hashable, found: str | None) -> T | None:
        """Return the result for the key if it was made of what has this fingerprint."""
        with self._lock:
            known = self._results.get(key)
        return known[1] if known and found is not None and known[0] == found else None

    def put(self, key: Hashable, found: str | None, result: T) -> None:
        """Remember a result, or forget the former one if there is no fingerprint."""
        with self._lock:
            self._results.pop(key, None)
            if found is not None:
                self._results[key] = found, result
            while len(self._results) > MOST_REMEMBERED:
                del self._results[next(iter(self._results))]
