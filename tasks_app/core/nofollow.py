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

#: Links on the way of one path.
MAX_LINKS = 20

_FOLDER = os.O_RDONLY | os.O_DIRECTORY


class NotRegularFile(OSError):
    """There is something else than a file: a folder, a pipe, a device."""


def open_folder_itself(path: Path) -> int:
    """Return the descriptor of a folder. Raise OSError if it is a link, or no folder."""
    return os.open(path, _FOLDER | os.O_NOFOLLOW)


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


def path_inside(root: Path, path: str) -> str:
    """Return where `path` leads below `root` through links that stay inside, for `open_file`.

    Raise OSError if a link leads outside, or if there are too many. What is not there is returned as it is.
    """
    waiting, found, links = _path_parts(path)[::-1], list[str](), 0
    while waiting:
        name = waiting.pop()
        if name == "..":
            if not found:
                raise OSError(errno.EXDEV, "A link leads outside", path)
            found.pop()
            continue
        try:
            target = root.joinpath(*found, name).readlink()
        except OSError:  # no link, or nothing
            found.append(name)
            continue
        links += 1
        if target.is_absolute():
            raise OSError(errno.EXDEV, "A link leads outside", path)
        if links > MAX_LINKS:
            raise OSError(errno.ELOOP, "Too many links", path)
        waiting += reversed(target.parts)
    return "/".join(found)


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
