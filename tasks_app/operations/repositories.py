"""The portal's repositories in a backup: their refs as text, one pack of what these need, files of Git LFS.

git itself reads and writes, so that a repository which is being written to comes out whole, and so that
nothing which is not an object or a ref (a hook, a setting) travels with a backup.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from tasks_app.core.errors import BackupError, WorkspaceError
from tasks_app.git import Repository
from tasks_app.git.program import Git, valid_commit

#: A large repository takes its time.
_SECONDS = 6 * 3600.0
_LFS_NAME = re.compile(r"[0-9a-f]{64}")
_PIECE_BYTES = 1024 * 1024
_REF_FORMAT = "--format=%(objectname) %(refname)"


@dataclass(frozen=True)
class Contents:
    """What a repository holds at a moment: its refs as `COMMIT REF` lines, and commits that rows name."""

    refs: str
    commits: frozenset[str]
    missing: frozenset[str]

    @property
    def tips(self) -> list[str]:
        return sorted({line.split(" ", 1)[0] for line in self.refs.splitlines()} | self.commits)


def contents(repository: Repository, named: Collection[str]) -> Contents:
    """The refs as they are now, and which of the commits that rows name are there."""
    refs = repository.git.run("for-each-ref", _REF_FORMAT).decode()
    there = commits_in(repository.git, named)
    return Contents(refs, there, frozenset(named) - there)


def commits_in(git: Git, named: Collection[str]) -> frozenset[str]:
    """Those of `named` that are commits of the repository."""
    asked = "".join(f"{valid_commit(commit)}\n" for commit in sorted(named))
    told = git.run("cat-file", "--batch-check=%(objectname) %(objecttype)", stdin=asked.encode()).decode()
    return frozenset(line.split(" ")[0] for line in told.splitlines() if line.endswith(" commit"))


def packed(repository: Repository, tips: Collection[str]) -> Iterator[bytes]:
    """One pack with everything that can be reached from `tips`, as a stream.

    Raises WorkspaceError if an object is missing or damaged.
    """
    with tempfile.TemporaryFile() as wanted:
        wanted.write("".join(f"{tip}\n" for tip in tips).encode())
        wanted.seek(0)
        order = ("pack-objects", "--revs", "--stdout", "--delta-base-offset", "--quiet")
        yield from repository.git.stream(*order, timeout=_SECONDS, stdin=wanted)


def shallow_commits(repository: Repository) -> str:
    """The commits at which the history ends, because the source has no more; empty if it has all of it."""
    path = repository.path / "shallow"
    return path.read_text() if path.exists() else ""


def lfs_files(repository: Repository) -> Iterator[tuple[str, Iterator[bytes]]]:
    """Name and content of each file that Git LFS keeps beside git's own objects."""
    for path in sorted((repository.path / "lfs" / "objects").glob("??/??/" + "?" * 64)):
        if path.is_file() and not path.is_symlink() and _LFS_NAME.fullmatch(path.name):
            yield path.name, _pieces(path)


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(_PIECE_BYTES):
            yield piece


def append_lfs(path: Path, name: str, data: bytes) -> None:
    """Add a part of what `lfs_files` gave to the file of that name. Raises BackupError for a wrong name."""
    if not _LFS_NAME.fullmatch(name):
        raise BackupError(f"The backup has a file of Git LFS of a name that none has: {name!r}.")
    file = path / "lfs" / "objects" / name[:2] / name[2:4] / name
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("ab") as opened:
        opened.write(data)


def make(path: Path, *, refs: str, pack: Path | None, shallow: str = "") -> None:
    """A new bare repository at `path` from what `contents` and the others gave. Raises BackupError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Git().run("init", "--quiet", "--bare", "--template=", "--", str(path))
    git = Git(path)
    if shallow:  # before the objects come, or git misses the parents of these commits
        (path / "shallow").write_text(shallow)
    try:
        if pack is not None:
            with pack.open("rb") as file:
                git.run("index-pack", "--stdin", "--strict", stdin=file, timeout=_SECONDS)
        orders = (line.split(" ", 1) for line in refs.splitlines())
        updates = "".join(f"create {ref} {valid_commit(commit)}\n" for commit, ref in orders)
        git.run("update-ref", "--stdin", stdin=updates.encode())
    except (WorkspaceError, ValueError) as error:
        raise BackupError(f"A repository of the backup cannot be made again: {error}") from error
