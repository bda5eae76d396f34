"""Which files of a folder have come to rest: an editor writes several times, a copy takes its time."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tasks_app.services.sequences import task_files


@dataclass(frozen=True)
class State:
    """What changes when a file is written: nanoseconds, bytes and the file's number on its disk."""

    modified: int
    size: int
    inode: int


def states(folder: Path) -> dict[str, State]:
    """The task files of a folder as they are now; none while there is no such folder."""
    found = {}
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries if entry.is_file()]
    except OSError:
        return {}
    for name in task_files(names):
        try:
            facts = (folder / name).stat()
        except OSError:  # gone since
            continue
        found[name] = State(facts.st_mtime_ns, facts.st_size, facts.st_ino)
    return found


class Settling:
    """Names each state of each file once, after it has kept still for `seconds`. Empty files are not yet
    written. Times are those of any clock that only goes forward."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._since: dict[str, tuple[State, float]] = {}
        self._named: dict[str, State] = {}

    def look(self, found: Mapping[str, State], *, now: float) -> list[str]:
        """Files that have come to rest since the last look, in the order of their names."""
        before = self._since
        self._since = {
            name: before[name] if name in before and before[name][0] == state else (state, now)
            for name, state in found.items()
        }
        self._named = {name: state for name, state in self._named.items() if name in found}
        rested = [name for name in self._unnamed() if now - self._since[name][1] >= self._seconds]
        self._named.update((name, found[name]) for name in rested)
        return rested

    @property
    def moving(self) -> bool:
        """Whether some file is not at rest yet."""
        return bool(self._unnamed())

    def _unnamed(self) -> list[str]:
        return sorted(
            name for name, (state, _) in self._since.items() if state.size and self._named.get(name) != state
        )
