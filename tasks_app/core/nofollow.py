"""Opening files in folders that an agent or another user can write to, without following links.

A link could lead to any file of the portal, and a pipe would block its reader for ever. Folders are opened
one after the other: a path that was checked as a whole could become a link before it is opened. Only the root
that a caller names is trusted.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path, PurePosixPath
from typing import IO

#: A trusted folder, or the descriptor of a folder that is open.
Root = Path | int

_FOLDER = os.O_RDONLY | os.O_DIRECTORY


class NotRegularFile(OSError):
    """There is something else than a file: a folder, a pipe, a device."""


@contextmanager
def open_folder(root: Root, path: str | PurePosixPath = "") -> Iterator[int]:
    """Open the folder at `path` below `root`. Raise OSError if a part is missing, a link or not a folder."""
    with ExitStack() as opened:
        folder = root if isinstance(root, int) else _keep(opened, os.open(root, _FOLDER))
        for name in _path_parts(path):
            folder = _keep(opened, os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=folder))
        yield folder


@contextmanager
def open_file(root: Root, path: str | PurePosixPath) -> Iterator[IO[bytes]]:
    """Open the file at `path` below `root` for reading.

    Raise OSError if it is missing or a part of its path is a link, NotRegularFile if it is not a file.
    """
    *folders, name = _path_parts(path) or [""]
    with open_folder(root, PurePosixPath(*folders)) as folder:
        # Without blocking: opening a pipe would wait for its writer.
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise NotRegularFile(errno.EINVAL, "Not a regular file", str(path))
        with os.fdopen(descriptor, "rb") as file:
            yield file


def open_pipe_to_write(path: str) -> int:
    """Open a named pipe without waiting. Raise OSError if it has no reader (ENXIO), or if it is a link."""
    return os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW)


def create_file(root: Root, name: str, *, mode: int, overwrite: bool = False) -> IO[bytes]:
    """Create a file in `root` for writing and reading. Raise OSError if there is one, or a link.

    With `overwrite`, a file that is there is emptied; a link is refused all the same.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | (os.O_TRUNC if overwrite else os.O_EXCL)
    with open_folder(root) as folder:
        return os.fdopen(os.open(name, flags, mode, dir_fd=folder), "w+b")


def _keep(opened: ExitStack, descriptor: int) -> int:
    opened.callback(os.close, descriptor)
    return descriptor


def _path_parts(path: str | PurePosixPath) -> list[str]:
    """Return the names on the way. Raise OSError for a path that leads elsewhere or cannot exist."""
    parts = PurePosixPath(path).parts
    if any(name in ("/", "//", "..") or "\0" in name for name in parts):
        raise OSError(errno.EINVAL, "Not a path below the folder", str(path))
    return list(parts)
