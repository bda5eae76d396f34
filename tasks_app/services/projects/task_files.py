"""Files of a repository from which tasks can be created, and folders for sequences."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from tasks_app.core.errors import BadInput
from tasks_app.git import Repository, TreeFile, blob_bytes
from tasks_app.git.files import TEXT_BYTES
from tasks_app.services.sequences import task_files

#: Characters of a query or path that are used.
_MAX_LENGTH = 200


@dataclass(frozen=True)
class RepositoryTaskFiles:
    """The Markdown files among `files`: first in `task_folder`, then in the root, then others; no links."""

    repository: Repository
    files: tuple[TreeFile, ...]
    task_folder: str

    def paths(self, query: str = "") -> list[str]:
        """Return the paths that contain all words of the query."""
        return _matching([file.path for file in self._markdown], query)

    def folders(self, query: str = "") -> list[str]:
        """Return the folders with task files whose path contains all words of the query."""
        return _matching(
            sorted(folder for folder, names in self._folders.items() if task_files(names)), query
        )

    def tasks_in_order(self, folder: str) -> list[str]:
        """Return the task files of a folder in the order in which they would run."""
        return task_files(self._folders.get(folder.strip().strip("/"), []))

    def read_text(self, path: str) -> str:
        """Return the text of a Markdown file. Raises BadInput if it is missing, too large or not UTF-8."""
        found = next((file for file in self._markdown if file.path == path), None)
        if found is None:
            raise BadInput(f"There is no Markdown file “{path[:_MAX_LENGTH]}” at the newest commit.")
        if found.size > TEXT_BYTES:
            raise BadInput(f"{path} is larger than {TEXT_BYTES:,} bytes.")
        try:
            return blob_bytes(self.repository, found).decode("utf-8").replace("\r\n", "\n")
        except UnicodeDecodeError:
            raise BadInput(f"{path} is not UTF-8 text.") from None

    @cached_property
    def _folders(self) -> dict[str, list[str]]:
        """File names by folder, computed once: searching all files for each folder would be quadratic."""
        found: dict[str, list[str]] = defaultdict(list)
        for file in self._markdown:
            folder, slash, name = file.path.rpartition("/")
            if slash:
                found[folder].append(name)
        return found

    @cached_property
    def _markdown(self) -> list[TreeFile]:
        first = self.task_folder.strip("/") + "/"
        found = [file for file in self.files if file.path.endswith(".md") and not file.is_link]
        # Files of the root come before other folders: a page shows only the first ones.
        return sorted(found, key=lambda file: (not file.path.startswith(first), "/" in file.path, file.path))


def _matching(names: Sequence[str], query: str) -> list[str]:
    words = query[:_MAX_LENGTH].casefold().split()
    return [name for name in names if all(word in name.casefold() for word in words)]
