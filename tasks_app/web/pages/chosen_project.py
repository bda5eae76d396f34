"""The pipelines, files and folders of the chosen project in the form for a new task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from django.conf import settings

from tasks_app.config.repository_settings import DEFAULT_TASK_FOLDER
from tasks_app.config.threshold import resolve_threshold
from tasks_app.core.errors import BadInput, CatHerderError
from tasks_app.models import Project, User
from tasks_app.reporting.forecast import FEWEST, Forecast, forecasts
from tasks_app.reporting.task_files import RepositoryTaskFiles
from tasks_app.services.costs.budgets import Budgets, budgets_of
from tasks_app.web.pages.project_at_head import ProjectAtHead, ShownPipeline, at_head

_LISTED = 50


@dataclass(frozen=True)
class Listing:
    """Matching names, up to a limit; `more` were left out."""

    names: Sequence[str]
    more: int = 0

    @classmethod
    def of(cls, names: Sequence[str]) -> Listing:
        return cls(names[:_LISTED], max(0, len(names) - _LISTED))


@dataclass(frozen=True)
class ChosenProject:
    """A project in the form, at the newest fetched commit.

    `user` fills in the form, `query` is what was searched for, `folder` the folder that is looked into.
    """

    project: Project
    user: User
    query: str = ""
    folder: str = ""

    @cached_property
    def head(self) -> ProjectAtHead | None:
        try:
            return at_head(self.project)
        except CatHerderError:
            return None

    @cached_property
    def pipelines(self) -> list[ShownPipeline]:
        return self.head.pipelines if self.head else []

    @cached_property
    def forecasts(self) -> list[tuple[ShownPipeline, Forecast]]:
        """The pipelines, each with what a task of it is likely to cost and to take."""
        found = forecasts(self.project)
        return [(one, found.get(one.name, Forecast())) for one in self.pipelines]

    @cached_property
    def budgets(self) -> Budgets:
        """The budgets that limit what the task may cost."""
        return budgets_of(self.project, self.user)

    @property
    def left(self) -> float | None:
        """Dollars that a task may cost this month; None if nothing limits them or nothing is left."""
        return None if self.budgets.is_used_up else self.budgets.left

    @property
    def tasks_for_forecast(self) -> int:
        return FEWEST

    @property
    def is_broken(self) -> bool:
        """Whether cat-herder.yaml has errors, so that nothing can be created."""
        return self.head is not None and self.head.config is None

    @cached_property
    def threshold(self) -> int | None:
        """The default threshold; None if the settings cannot be read."""
        if self.head is None or self.head.config is None:
            return None
        chosen = self.head.config.interaction_threshold
        installation = settings.ENVIRONMENT.threshold
        return resolve_threshold(explicit=None, task=None, project=chosen, installation=installation)

    @cached_property
    def files(self) -> Listing:
        """The Markdown files, those of the task folder first."""
        return Listing.of(self._pickable.paths(self.query) if self._pickable else [])

    @cached_property
    def folders(self) -> Listing:
        """The folders that contain task files."""
        return Listing.of(self._pickable.folders(self.query) if self._pickable else [])

    @cached_property
    def would_run(self) -> list[str]:
        """The task files of `folder` in the order in which they would run."""
        return self._pickable.tasks_in_order(self.folder) if self._pickable else []

    def text_of(self, path: str) -> str:
        """Return the text of a Markdown file. Raises BadInput."""
        if self._pickable is None:
            raise BadInput("The project’s repository cannot be read.")
        return self._pickable.read_text(path)

    @cached_property
    def _pickable(self) -> RepositoryTaskFiles | None:
        try:
            return (
                RepositoryTaskFiles(self.head.repository, self.head.files, self._task_folder)
                if self.head
                else None
            )
        except CatHerderError:
            return None

    @property
    def _task_folder(self) -> str:
        config = self.head.config if self.head else None
        return config.task_folder if config else DEFAULT_TASK_FOLDER
