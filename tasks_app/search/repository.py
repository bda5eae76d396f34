"""What a repository has for new tasks: Markdown files as texts, folders of them as sequences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from tasks_app.actions.sequences import task_files
from tasks_app.errors import BadInput
from tasks_app.workspace import Repository, TreeFile, blob_bytes
from tasks_app.workspace.files import TEXT_BYTES

#: Of a query or a path, so much counts.
_LONGEST = 200


@dataclass(frozen=True)
class Pickable:
    """The Markdown files among `files`, those of `task_folder` first. Links are left out."""

    repository: Repository
    files: tuple[TreeFile, ...]
    task_folder: str

    def paths(self, query: str = "") -> list[str]:
        """Of the files whose path has all words of the query."""
        return _fitting([file.path for file in self._markdown], query)

    def folders(self, query: str = "") -> list[str]:
        """Folders with task files directly in them whose path has all words of the query."""
        paths = (file.path for file in self._markdown if "/" in file.path)
        return _fitting(sorted({_folder(path) for path in paths if task_files([_name(path)])}), query)

    def would_run(self, folder: str) -> list[str]:
        """Names of the task files of a folder in the order in which they would run."""
        wanted = folder.strip().strip("/")
        paths = (file.path for file in self._markdown if "/" in file.path)
        return task_files([_name(path) for path in paths if _folder(path) == wanted])

    def text_of(self, path: str) -> str:
        """The text of a Markdown file. Raises BadInput if there is no such file, or it is no such text."""
        found = next((file for file in self._markdown if file.path == path), None)
        if found is None:
            raise BadInput(f"There is no Markdown file “{path[:_LONGEST]}” at the newest commit.")
        if found.size > TEXT_BYTES:
            raise BadInput(f"{path} is larger than {TEXT_BYTES:,} bytes.")
        try:
            return blob_bytes(self.repository, found).decode("utf-8").replace("\r\n", "\n")
        except UnicodeDecodeError:
            raise BadInput(f"{path} is not UTF-8 text.") from None

    @cached_property
    def _markdown(self) -> list[TreeFile]:
        first = self.task_folder.strip("/") + "/"
        found = [file for file in self.files if file.path.endswith(".md") and not file.is_link]
        return sorted(found, key=lambda file: (not file.path.startswith(first), file.path))


def _fitting(names: Sequence[str], query: str) -> list[str]:
    words = query[:_LONGEST].casefold().split()
    return [name for name in names if all(word in name.casefold() for word in words)]


def _folder(path: str) -> str:
    return path.rsplit("/", 1)[0]


def _name(path: str) -> str:
    return path.rsplit("/", 1)[-1]
