"""Writing that survives a power cut: new names in a folder are lost unless the folder is synced, too."""

from __future__ import annotations

import ctypes
import errno
import hashlib
import os
import threading
import time
from collections.abc import Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Generic, TypeVar
from uuid import uuid4

from tasks_app.core.files import folder_in_use


def sync_folder(folder: Path) -> None:
    """Write the names in `folder` to the disk, if the folder still exists. Raises OSError."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folders(folders: Iterable[Path]) -> None:
    """Sync each folder once. Raises OSError."""
    for folder in sorted(set(folders)):
        sync_folder(folder)


def sync_tree(folder: Path, *, changed_within: float | None = None) -> None:
    """Sync `folder`, all folders in it at any depth, and its parent. Raises OSError.

    With `changed_within` (seconds), leave out folders whose names are older: the system has
    written them by itself. Newer ones may be of a process that was killed before it synced them.
    """
    folders = [folder.parent, *(Path(where) for where, _, _ in os.walk(folder))]
    if changed_within is not None:
        since = time.time() - changed_within
        folders = [one for one in folders if one.exists() and one.stat().st_mtime >= since]
    sync_folders(folders)


def move_into_place(fresh: Path, path: Path) -> None:
    """Write everything in the folder `fresh` to the disk, then rename it to `path`.

    So the folder at `path` is complete or missing after a power cut. Raises OSError.
    """
    sync_file_system(fresh)
    fresh.replace(path)
    sync_folder(path.parent)


@contextmanager
def temporary_name(path: Path) -> Iterator[Path]:
    """Yield a name beside `path` that nobody else uses, in a folder that exists and is locked as in use.

    What still has this name afterwards is removed.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f"{path.name}.{uuid4().hex}.part")
    with folder_in_use(path.parent):
        try:
            yield fresh
        finally:
            fresh.unlink(missing_ok=True)


def move_file_into_place(fresh: Path, path: Path, *, below: Path) -> None:
    """Write the file `fresh` to the disk, then rename it to `path`, and sync the folders from `below` on.

    So the file at `path` is complete or missing after a power cut. Raises OSError.
    """
    with fresh.open("rb") as file:
        os.fsync(file.fileno())
    fresh.replace(path)
    sync_folders(folder for folder in path.parents if folder.is_relative_to(below))


def sync_file_system(folder: Path) -> None:
    """Sync the folder's whole file system at once if possible: a clone may have a hundred thousand files."""
    syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    if syncfs is None:
        os.sync()
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if syncfs(descriptor) != 0:
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error), str(folder))
    finally:
        os.close(descriptor)


# Noticing that nothing in a workspace has changed since it was recorded, without starting git.
#
# Runs that only ask or look change nothing, and a recording starts a dozen processes. A fingerprint covers
# what the recording reads: each entry of the workspace with its git directory, by inode, kind, size and both
# times. The agent can set the time of modification, but not that of the last change (ctime): the kernel sets
# it whenever content, name or rights of a file change, also through a hard link or a mapping, from wherever.
# To set the clock takes rights that no sandboxed process has. tmpfs does not set it for a mapping, so only
# file systems count of which this is known.
#
# Both are taken while no process of the agent lives. What is remembered is in this process's memory: after a
# restart the files are recorded as ever.


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
        if known and found is not None and known[0] == found:
            return known[1]
        return None

    def put(self, key: Hashable, found: str | None, result: T) -> None:
        """Remember a result, or forget the former one without a fingerprint."""
        with self._lock:
            self._results.pop(key, None)
            if found is not None:
                self._results[key] = found, result
            while len(self._results) > MOST_REMEMBERED:
                del self._results[next(iter(self._results))]
