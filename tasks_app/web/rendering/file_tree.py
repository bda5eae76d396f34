"""The tree of changed files: rows of folders and files, in the order of their paths."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from tasks_app.core.control_characters import in_one_line

File = TypeVar("File")

#: Deeper rows are not indented further.
_DEEPEST_INDENT = 8


@dataclass(frozen=True)
class TreeRow(Generic[File]):
    """A row of the tree: a folder, or a `file`. The level of the topmost rows is 1."""

    name: str
    level: int
    file: File | None = None

    @property
    def indent(self) -> int:
        return min(self.level, _DEEPEST_INDENT)


@dataclass
class _Folder(Generic[File]):
    folders: dict[str, _Folder[File]] = field(default_factory=dict)
    files: list[tuple[str, File]] = field(default_factory=list)


def tree_rows(files: Sequence[tuple[str, File]]) -> list[TreeRow[File]]:
    """Return the rows for files, each given with its path: in each folder its folders, then its files.

    A folder that has only another folder is one row with it.
    """
    root: _Folder[File] = _Folder()
    for path, file in files:
        *names, last = path.split("/")
        folder = root
        for name in names:
            folder = folder.folders.setdefault(name, _Folder())
        folder.files.append((last, file))
    return list(_rows(root))


def _rows(root: _Folder[File]) -> Iterator[TreeRow[File]]:
    """Yield the rows. Without recursion: an agent can nest folders deeper than Python calls."""
    waiting: list[tuple[TreeRow[File], _Folder[File]]] = [(TreeRow("", 0), root)]
    while waiting:
        row, folder = waiting.pop()
        if row.level:
            yield row
        inside = [_entry(name, one, row.level + 1) for name, one in folder.folders.items()]
        files: list[tuple[TreeRow[File], _Folder[File]]] = [
            (TreeRow(in_one_line(name), row.level + 1, file), _Folder()) for name, file in folder.files
        ]
        waiting += reversed([*inside, *files])


def _entry(name: str, folder: _Folder[File], level: int) -> tuple[TreeRow[File], _Folder[File]]:
    """Return the row of a folder, and the folder whose entries come below it."""
    names = [name]
    while not folder.files and len(folder.folders) == 1:
        ((inner, folder),) = folder.folders.items()
        names.append(inner)
    return TreeRow(in_one_line("/".join(names)), level), folder
