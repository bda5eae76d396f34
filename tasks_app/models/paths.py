"""Where things lie in the data directory. Nothing else builds these paths."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from django.conf import settings

from tasks_app.core.errors import WorkspaceError
from tasks_app.git import Repository, Workspace
from tasks_app.models import Project, Run, Sequence, Task


def data_dir() -> Path:
    return Path(settings.DATA_DIR)


def remove_folder(folder: Path) -> None:
    """Remove a folder of the data directory with all that is in it, or a file; nothing if it is not there.

    Nothing outside goes, whatever a link or a wrong row says. Raises WorkspaceError.
    """
    root = data_dir().resolve()
    if folder.is_symlink() or not folder.resolve().is_relative_to(root) or folder.resolve() == root:
        raise WorkspaceError(f"{folder} is not a folder of the data directory; it was left alone.")
    if not folder.exists():
        return
    try:
        if not folder.is_dir():
            folder.unlink()
            return
        _make_writable(folder)
        shutil.rmtree(folder)
    except OSError as error:
        raise WorkspaceError(f"{error.filename or folder} cannot be removed: {error.strerror}") from error


def _make_writable(folder: Path) -> None:
    """Agents leave read-only folders (Go's module cache does). Each is opened before it is looked into."""
    folder.chmod(0o700)
    for where, names, _ in os.walk(folder):
        for place in (Path(where) / name for name in names):
            if not place.is_symlink():
                place.chmod(0o700)


def repository(project: Project) -> Repository:
    """The portal's own bare copy of the project's repository."""
    path = data_dir() / "repositories" / f"{_folder(project)}.git"
    return Repository(path=path, source=project.source, name=project.name)


def task_dir(task: Task) -> Path:
    return data_dir() / "tasks" / _folder(task)


def shared_dir(task: Task) -> Path:
    """What a task shares with the others of its sequence; without one it is the task's own."""
    return data_dir() / "sequences" / _folder(task.sequence) if task.sequence else task_dir(task)


def _folder(row: Project | Sequence | Task) -> str:
    """A name that no other row ever has: a new or restored database counts its rows from 1 again.

    Rows from before there was a key keep their path, because the agent's session is stored under it.
    """
    return f"{row.pk}-{row.folder_key}" if row.folder_key else str(row.pk)


def workspace(task: Task) -> Workspace:
    """The clone in which the task's agents work."""
    return Workspace(
        path=shared_dir(task) / "workspace",
        repository=repository(task.project),
        branch=task.branch,
        checkout=task.checkout,
        filters=settings.ENVIRONMENT.git_filters,
    )


def home(task: Task) -> Path:
    """The agent's home directory: its own configuration and caches, one for each task."""
    return task_dir(task) / "home"


def check_home(task: Task) -> Path:
    """The home directory of checks: none that the agent could have prepared for them."""
    return task_dir(task) / "check-home"


def answers_dir(task: Task) -> Path:
    """Long answers as files, read-only to the agent and kept as long as the workspace."""
    return task_dir(task) / "answers"


def run_dir(run: Run) -> Path:
    """What one run needs: the gate's decisions and the launcher's orders, read-only to the agent."""
    return task_dir(run.step.task) / "runs" / str(run.pk)


def lock_file(task: Task) -> Path:
    """Held by every process of an agent, so that no two work in one workspace."""
    return shared_dir(task) / "lock"
