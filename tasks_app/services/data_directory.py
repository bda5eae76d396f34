"""Check that the data directory and the database belong to the same installation.

Ids of rows mean nothing in another database: task 1 would be another task. So the database has an id, each
data directory that belongs to it has the same id in a file, and nothing starts when they differ. The data
directory of a worker host holds only a cache and has no such file.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from uuid import UUID, uuid4

from django.conf import settings
from django.db import connection
from django.db.models import F

from tasks_app.core.errors import WrongDataDirectory
from tasks_app.git.durable import sync_folder
from tasks_app.models import Installation, Project, Task, paths

#: In the data directory: the id of the installation that it belongs to.
ID_FILE = "installation-id"
#: Folders of the data directory that hold work, with what one of their entries is called.
_WORK = {"repositories": "repository", "tasks": "task", "sequences": "sequence"}
_TASKS_LOOKED_AT = 200


class Verdict(Enum):
    """The result of comparing the ids and the work in a data directory with a database."""

    SAME = "Both have the same id."
    NEW = "The directory holds no work yet and becomes part of this installation."
    UNPROVEN = "Both hold work but one has no id yet, as before the ids were introduced."
    EMPTY_DATABASE = "The directory holds work, the database has no project."
    OTHER = "The directory belongs to another installation."


@dataclass(frozen=True)
class Ownership:
    """A data directory and a database. `work` counts the folders in the directory by kind."""

    folder: Path
    database: str
    folder_id: UUID | None
    database_id: UUID | None
    work: dict[str, int]
    has_projects: bool

    @property
    def verdict(self) -> Verdict:
        if self.folder_id and self.folder_id == self.database_id:
            return Verdict.SAME
        if not self.work:
            return Verdict.NEW
        if self.folder_id and self.database_id:
            return Verdict.OTHER
        return Verdict.UNPROVEN if self.has_projects else Verdict.EMPTY_DATABASE

    @property
    def shown_work(self) -> str:
        return ", ".join(
            f"{count} {_WORK[kind] if count == 1 else kind}" for kind, count in self.work.items()
        )


def ownership() -> Ownership:
    """Read both sides; nothing is written. The database may be empty or of an earlier version."""
    tables = set(connection.introspection.table_names())
    row = Installation.objects.first() if Installation._meta.db_table in tables else None
    return Ownership(
        folder=paths.data_dir(),
        database=database_name(),
        folder_id=_stored_id(paths.data_dir()),
        database_id=row.identity if row else None,
        work=_count_work(paths.data_dir()),
        has_projects=Project._meta.db_table in tables and Project.objects.exists(),
    )


def require_plausible_data_dir() -> None:
    """Raise WrongDataDirectory by the ids alone, before the tables are up to date. Writes nothing."""
    _refuse_if_wrong(ownership())


def require_own_data_dir() -> None:
    """Require that the data directory belongs to this database, and store the id in a new directory.

    Raises WrongDataDirectory, which says what was found and what to do, and changes nothing.
    """
    if settings.ENVIRONMENT.worker_token:
        raise WrongDataDirectory(
            "CATHERDER_WORKER_TOKEN is set, so this is a worker host: only `worker`, `doctor` and "
            "`clean_up` run here. Run this on the portal's host."
        )
    if _ids_match():
        return
    found = ownership()
    _refuse_if_wrong(found)
    if found.verdict is Verdict.UNPROVEN and not _shares_commits():
        raise WrongDataDirectory(
            f"{_description(found)}, but none of its repositories has a commit of this database's tasks. "
            f"{_WAYS_OUT} If they do belong together, run `cat-herder installation adopt`."
        )
    _note(found)


def require_shared_data_dir() -> None:
    """Require the data directory of the portal, for a worker without a token.

    An empty one is not adopted if the installation has one already: the worker would have no repositories,
    and fail each task that it takes. Raises WrongDataDirectory.
    """
    found = ownership()
    if found.verdict is Verdict.NEW and found.database_id:
        raise WrongDataDirectory(
            f"The data directory {found.folder} is empty, and the repositories of this installation are "
            "elsewhere. On a host of its own a worker needs CATHERDER_WORKER_TOKEN, which `cat-herder "
            "worker_token NAME` prints on the portal's host. On the portal's host, set CATHERDER_DATA_DIR to "
            "the portal's data directory."
        )
    require_own_data_dir()


def holds_portal(folder: Path) -> bool:
    """Return whether a portal has used this data directory."""
    return (folder / ID_FILE).exists()


def data_dir_problems() -> list[str]:
    """Return why data directory and database do not belong together; empty if they do. Writes nothing."""
    if _ids_match():
        return []
    found = ownership()
    try:
        _refuse_if_wrong(found)
    except WrongDataDirectory as error:
        return [str(error)]
    return [f"The data directory {found.folder} has not been used with this database yet."]


def adopt() -> Ownership:
    """Make the data directory belong to this database regardless of the ids: a person has decided so."""
    found = ownership()
    if not found.has_projects:
        _refuse_if_wrong(found)
    if found.verdict is Verdict.OTHER:
        assert found.database_id is not None  # noqa: S101 (OTHER means that both have one)
        _write_id(found.folder, found.database_id)
    elif found.verdict is not Verdict.SAME:
        _note(found)
    return ownership()


def set_aside() -> Path:
    """Move work that does not belong to this database into another folder, and return its path.

    Nothing is deleted. Raises WrongDataDirectory if it does belong to it.
    """
    found = ownership()
    if found.verdict in (Verdict.SAME, Verdict.NEW):
        raise WrongDataDirectory(
            f"The data directory {found.folder} holds no work of another installation; nothing was moved."
        )
    target = found.folder / f"set-aside-{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    target.mkdir(mode=0o700)
    for name in (*_WORK, ID_FILE):
        with suppress(FileNotFoundError):
            (found.folder / name).rename(target / name)
    sync_folder(target)
    sync_folder(found.folder)
    return target


def database_name() -> str:
    """Return the database's name and host for messages, without its password."""
    settings = connection.settings_dict
    if connection.vendor == "sqlite":
        return str(settings["NAME"])
    return f"{settings['NAME']} at {settings['HOST'] or 'localhost'}"


