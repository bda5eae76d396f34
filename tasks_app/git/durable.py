"""Writing that survives a power cut: new names in a folder are lost unless the folder is synced, too."""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from tasks_app.core.temporary_folders import folder_in_use


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

    With `changed_within`, leave out folders whose names are older than so many seconds: the system has
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
