"""The portal's repositories in a backup: refs as text, one pack of all objects, and files of Git LFS.

git itself reads and writes them, so that a repository that is being written to is consistent, and hooks and
settings are not part of a backup.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from tasks_app.core.errors import BackupError, WorkspaceError
from tasks_app.git import Repository
from tasks_app.git.lfs import contents_in, path_of
from tasks_app.git.names import valid_commit
from tasks_app.git.program import Git

#: Timeout for packing large repositories.
_TIMEOUT_SECONDS = 6 * 3600.0
_LFS_NAME = re.compile(r"[0-9a-f]{64}")
_PIECE_BYTES = 1024 * 1024
_REF_FORMAT = "--format=%(objectname) %(refname)"


@dataclass(frozen=True)
class Contents:
    """The refs of a repository as `COMMIT REF` lines, and the existing and missing commits of rows."""

    refs: str
    commits: frozenset[str]
    missing: frozenset[str]

    @property
    def tips(self) -> list[str]:
        return sorted({line.split(" ", 1)[0] for line in self.refs.splitlines()} | self.commits)


def contents(repository: Repository, named: Collection[str]) -> Contents:
    """Return the current refs, and which of the named commits exist."""
    refs = repository.git.run("for-each-ref", _REF_FORMAT).decode()
    there = commits_in(repository.git, named)
    return Contents(refs, there, frozenset(named) - there)


def commits_in(git: Git, named: Collection[str]) -> frozenset[str]:
    """Return the ids in `named` that are commits of the repository."""
    names = "".join(f"{valid_commit(commit)}\n" for commit in sorted(named))
    output = git.run("cat-file", "--batch-check=%(objectname) %(objecttype)", stdin=names.encode()).decode()
    return frozenset(line.split(" ")[0] for line in output.splitlines() if line.endswith(" commit"))


def pack_objects(repository: Repository, tips: Collection[str]) -> Iterator[bytes]:
    """Yield one pack with everything that is reachable from `tips`.

    Raises WorkspaceError if an object is missing or damaged.
    """
    with tempfile.TemporaryFile() as wanted:
        wanted.write("".join(f"{tip}\n" for tip in tips).encode())
        wanted.seek(0)
        command = ("pack-objects", "--revs", "--stdout", "--delta-base-offset", "--quiet")
        yield from repository.git.stream(*command, timeout=_TIMEOUT_SECONDS, stdin=wanted)


def shallow_commits(repository: Repository) -> str:
    """Return the commits at which a shallow history ends, or ""."""
    path = repository.path / "shallow"
    return path.read_text() if path.exists() else ""


def lfs_files(repository: Repository) -> Iterator[tuple[str, Iterator[bytes]]]:
    """Yield name and content of each file of Git LFS."""
    for path in contents_in(repository.path):
        if path.is_file() and not path.is_symlink() and _LFS_NAME.fullmatch(path.name):
            yield path.name, _read_pieces(path)


def _read_pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(_PIECE_BYTES):
            yield piece


def append_lfs(path: Path, name: str, data: bytes) -> None:
    """Append a part of a file from `lfs_files`. Raises BackupError for an invalid name."""
    if not _LFS_NAME.fullmatch(name):
        raise BackupError(f"The backup has a file of Git LFS with an invalid name: {name!r}.")
    file = path_of(path, name)
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("ab") as opened:
        opened.write(data)


def restore_repository(path: Path, *, refs: str, pack: Path | None, shallow: str = "") -> None:
    """Create a bare repository from its refs, pack and shallow commits. Raises BackupError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Git().run("init", "--quiet", "--bare", "--template=", "--", str(path))
    git = Git(path)
    if shallow:  # first, or git misses the parents of these commits
        (path / "shallow").write_text(shallow)
    try:
        if pack is not None:
            with pack.open("rb") as file:
                git.run("index-pack", "--stdin", "--strict", stdin=file, timeout=_TIMEOUT_SECONDS)
        pairs = (line.split(" ", 1) for line in refs.splitlines())
        updates = "".join(f"create {ref} {valid_commit(commit)}\n" for commit, ref in pairs)
        git.run("update-ref", "--stdin", stdin=updates.encode())
    except (WorkspaceError, ValueError) as error:
        raise BackupError(f"A repository of the backup cannot be restored: {error}") from error
