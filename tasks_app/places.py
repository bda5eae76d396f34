"""Where things lie in the data directory. Nothing else builds these paths."""

from __future__ import annotations

from pathlib import Path

from django.conf import settings

from tasks_app.models import Project, Run, Task
from tasks_app.workspace import Repository, Workspace


def data_dir() -> Path:
    return Path(settings.DATA_DIR)


def repository(project: Project) -> Repository:
    """The portal's own bare copy of the project's repository."""
    return Repository(path=data_dir() / "repositories" / f"{project.pk}.git", source=project.source)


def task_dir(task: Task) -> Path:
    return data_dir() / "tasks" / str(task.pk)


def shared_dir(task: Task) -> Path:
    """What a task shares with the others of its sequence; without one it is the task's own."""
    return data_dir() / "sequences" / str(task.sequence_id) if task.sequence_id else task_dir(task)


def workspace(task: Task) -> Workspace:
    """The clone in which the task's agents work."""
    return Workspace(
        path=shared_dir(task) / "workspace",
        repository=repository(task.project),
        branch=task.branch,
        checkout=task.checkout,
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
