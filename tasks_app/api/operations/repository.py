"""Operations on a project's repository: files that can become a task, folders that can become a sequence."""

from __future__ import annotations

from typing import Annotated

from django.http import HttpRequest
from ninja import Field, Query, Router, Schema

from tasks_app import permissions
from tasks_app.api.auth import authenticators, principal_of
from tasks_app.api.declarations import responses
from tasks_app.api.filters import Name
from tasks_app.api.problems import Kind, Refused
from tasks_app.api.schemas.base import ProjectName, Storable
from tasks_app.config.faults import ConfigInvalid
from tasks_app.config.repository_settings import DEFAULT_TASK_FOLDER
from tasks_app.git import committed_tree
from tasks_app.models import Scope, paths
from tasks_app.reporting.schemas.repository import FileText, Folder, Folders, TaskFiles
from tasks_app.reporting.task_files import RepositoryTaskFiles
from tasks_app.services.projects.settings import repository_settings

router = Router(tags=["Projects"])


class NameSearch(Schema):
    q: Name = Field("", description="Only paths that contain all these words.")
    limit: int = Field(200, ge=1, le=1000, description="Maximum number of items, up to 1000.")


class FileChoice(Schema):
    path: Annotated[Storable, Field(min_length=1, max_length=1000)] = Field(
        description="The path of the file in the repository.", examples=["tasks/round-prices.md"]
    )


@router.get(
    "/projects/{project}/files", response=responses(TaskFiles, 404, 409), auth=authenticators(Scope.READ)
)
def list_files(request: HttpRequest, project: ProjectName, which: Query[NameSearch]) -> TaskFiles:
    """List the Markdown files at the newest commit, those of the task folder first."""
    commit, pickable = _pickable(request, project)
    paths = pickable.paths(which.q)
    return TaskFiles(commit=commit, items=paths[: which.limit], more=max(0, len(paths) - which.limit))


@router.get(
    "/projects/{project}/files/text", response=responses(FileText, 404, 409), auth=authenticators(Scope.READ)
)
def get_file(request: HttpRequest, project: ProjectName, which: Query[FileChoice]) -> FileText:
    """Return the text of a Markdown file at the newest commit."""
    commit, pickable = _pickable(request, project)
    if which.path not in pickable.paths():
        raise Refused(Kind.NOT_FOUND, f"There is no Markdown file “{which.path[:200]}” at the newest commit.")
    return FileText(commit=commit, path=which.path, text=pickable.read_text(which.path))


@router.get(
    "/projects/{project}/folders", response=responses(Folders, 404, 409), auth=authenticators(Scope.READ)
)
def list_folders(request: HttpRequest, project: ProjectName, which: Query[NameSearch]) -> Folders:
    """List the folders of task files at the newest commit. Each can become a sequence."""
    commit, pickable = _pickable(request, project)
    names = pickable.folders(which.q)
    items = [Folder(folder=name, tasks=pickable.tasks_in_order(name)) for name in names[: which.limit]]
    return Folders(commit=commit, items=items, more=max(0, len(names) - which.limit))


def _pickable(request: HttpRequest, name: str) -> tuple[str, RepositoryTaskFiles]:
    """Return the newest commit and its files to users who may create tasks. Raise NotAllowed."""
    project = permissions.project_named_or_404(principal_of(request), name)
    permissions.require_actor(principal_of(request), project)
    repository = paths.repository(project)
    commit = repository.head(project.branch)
    try:
        folder = repository_settings(project, commit=commit).task_folder
    except ConfigInvalid:
        folder = DEFAULT_TASK_FOLDER  # an error there must not hide files
    return commit, RepositoryTaskFiles(repository, committed_tree(repository, commit=commit), folder)
