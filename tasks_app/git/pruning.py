"""Removing objects of a repository that no reference names any more: of pushes that came to nothing, and of
branches that the source has rewritten. Then contents of Git LFS that no object names any more."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from tasks_app.core.files import is_unused
from tasks_app.git.durable import sync_tree, temporary_name
from tasks_app.git.lfs import all_named, contents_in
from tasks_app.git.recording import remove_tree
from tasks_app.git.repository import Repository

#: References to commits that rows name and nothing else does.
KEPT = "refs/cat-herder-kept"
_SECONDS = 3600.0
#: Objects, packs and quarantines of pushes that git had not finished, and its locks.
_UNFINISHED = (
    "objects/??/tmp_obj_*", "objects/pack/tmp_*", "objects/pack/.tmp-*", "objects/tmp_objdir-*",
    "objects/incoming-*", "*.lock", "refs/**/*.lock", "objects/info/**/*.lock", "objects/pack/*.lock",
    "objects/pack/*.keep",
)  # fmt: skip
#: Contents of Git LFS that were copied.
_UNFINISHED_CONTENTS = "lfs/objects/??/??/*.part"


@dataclass(frozen=True)
class Pruned:
    """The bytes that a pruning `freed`, or why it did nothing."""

    freed: int = 0
    kept: str = ""


def prune(repository: Repository, *, unused_since: datetime, named: Callable[[], Iterable[str]]) -> Pruned:
    """Remove objects that no reference names, and contents that no object names, older than `unused_since`.

    Recordings and pushes go on: what they bring, or find and use again, is younger. An object's age counts
    from when git last wrote it, so one that `tidy` has moved stays longer. `named` returns the commits that
    must stay without a reference; it is asked under the lock that fetches take. Raises WorkspaceError.
    """
    with repository.locked_within(0) as locked:
        if not locked:
            return Pruned(kept="another process fetches, tidies or saves it")
        _keep(repository, named())
        until = int(unused_since.timestamp())
        freed = 0
        if _has_unnamed_objects(repository):
            freed = _prune_objects(repository, until)
        return Pruned(freed=freed + _prune_contents(repository, until))


def _prune_objects(repository: Repository, until: int) -> int:
    objects = repository.path / "objects"
    before = _size(objects)
    words = ("-c", "repack.writeBitmaps=false", "repack", "-a", "-d", "--quiet", "--cruft")
    repository.git.run(*words, f"--cruft-expiration=@{until}", timeout=_SECONDS)
    repository.git.run("prune", f"--expire=@{until}", timeout=_SECONDS)
    sync_tree(objects)
    return max(before - _size(objects), 0)


def _prune_contents(repository: Repository, until: int) -> int:
    """Remove contents of Git LFS that were not used since `until` and that no object names.

    A content may come before the commit that names it: `is_kept` touches it for its next user.
    """
    old = {path.name: path for path in contents_in(repository.path) if path.stat().st_mtime < until}
    if not old:
        return 0
    for name in all_named(repository):
        old.pop(name, None)
    return sum(_remove_content(path, until) for path in old.values())


def _remove_content(path: Path, until: int) -> int:
    """Remove a content unless it was used just now. Return the bytes that this freed.

    Under another name nobody finds it, so that its age stays what it is. Who looks for it meanwhile brings it
    once more.
    """
    with temporary_name(path) as aside:
        path.rename(aside)
        status = aside.stat()
        if status.st_mtime >= until:
            aside.replace(path)
            return 0
    return status.st_size


def remove_unfinished_files(repository: Repository, *, older_than: timedelta) -> int:
    """Remove what a killed git or a killed copy of a content left half-written. Return the bytes freed.

    A file is left over if no process used its folder at some moment after the file was seen. In a repository
    that is always in use, age decides: a file that is still being written changes all the time.
    """
    place = repository.path
    found = [(path, place) for pattern in _UNFINISHED for path in place.glob(pattern)]
    found += [(path, path.parent) for path in place.glob(_UNFINISHED_CONTENTS)]
    unused = {folder for folder in {folder for _, folder in found} if is_unused(folder)}
    until, freed = time.time() - older_than.total_seconds(), 0
    for path, folder in found:
        with suppress(OSError):  # another process has finished or removed it
            if folder in unused or path.lstat().st_mtime < until:
                size = _size(path) if path.is_dir() else path.lstat().st_size
                remove_tree(path)
                freed += size
    return freed


def _has_unnamed_objects(repository: Repository) -> bool:
    """Return whether there is an object, or a part of one, that no reference names."""
    git = repository.git
    counts = dict(line.split(": ") for line in git.line("count-objects", "-v").splitlines())
    there = int(counts["count"]) + int(counts["in-pack"]) + int(counts["garbage"])
    words = ("rev-list", "--all", "--objects", "--count")
    return there > int(git.run(*words, timeout=_SECONDS).strip())


def _keep(repository: Repository, commits: Iterable[str]) -> None:
    """Let a reference name each of these commits that is there and would be lost."""
    wanted = "".join(f"{one}\n" for one in sorted({*commits}))
    if not wanted:
        return
    git = repository.git
    listed = git.run("cat-file", "--batch-check=%(objecttype) %(objectname)", stdin=wanted.encode()).decode()
    there = {line.split()[1] for line in listed.splitlines() if line.startswith("commit ")}
    asked = "".join(f"{one}\n" for one in sorted(there)).encode()
    unnamed = git.run("rev-list", "--stdin", "--not", "--all", stdin=asked, timeout=_SECONDS).decode().split()
    for commit in sorted(there & {*unnamed}):
        repository.set_refs(commit, f"{KEPT}/{commit}")


def _size(folder: Path) -> int:
    """Return the size of all files. Other processes of git write and rename files meanwhile."""
    size = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                size += Path(parent, name).lstat().st_size
    return size