_WAYS_OUT = (
    "Restore the database that belongs to it, or set CATHERDER_DATA_DIR to another directory. To start anew "
    "here, run `cat-herder installation set-aside`: it moves the old work into a folder of its own and "
    "deletes nothing."
)


def _ids_match() -> bool:
    """Return whether both ids are the same. Cheap: every command and health check asks."""
    row = Installation.objects.first()
    return row is not None and row.identity == _stored_id(paths.data_dir())


def _refuse_if_wrong(found: Ownership) -> None:
    if found.verdict is Verdict.EMPTY_DATABASE:
        raise WrongDataDirectory(
            f"{_description(found)} and it has no projects. Nothing was changed. {_WAYS_OUT}"
        )
    if found.verdict is Verdict.OTHER:
        raise WrongDataDirectory(
            f"{_description(found)} and that is another installation ({found.database_id}; "
            f"the directory belongs to {found.folder_id}). Nothing was changed. {_WAYS_OUT}"
        )


def _description(found: Ownership) -> str:
    return (
        f"The data directory {found.folder} holds work ({found.shown_work}). The database is {found.database}"
    )


def _shares_commits() -> bool:
    """Return whether a repository has a commit that the portal recorded for a task of this database.

    If none was recorded yet, one that a task started from; another installation that works on the same source
    may have that too. Also true where there is nothing to compare: no task, or no repository of one.
    """
    tasks = Task.objects.select_related("project").order_by("-pk")
    recorded = tasks.exclude(head_commit="").exclude(head_commit=F("base_commit"))
    for rows, name in ((recorded, "head_commit"), (tasks.exclude(base_commit=""), "base_commit")):
        pairs = {(paths.repository(task.project), getattr(task, name)) for task in rows[:_TASKS_LOOKED_AT]}
        there = [(repository, commit) for repository, commit in pairs if repository.path.exists()]
        if there:
            return any(repository.has(commit) for repository, commit in there)
    return True


def _note(found: Ownership) -> None:
    """Give both sides the id that one of them has, or a new one. Several processes may do this at once."""
    wanted = found.database_id or found.folder_id or uuid4()
    row, _ = Installation.objects.get_or_create(pk=1, defaults={"identity": wanted})
    _write_id(found.folder, row.identity)


def _write_id(folder: Path, identity: UUID) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor, unnamed = tempfile.mkstemp(dir=folder, prefix=f".{ID_FILE}-")
    with os.fdopen(descriptor, "w") as file:
        file.write(f"{identity}\n")
        file.flush()
        os.fsync(descriptor)
    Path(unnamed).replace(folder / ID_FILE)
    sync_folder(folder)


def _stored_id(folder: Path) -> UUID | None:
    """Return the id in the directory. Raises WrongDataDirectory for a file without an id."""
    path = folder / ID_FILE
    try:
        return UUID(path.read_text(encoding="ascii").strip())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise WrongDataDirectory(
            f"{path} holds no installation id ({error}). Restore it, or remove it: then the commits in the "
            "repositories decide whether the directory belongs to the database."
        ) from error


def _count_work(folder: Path) -> dict[str, int]:
    """Return the number of folders by kind; kinds without folders are left out."""
    counts = {}
    for kind in _WORK:
        with suppress(OSError):
            # Parts that were moved out of a repository have “.git.” in their names: they are not work.
            names = [path.name for path in (folder / kind).iterdir() if path.is_dir()]
            if count := sum(".git." not in name for name in names):
                counts[kind] = count
    return counts
