"""Contents that Git LFS keeps outside of git: which a push must bring along, and bringing them.

The portal keeps the contents that tasks added beside its repository, see `recording.py`. What the source had
before is not there, and is not needed: the remote is asked to have it.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from tasks_app.core.errors import PublishingFailed
from tasks_app.git.durable import move_file_into_place, temporary_name
from tasks_app.git.names import valid_commit
from tasks_app.git.program import Git, split_stream
from tasks_app.git.repository import Repository

#: A pointer in the output of `git cat-file --batch`. Text that only looks so names nothing that is kept here.
POINTER = re.compile(
    rb"^version https://git-lfs\.github\.com/spec/v1\n(?:ext-.*\n)*oid sha256:([0-9a-f]{64})$", re.M
)
#: Bytes of a pointer: it has three short lines, and more with extensions.
POINTER_BYTES = range(100, 513)
#: Number of new objects that are looked at together: a task may add millions, and up to 512 bytes of each
#: are in memory.
_BATCH = 10_000
#: What a portal says to a worker host of a content that it does not have.
NOT_KEPT = "The portal does not have this content"
#: What git says of a pack, and a portal of a content, that is larger than it takes.
TOO_LARGE = "exceeds maximum allowed size"
#: Seconds for finding all contents, and for uploading them.
UPLOAD_SECONDS = 1800.0


def added_contents(repository: Repository, commit: str) -> list[str]:
    """Return the names of contents that the commit has, the source has not, and the portal keeps."""
    if not objects_of(repository.path).is_dir():
        return []
    git = repository.git
    new = (valid_commit(commit), "--not", "--glob=refs/source/*")
    words = ("rev-list", "--objects", "--no-object-names", *new)
    objects = split_stream(git.stream(*words, timeout=UPLOAD_SECONDS), b"\n")
    named = dict.fromkeys(_named_in(git, objects))
    return [name for name in named if path_of(repository.path, name).is_file()]


def all_named(repository: Repository) -> Iterator[str]:
    """Yield the names of contents in all objects of the repository, also in those that nothing names."""
    words = ("cat-file", "--batch-all-objects", "--unordered", "--batch-check=%(objectname)")
    objects = repository.git.stream(*words, timeout=UPLOAD_SECONDS)
    yield from _named_in(repository.git, split_stream(objects, b"\n"))


def _named_in(git: Git, objects: Iterator[bytes]) -> Iterator[str]:
    """Yield the names in those of the objects that may be pointers."""
    while batch := list(islice(objects, _BATCH)):
        small = _small_blobs(git, batch)
        contents = git.run("cat-file", "--batch", stdin=small) if small else b""
        yield from (pointer[1].decode() for pointer in POINTER.finditer(contents))


def is_kept(git_directory: Path, name: str) -> bool:
    """Return whether a content is there, and let it count as used now, so that it is not removed."""
    path = path_of(git_directory, name)
    try:
        os.utime(path)
    except FileNotFoundError:
        return False
    except OSError:
        return path.is_file()
    return True


def _small_blobs(git: Git, objects: Sequence[bytes]) -> bytes:
    """Return the ids of the blobs that may be pointers, a line each."""
    wanted = b"".join(name + b"\n" for name in objects)
    listed = git.run("cat-file", "--batch-check=%(objectname) %(objecttype) %(objectsize)", stdin=wanted)
    rows = (line.split() for line in listed.decode().splitlines())
    found = [name for name, kind, size in rows if kind == "blob" and int(size) in POINTER_BYTES]
    return "".join(f"{name}\n" for name in found).encode()


def path_of(git_directory: Path, name: str) -> Path:
    """Return where Git LFS keeps a content in a git directory."""
    return objects_of(git_directory) / name[:2] / name[2:4] / name


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of the whole file, which is what Git LFS names a content by."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def objects_of(git_directory: Path) -> Path:
    """Return the folder in which Git LFS keeps all contents."""
    return git_directory / "lfs" / "objects"


def contents_in(git_directory: Path) -> list[Path]:
    """Return the files in which Git LFS keeps contents, sorted. An agent may have written them."""
    return sorted(objects_of(git_directory).glob("??/??/" + "?" * 64))


def copy_contents(repository: Repository, names: list[str], folder: Path) -> None:
    """Copy contents to a repository in a folder, where Git LFS looks for them. Raises PublishingFailed."""
    own = git_directory_in(folder)
    try:
        for name in names:
            target, kept = path_of(own, name), path_of(repository.path, name)
            # After a power cut or a full disk, a part of the content may be there.
            if target.exists() and target.stat().st_size == kept.stat().st_size:
                continue
            with temporary_name(target) as fresh:
                shutil.copyfile(kept, fresh)
                move_file_into_place(fresh, target, below=own)
    except OSError as error:
        raise PublishingFailed(
            f"The files of Git LFS cannot be written to {folder}: {error.strerror}. Nothing was published."
        ) from None


def git_directory_in(folder: Path) -> Path:
    """Return the git directory of a repository in a folder, which itself is that of a bare one."""
    return folder / ".git" if (folder / ".git").is_dir() else folder


def endpoint_of(url: str) -> str:
    """Return the endpoint of Git LFS of a repository at an https URL."""
    root = url.rstrip("/")
    return f"{root}{'' if root.endswith('.git') else '.git'}/info/lfs"


def endpoint_settings(endpoint: str) -> tuple[str, ...]:
    """Return git's settings for exchanging contents with an endpoint: no file of the repository names it."""
    return (
        f"lfs.url={endpoint}",
        # Git LFS prefers this one, and would read it from the `.lfsconfig` of a commit.
        f"lfs.pushurl={endpoint}",
        f"lfs.{endpoint}.locksverify=false",
        "lfs.repositoryformatversion=0",
        "lfs.activitytimeout=30",
        "lfs.transfer.maxretries=3",
    )


def is_installed() -> bool:
    return shutil.which("git-lfs") is not None
