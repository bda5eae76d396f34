"""Bundles: what a mirror lacks of a repository, in a file of git's own format (M1).

The portal makes each once, and worker hosts download it in pieces. Bundles are in the portal's repository, in
the folder `bundles`: those with what the project's source has in `source`, for every task of the project, and
those with the work of a task in a folder of that task.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tasks_app.git.lfs import objects_of
from tasks_app.git.repository import Repository

SOURCE = "source"
#: Seconds after its last use that a bundle, or an unfinished upload, is kept.
KEPT_SECONDS = 24 * 3600.0
#: Maximum number of bundles of a repository.
MOST_BUNDLES = 8
_COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True)
class BundleOrder:
    """A bundle to be made: `arguments` say what git puts into it. Equal orders have the same path."""

    folder: Path
    arguments: tuple[str, ...]

    @property
    def name(self) -> str:
        return hashlib.sha256(self.stdin).hexdigest()

    @property
    def path(self) -> Path:
        return self.folder / self.name

    @property
    def stdin(self) -> bytes:
        """What `git bundle create - --stdin` reads."""
        return "".join(f"{line}\n" for line in self.arguments).encode()


def order_bundle(
    repository: Repository, scopes: Mapping[str, Sequence[str]], have: Sequence[str]
) -> BundleOrder | None:
    """Return an order for the first of the scopes of which something lacks, or None.

    A scope is a folder of bundles with the folders of references that belong in there. `have` are the commits
    of the mirror.
    """
    if (repository.path / "shallow").exists():
        return None  # a bundle cannot say where a shallow history ends
    known = tuple(f"^{commit}" for commit in _existing(repository, have))
    for scope, folders in scopes.items():
        listed = repository.git.line("for-each-ref", "--format=%(objectname) %(refname)", *folders)
        refs = {ref: commit for commit, ref in (line.split() for line in listed.splitlines())}
        tips = tuple(sorted({*refs.values()}))
        if refs and _has_new_commits(repository, (*tips, *known)):
            # The commits are a part of the order, so that it is another one once a reference has moved.
            return BundleOrder(_folder(repository, scope), (*sorted(refs), *tips, *known))
    return None


def _existing(repository: Repository, have: Sequence[str]) -> list[str]:
    """Return those commits that the repository has, too."""
    asked = "".join(f"{one}\n" for one in sorted(set(have)) if _COMMIT.fullmatch(one)).encode()
    if not asked:
        return []
    found = repository.git.run("cat-file", "--batch-check=%(objecttype) %(objectname)", stdin=asked)
    return [
        line.removeprefix("commit ") for line in found.decode().splitlines() if line.startswith("commit ")
    ]


def _has_new_commits(repository: Repository, arguments: Sequence[str]) -> bool:
    lines = "".join(f"{line}\n" for line in arguments).encode()
    return bool(repository.git.run("rev-list", "--max-count=1", "--stdin", stdin=lines).strip())


def _folder(repository: Repository, scope: str) -> Path:
    return repository.path / "bundles" / scope


def find_bundle(repository: Repository, scopes: Sequence[str], name: str) -> Path | None:
    """Return the bundle of this name if it is in one of the scopes, and keep it for longer."""
    for path in (_folder(repository, scope) / name for scope in scopes):
        with suppress(FileNotFoundError):
            os.utime(path)
            return path
    return None


def remove_old_transfers(git_directory: Path) -> None:
    """Remove bundles that are old or too many, and uploads that nobody has gone on with.

    A portal that is killed while it receives a content of Git LFS leaves a part of it.
    """
    bundles = sorted(_files(git_directory / "bundles"), key=lambda entry: -entry[0])
    parts = _files(objects_of(git_directory), "??/??/*.part")
    uploads = [*_files(git_directory / "uploads"), *parts]
    until = time.time() - KEPT_SECONDS
    for place, (at, path) in enumerate(bundles):
        if at < until or place >= MOST_BUNDLES:
            path.unlink(missing_ok=True)
    for at, path in uploads:
        if at < until:
            path.unlink(missing_ok=True)


def _files(folder: Path, pattern: str = "*/*") -> list[tuple[float, Path]]:
    """Return the files with the times when they were last used; by default those one folder below."""
    found = []
    for path in folder.glob(pattern):
        with suppress(FileNotFoundError):
            found.append((path.stat().st_mtime, path))
    return found
