"""Writing that survives a power cut: what was put into a folder is lost unless the folder is synced too."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable
from pathlib import Path


def sync_folder(folder: Path) -> None:
    """Put the names in `folder` on the disk. Nothing if the folder is gone meanwhile. Raises OSError."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folders(folders: Iterable[Path]) -> None:
    """Each folder once. Raises OSError."""
    for folder in sorted(set(folders)):
        sync_folder(folder)


def sync_tree(folder: Path) -> None:
    """`folder`, the folders in it at any depth, and the folder that holds it. Raises OSError."""
    sync_folders([folder.parent, *(Path(where) for where, _, _ in os.walk(folder))])


def move_into_place(fresh: Path, path: Path) -> None:
    """Give the whole folder `fresh` the name `path`, with everything in it on the disk before.

    What stands at `path` after a power cut is therefore whole, or not there. Raises OSError.
    """
    _sync_all(fresh)
    fresh.replace(path)
    sync_folder(path.parent)


def _sync_all(folder: Path) -> None:
    """All of the file system at once, where the system can: a clone may have a hundred thousand files."""
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
