"""Detect files that are completely written: editors write several times, and copies take time."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tasks_app.services.sequences import task_files


@dataclass(frozen=True)
class FileState:
    """Facts that change when a file is written."""

    modified: int
    size: int
    inode: int


def task_file_states(folder: Path) -> dict[str, FileState]:
    """Return the states of a folder's task files; none if the folder does not exist."""
    found = {}
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries if entry.is_file()]
    except OSError:
        return {}
    for name in task_files(names):
        try:
            status = (folder / name).stat()
        except OSError:  # deleted meanwhile
            continue
        found[name] = FileState(status.st_mtime_ns, status.st_size, status.st_ino)
    return found


class StableFiles:
    """Reports each state of each file once, after it was unchanged for `seconds`. Empty files are taken as
    not written yet. Times come from any monotonic clock."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._since: dict[str, tuple[FileState, float]] = {}
        self._reported: dict[str, FileState] = {}

    def update(self, found: Mapping[str, FileState], *, now: float) -> list[str]:
        """Return the names of files that became stable since the last call, sorted."""
        before = self._since
        self._since = {
            name: before[name] if name in before and before[name][0] == state else (state, now)
            for name, state in found.items()
        }
        self._reported = {name: state for name, state in self._reported.items() if name in found}
        stable = [name for name in self._unreported() if now - self._since[name][1] >= self._seconds]
        self._reported.update((name, found[name]) for name in stable)
        return stable

    @property
    def has_unstable(self) -> bool:
        """Whether some file may still be being written."""
        return bool(self._unreported())

    def _unreported(self) -> list[str]:
        return sorted(
            name
            for name, (state, _) in self._since.items()
            if state.size and self._reported.get(name) != state
        )
