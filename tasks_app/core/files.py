"""Files and folders: private, abandoned, in an untrusted place, and in /proc.

The key and the stored URL of the data directory are for the portal's user only.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
import socket
import stat
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import IO
from uuid import UUID, uuid4

from tasks_app.core.errors import BadSetting

#: The URL at which `up` listened last.
_URL_FILE = "address"
#: Files of the portal in its data directory.
_PRIVATE_FILES = ("secret_key", "*.sqlite3", "*.sqlite3-wal", "*.sqlite3-shm", "installation-id", "up.lock")
_GROUP_AND_OTHERS = 0o077


def prepare_data_dir(path: Path) -> Path:
    """Create the data directory, or restrict an existing one, so that only this user can read it.

    Raises BadSetting if it cannot be written or restricted, or has files of other programs.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        # A random name, because all processes of the portal do this at the same time.
        tempfile.TemporaryFile(dir=path).close()
    except OSError as error:
        raise BadSetting(f"CATHERDER_DATA_DIR: {path} cannot be written ({error.strerror})") from error
    _restrict_data_dir(path)
    return path


def _restrict_data_dir(path: Path) -> None:
    """Remove permissions of others, for example in a directory that was created by hand or copied."""
    files = [file for name in _PRIVATE_FILES for file in path.glob(name)]
    try:
        if path.stat().st_mode & _GROUP_AND_OTHERS:
            if not files and any(one.name != "lost+found" for one in path.iterdir()):
                raise BadSetting(
                    f"CATHERDER_DATA_DIR: {path} can be read by others and holds files that are not Cat "
                    f"Herder's. Name a directory of its own, or close this one: chmod 700 {path}"
                )
            path.chmod(0o700)
        for file in files:
            # SQLite's journals come and go, and links may lead outside.
            with suppress(FileNotFoundError):
                mode = file.lstat().st_mode
                if stat.S_ISREG(mode) and mode & _GROUP_AND_OTHERS:
                    file.chmod(0o600)
    except OSError as error:
        raise BadSetting(
            f"CATHERDER_DATA_DIR: {error.filename or path} can be read by other users of this machine and "
            f"belongs to another user, so it cannot be closed to them ({error.strerror}). "
            f"As its owner run: chmod -R go= {path}"
        ) from error


def store_url(data_dir: Path, url: str) -> None:
    """Store the URL for terminal commands, which may have another CATHERDER_BIND than `up`."""
    (data_dir / _URL_FILE).write_text(f"{url}\n")


def stored_url(data_dir: Path) -> str:
    """Return the URL that `store_url` stored; "" if none can be read."""
    with suppress(OSError, ValueError):
        return (data_dir / _URL_FILE).read_text().strip()
    return ""


def stored_secret_key(data_dir: Path) -> str:
    """Return the secret key in the data directory, which is created if necessary."""
    path = data_dir / "secret_key"
    if not path.exists():
        _create_file(path, secrets.token_urlsafe(48))
    return path.read_text().strip()


def stored_id(data_dir: Path) -> UUID:
    """Return the id of a worker host's data directory, which is created if necessary."""
    path = data_dir / "worker-host-id"
    if not path.exists():
        _create_file(path, str(uuid4()))
    return UUID(path.read_text().strip())


def _create_file(path: Path, text: str) -> None:
    """Write the text under a temporary name, then link it: another process may be starting too."""
    descriptor, unnamed = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(descriptor)
        with suppress(FileExistsError):
            path.hardlink_to(unnamed)
    finally:
        Path(unnamed).unlink()


# Folders that are recognised as abandoned once the processes that made or used them were killed.
#
# Such a process locks the folder. The system releases the lock when the process ends, however that happens.


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


# Opening files in folders that an agent or another user can write to, without following links.
#
# A link could lead to any file of the portal, and a pipe would block its reader for ever. Folders are opened
# one after the other: a path that was checked as a whole could become a link before it is opened. Only the
# root that a caller names is trusted.


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


# Files in /proc about the processes of this machine.
#
# They are read of every process, for each connection and before each run of an agent, so not with pathlib,
# which takes three times as long.


_READ_BYTES = 1 << 16


def process_ids() -> list[int]:
    with os.scandir("/proc") as entries:
        return [int(entry.name) for entry in entries if entry.name.isdecimal()]


def read_process_file(pid: int | str, name: str) -> bytes:
    """Return the content of /proc/PID/NAME. Raises OSError if the process has ended or is not ours."""
    descriptor = os.open(f"/proc/{pid}/{name}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        content = b""
        while part := os.read(descriptor, _READ_BYTES):
            content += part
        return content
    finally:
        os.close(descriptor)
