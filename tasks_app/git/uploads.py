"""Files that a worker host sends in pieces (M1). Each grows in the portal's repository until it is complete.

An upload belongs to a task, so that the next holder of its lease on the same host goes on with it. A pack is
named by the checksum with which git ends it, and a content of Git LFS by its SHA-256.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
from pathlib import Path

from tasks_app.git.checksums import checksum_of, is_intact, sha256_of
from tasks_app.git.durable import move_file_into_place
from tasks_app.git.lfs import is_kept, path_of
from tasks_app.git.repository import Repository


class OffsetTaken(Exception):
    """The upload does not end where a piece begins."""


def upload_path(repository: Repository, task_id: int, name: str) -> Path:
    return repository.path / "uploads" / str(task_id) / name


def received(upload: Path) -> int:
    """Return the number of bytes that have arrived."""
    return upload.stat().st_size if upload.exists() else 0


def begin(upload: Path) -> None:
    """Remove other uploads of the task: one at a time is enough, and limits what a host can fill."""
    upload.parent.mkdir(parents=True, exist_ok=True)
    for other in upload.parent.iterdir():
        if other != upload:
            other.unlink(missing_ok=True)


def append(upload: Path, offset: int, piece: bytes) -> int:
    """Write a piece at the end of the upload, and return the new end. Raises OffsetTaken.

    A request of which nobody knows yet that its client is gone may still write: both write the same bytes.
    """
    with upload.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        if file.seek(0, 2) != offset:
            raise OffsetTaken
        file.write(piece)
    return offset + len(piece)


def is_complete(upload: Path) -> bool:
    """Return whether the upload is the pack of its name."""
    return upload.exists() and is_intact(upload) and checksum_of(upload) == upload.name


def is_content(name: str) -> bool:
    """Return whether the upload of this name is a content of Git LFS, and no pack."""
    return len(name) == hashlib.sha256().digest_size * 2


def keep_content(repository: Repository, upload: Path) -> bool:
    """Move an upload to where Git LFS keeps it, unless it is there. Return False if it is another content.

    Then it is removed.
    """
    kept = path_of(repository.path, upload.name)
    if is_kept(repository.path, upload.name):
        upload.unlink(missing_ok=True)
        return True
    if not upload.exists() or sha256_of(upload) != upload.name:
        upload.unlink(missing_ok=True)
        return False
    kept.parent.mkdir(parents=True, exist_ok=True)
    move_file_into_place(upload, kept, below=repository.path)
    return True


def remove_uploads(repository: Repository, task_id: int) -> None:
    """Remove all uploads of the task."""
    shutil.rmtree(upload_path(repository, task_id, "x").parent, ignore_errors=True)
