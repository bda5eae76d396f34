"""Where lines of a file are in a later commit."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from tasks_app.git.difference import ChangedFile, changed_files, diff
from tasks_app.git.repository import Repository

_HUNK = re.compile(r"^@@ -(\d+)(?:,(\d+))? \+\d+(?:,(\d+))? @@", re.MULTILINE)


@dataclass(frozen=True)
class Hunk:
    """`removed` lines from line `start` on became `added` lines. If none was removed, they follow `start`."""

    start: int
    removed: int
    added: int


@dataclass(frozen=True)
class MovedFile:
    """A file in a later commit: its `path` there (None: it was deleted), and how its lines moved."""

    path: str | None
    hunks: tuple[Hunk, ...] = field(default=())

    def line(self, number: int) -> int | None:
        """Return the number of the line in the later commit; None if it was changed or deleted."""
        if self.path is None:
            return None
        moved = number
        for hunk in self.hunks:
            if hunk.removed and hunk.start <= number < hunk.start + hunk.removed:
                return None
            if number >= hunk.start + max(hunk.removed, 1):
                moved += hunk.added - hunk.removed
        return moved


def moved_files(
    repository: Repository, *, base: str, head: str, paths: Iterable[str]
) -> dict[str, MovedFile]:
    """Return for each of the `paths` in commit `base` where it is in `head`.

    Raises WorkspaceError if a commit is lost.
    """
    wanted = set(paths)
    if base == head or not wanted:
        return {path: MovedFile(path) for path in wanted}
    changed = {file.old_path or file.path: file for file in changed_files(repository, base=base, head=head)}
    return {path: _moved(repository, base, head, path, changed.get(path)) for path in wanted}


def _moved(repository: Repository, base: str, head: str, path: str, change: ChangedFile | None) -> MovedFile:
    if change is None or change.status == "A":
        return MovedFile(path)
    if change.status == "D":
        return MovedFile(None)
    names = (path,) if path == change.path else (path, change.path)
    text = diff(repository, base=base, head=head, paths=names, context=0)
    hunks = (Hunk(int(found[1]), int(found[2] or 1), int(found[3] or 1)) for found in _HUNK.finditer(text))
    return MovedFile(change.path, tuple(hunks))
