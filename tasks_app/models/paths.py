"""Paths in the data directory. No other module builds them."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from uuid import UUID

from django.conf import settings

from tasks_app.core.errors import WorkspaceError
from tasks_app.core.files import stored_id
from tasks_app.git import Repository, Workspace
from tasks_app.git.mirror import Mirror, Portal
from tasks_app.models import Project, Run, Sequence, Task
from tasks_app.sandbox import UNCHANGED, Placement

_Row = Project | Sequence | Task
#: The folders of the data directory that contain folders of rows.
_KINDS: tuple[tuple[str, type[_Row]], ...] = (
    ("repositories", Project),
    ("setup-caches", Project),
    ("submodules", Project),
    ("tasks", Task),
    ("sequences", Sequence),
)
#: The name of a folder, or of a file beside one, by `_folder_name`: it, and the id of its row.
_FOLDER_NAME = re.compile(r"((\d{1,18})(?:-[^.]+)?)(?:\.|$)")
#: The kind of row that has a folder, the folder, and the parts of its name.
_Folder = tuple[type[_Row], Path, re.Match[str]]
#: Ids in one query; SQLite takes some thousands.
_MOST_IDS = 500


def data_dir() -> Path:
    return Path(settings.DATA_DIR)


#: On a worker host: the path of the data directory on the portal's host, once the portal has told it.
_portals_data_dir: Path | None = None


def placement() -> Placement:
    """Return under which paths sandboxed processes see this data directory: on every host the portal's."""
    if not settings.ENVIRONMENT.worker_token or _portals_data_dir is None:
        return UNCHANGED
    return Placement(data_dir(), _portals_data_dir)


def place_at(portals_data_dir: Path) -> None:
    """Show the data directory of this worker host to sandboxed processes at the portal's path from now on."""
    global _portals_data_dir
    _portals_data_dir = portals_data_dir


def remove_folder(folder: Path) -> None:
    """Remove a folder or file of the data directory if it exists.

    Refuses symbolic links and paths outside, in case a row is wrong. Raises WorkspaceError.
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
        folder.chmod(0o700)
        for parent, names, _ in os.walk(folder):
            for path in (Path(parent) / name for name in names):
                if not path.is_symlink():
                    path.chmod(0o700)
        shutil.rmtree(folder)
    except OSError as error:
        raise WorkspaceError(f"{error.filename or folder} cannot be removed: {error.strerror}") from error


def repository(project: Project) -> Repository:
    """Return the portal's own bare copy of the project's repository; on a worker host, the mirror of it."""
    path = data_dir() / "repositories" / f"{_folder_name(project)}.git"
    if portal := portal_of_worker_host():
        return Mirror(path=path, source=portal.url, name=project.name, portal=portal)
    return Repository(path=path, source=project.source, name=project.name)


def repositories() -> list[Path]:
    """Return the repositories of all projects on this host."""
    return sorted((data_dir() / "repositories").glob("*.git"))


def portal_of_worker_host() -> Portal | None:
    """Return the portal to which this worker host belongs; None on the portal's own host."""
    environment = settings.ENVIRONMENT
    if not environment.worker_token:
        return None
    return Portal(environment.address, environment.worker_token)


def worker_data_dir_id() -> UUID | None:
    """Return the id of this data directory, made at the first call; None on the portal's own host.

    A worker host may lose its disk and begin anew: then its runs have another id, and no workspace counts.
    """
    if not settings.ENVIRONMENT.worker_token:
        return None
    return stored_id(data_dir())


def setup_caches() -> Path:
    """Return the folder with the caches of all projects' setups on this host."""
    return data_dir() / "setup-caches"


def setup_caches_of(project: Project) -> Path:
    return setup_caches() / _folder_name(project)


def submodules_of(project: Project) -> Path:
    """Return the folder with this host's copies of the project's submodules: a cache."""
    return data_dir() / "submodules" / _folder_name(project)


def task_dir(task: Task) -> Path:
    return data_dir() / "tasks" / _folder_name(task)


def shared_dir(task: Task) -> Path:
    """Return the directory that the tasks of a sequence share; without a sequence, the task's own."""
    if task.sequence is None:
        return task_dir(task)
    return data_dir() / "sequences" / _folder_name(task.sequence)


def _folder_name(row: _Row) -> str:
    """Return a unique name, also across databases: a new one counts its ids from 1 again.

    Old rows without a key keep their path, because the agent's session is stored under it.
    """
    if not row.folder_key:
        return str(row.pk)
    return f"{row.pk}-{row.folder_key}"


def without_rows() -> list[Path]:
    """Return the folders, and files beside them, of projects, sequences and tasks that have no row any more.

    The folders are listed before the rows are read: a row is there before its folders are made.
    """
    found = _folders()
    known: set[tuple[type[_Row], str]] = set()
    for model in (Project, Sequence, Task):
        for ids in _ids(model, found):
            rows: Iterable[_Row] = model._default_manager.filter(pk__in=ids)
            known |= {(model, _folder_name(row)) for row in rows}
    return [path for model, path, named in found if (model, named[1]) not in known]


def ids_with_folders(model: type[_Row]) -> list[list[int]]:
    """Return the ids of the rows that may have folders on this host, as many at a time as one query takes."""
    return _ids(model, _folders())


def _folders() -> list[_Folder]:
    return [
        (model, path, named)
        for kind, model in _KINDS
        for path in sorted((data_dir() / kind).glob("*"))
        if (named := _FOLDER_NAME.match(path.name))
    ]


def _ids(model: type[_Row], found: Iterable[_Folder]) -> list[list[int]]:
    ids = sorted({int(named[2]) for kind, _, named in found if kind is model})
    return [ids[start : start + _MOST_IDS] for start in range(0, len(ids), _MOST_IDS)]


def workspace(task: Task) -> Workspace:
    """Return the clone in which the task's agents work."""
    return Workspace(
        path=shared_dir(task) / "workspace",
        repository=repository(task.project),
        branch=task.branch,
        checkout=task.checkout,
        filters=settings.ENVIRONMENT.git_filters,
    )


def home(task: Task) -> Path:
    """Return the agent's home directory, with its configuration and caches, one for each task."""
    return task_dir(task) / "home"


def check_home(task: Task) -> Path:
    """Return the home directory of checks, which the agent cannot write to."""
    return task_dir(task) / "check-home"


def setup_home(task: Task) -> Path:
    """Return the home directory of the setup's commands, which agents and checks can only read."""
    return shared_dir(task) / "setup-home"


def answers_dir(task: Task) -> Path:
    """Return the directory of long answers, read-only for the agent and kept as long as the workspace."""
    return task_dir(task) / "answers"


def run_dir(run: Run) -> Path:
    """Return the directory with the gate and its permissions, read-only for the agent."""
    return task_dir(run.step.task) / "runs" / str(run.pk)


def lock_file(task: Task) -> Path:
    """Return the lock that every agent process holds, so that no two work in one workspace."""
    return shared_dir(task) / "lock"
