"""Writing that survives a power cut: new names in a folder are lost unless the folder is synced, too."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable
from pathlib import Path


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


def sync_tree(folder: Path) -> None:
    """Sync `folder`, all folders in it at any depth, and its parent. Raises OSError."""
    sync_folders([folder.parent, *(Path(where) for where, _, _ in os.walk(folder))])


def move_into_place(fresh: Path, path: Path) -> None:
    """Write everything in the folder `fresh` to the disk, then rename it to `path`.

    So the folder at `path` is complete or missing after a power cut. Raises OSError.
    """
    _sync_file_system(fresh)
    fresh.replace(path)
    sync_folder(path.parent)


def _sync_file_system(folder: Path) -> None:
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
