"""Lock files of git that a killed process left behind: git refuses to work until somebody removes them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_TOP = (
    "index.lock", "HEAD.lock", "config.lock", "packed-refs.lock", "shallow.lock", "ORIG_HEAD.lock",
    "FETCH_HEAD.lock", "MERGE_HEAD.lock", "logs/HEAD.lock",
)  # fmt: skip


def remove_locks(git_directory: Path) -> list[Path]:
    """Remove every lock of a git directory that no process uses. Return the removed ones. Follows no link."""
    removed = []
    for lock in _find_locks(git_directory):
        with suppress(OSError):
            lock.unlink()
            removed.append(lock)
    return removed


def _find_locks(git_directory: Path) -> Iterator[Path]:
    if git_directory.is_symlink():
        return
    yield from (path for name in _TOP if os.path.lexists(path := git_directory / name))
    for top in ("refs", "logs/refs"):
        if (git_directory / top).is_symlink():
            continue
        for where, _, names in os.walk(git_directory / top):
            yield from (Path(where) / name for name in names if name.endswith(".lock"))
