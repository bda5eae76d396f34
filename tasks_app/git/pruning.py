"""Removing objects of a repository that no reference names any more: of pushes that came to nothing, and of
branches that the source has rewritten. Then contents of Git LFS that no object names any more."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from tasks_app.git.durable import sync_tree, temporary_name
from tasks_app.git.lfs import all_named, contents_in
from tasks_app.git.repository import Repository

#: References to commits that rows name and nothing else does.
KEPT = "refs/cat-herder-kept"
_SECONDS = 3600.0


@dataclass(frozen=True)
class Pruned:
    """What a pruning `freed`, in bytes, or why nothing was done."""

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
        freed = _prune_objects(repository, until) if _has_unnamed_objects(repository) else 0
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

    A content may come before the commit that names it: `is_kept` makes it young for whoever needs it.
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
    return sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_dir())
