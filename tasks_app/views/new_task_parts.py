"""What the form for a new task shows of the chosen project: its pipelines, its files, its folders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from tasks_app.actions.sequences import task_files
from tasks_app.config.pipeline import DEFAULT_TASK_FOLDER
from tasks_app.errors import BadInput, CatHerderError
from tasks_app.models import Project
from tasks_app.views.project_facts import AtHead, ShownPipeline, at_head
from tasks_app.workspace import TreeFile, blob_bytes
from tasks_app.workspace.files import TEXT_BYTES

_LISTED = 50
_LONGEST_QUERY = 200


@dataclass(frozen=True)
class Listing:
    """Names that fit a search, up to a bound; `more` were left out."""

    names: Sequence[str]
    more: int = 0

    @classmethod
    def of(cls, names: Sequence[str]) -> Listing:
        return cls(names[:_LISTED], max(0, len(names) - _LISTED))


@dataclass(frozen=True)
class Room:
    """A project as the form shows it, at the newest commit that was fetched.

    `query` is what was searched for, `folder` the folder that is looked into.
    """

    project: Project
    query: str = ""
    folder: str = ""

    @cached_property
    def head(self) -> AtHead | None:
        try:
            return at_head(self.project)
        except CatHerderError:
            return None

    @cached_property
    def pipelines(self) -> list[ShownPipeline]:
        return self.head.pipelines if self.head else []

    @property
    def is_broken(self) -> bool:
        """Whether nothing can be created until cat-herder.yaml is mended."""
        return self.head is not None and self.head.config is None

    @cached_property
    def threshold(self) -> int | None:
        return self.head.config.interaction_threshold if self.head and self.head.config else None

    @cached_property
    def files(self) -> Listing:
        """Markdown files, those of the task folder first."""
        return Listing.of(self._fitting([file.path for file in self._markdown]))

    @cached_property
    def folders(self) -> Listing:
        """Folders with task files directly in them."""
        paths = [file.path for file in self._markdown if "/" in file.path]
        return Listing.of(
            self._fitting(sorted({path.rsplit("/", 1)[0] for path in paths if task_files([_name(path)])}))
        )

    @cached_property
    def would_run(self) -> list[str]:
        """The task files of `folder` in the order in which they would run."""
        inside = f"{self.folder.strip().strip('/')}/"
        paths = [file.path for file in self._markdown if file.path.startswith(inside)]
        return task_files([_name(path) for path in paths if "/" not in path.removeprefix(inside)])

    def text_of(self, path: str) -> str:
        """The text of a Markdown file. Raises BadInput if there is no such file, or it is no such text."""
        found = next((file for file in self._markdown if file.path == path), None)
        if self.head is None or found is None:
            raise BadInput(f"There is no Markdown file “{path[:_LONGEST_QUERY]}” at the newest commit.")
        if found.size > TEXT_BYTES:
            raise BadInput(f"{path} is larger than {TEXT_BYTES:,} bytes.")
        try:
            return blob_bytes(self.head.repository, found).decode("utf-8").replace("\r\n", "\n")
        except UnicodeDecodeError:
            raise BadInput(f"{path} is not UTF-8 text.") from None

    @cached_property
    def _markdown(self) -> list[TreeFile]:
        try:
            files = self.head.files if self.head else ()
        except CatHerderError:
            return []
        found = [file for file in files if file.path.endswith(".md") and not file.is_link]
        return sorted(found, key=lambda file: (not file.path.startswith(self._task_folder), file.path))

    @property
    def _task_folder(self) -> str:
        config = self.head.config if self.head else None
        return (config.task_folder if config else DEFAULT_TASK_FOLDER).strip("/") + "/"

    def _fitting(self, names: Sequence[str]) -> list[str]:
        words = self.query[:_LONGEST_QUERY].casefold().split()
        return [name for name in names if all(word in name.casefold() for word in words)]


def _name(path: str) -> str:
    return path.rsplit("/", 1)[-1]
