"""The files of the data directory that only the portal's user may read: permissions, key, stored URL."""

from __future__ import annotations

import os
import secrets
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
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
            _restrict_file(file)
    except OSError as error:
        raise BadSetting(
            f"CATHERDER_DATA_DIR: {error.filename or path} can be read by other users of this machine and "
            f"belongs to another user, so it cannot be closed to them ({error.strerror}). "
            f"As its owner run: chmod -R go= {path}"
        ) from error


def _restrict_file(file: Path) -> None:
    """Remove permissions of others. SQLite's journals come and go, and links may lead outside."""
    with suppress(FileNotFoundError):
        mode = file.lstat().st_mode
        if stat.S_ISREG(mode) and mode & _GROUP_AND_OTHERS:
            file.chmod(0o600)


def store_url(data_dir: Path, url: str) -> None:
    """Store the URL for terminal commands, which may have another CATHERDER_BIND than `up`."""
    (data_dir / _URL_FILE).write_text(f"{url}\n")


def stored_url(data_dir: Path) -> str:
    """Return the URL that `store_url` stored; "" if there is none that can be read."""
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
