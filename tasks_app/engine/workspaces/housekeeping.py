"""Freeing what nothing needs any more: left by killed processes, folders without rows, unnamed objects."""

from __future__ import annotations

import fcntl
import logging
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from itertools import chain
from pathlib import Path

from django.conf import settings
from django.db import close_old_connections
from django.db.models import Model, Q
from django.utils import timezone

from tasks_app.agent.proxy.server import SOCKET_FOLDER
from tasks_app.core.errors import WorkspaceError
from tasks_app.core.files import abandoned_folders
from tasks_app.engine.temporary_faults import temporary_fault
from tasks_app.engine.workspaces.cleaning import BUSY, Cleaned, clean_workspaces, remove_half_made_clones
from tasks_app.git.pruning import prune, remove_unfinished_files
from tasks_app.git.recording import TEMPORARY, remove_tree
from tasks_app.models import (
    Project,
    Publication,
    PullRequest,
    Review,
    ReviewThread,
    Run,
    Sequence,
    Step,
    Task,
    paths,
)
from tasks_app.sandbox import Sandbox
from tasks_app.sandbox.watch import size_of_folder
from tasks_app.services.data_directory import holds_portal
from tasks_app.services.workers.hosts import remove_pushes_of_ended_tasks

#: Each model with commits, how it leads to its project, and its fields that name one.
FIELDS_WITH_COMMITS: tuple[tuple[type[Model], str, tuple[str, ...]], ...] = (
    (Task, "project", ("base_commit", "head_commit", "merged_commit", "reset_to")),
    (Sequence, "project", ("base_commit", "head_commit")),
    (Step, "task__project", ("base_commit", "head_commit")),
    (Run, "step__task__project", ("head_commit", "checked_commit")),
    (Review, "task__project", ("commit",)),
    (ReviewThread, "task__project", ("commit",)),
    (Publication, "task__project", ("commit", "merged_commit", "published_commit")),
    (PullRequest, "project", ("head_commit",)),
)


def named_commits(project: Project) -> Iterator[str]:
    """Yield the commits that the project's rows name, some of them several times."""
    for model, leads_to, fields in FIELDS_WITH_COMMITS:
        for field in fields:
            rows = model._default_manager.filter(Q(**{leads_to: project})).exclude(**{field: ""})
            yield from rows.values_list(field, flat=True).distinct().iterator()


logger = logging.getLogger(__name__)

#: How old an object must be before it is removed: a recording may still need younger ones.
UNNAMED_KEPT = timedelta(days=14)
#: How old a half-written file must be before it is removed from a repository that is always in use.
UNFINISHED_KEPT = timedelta(days=1)
#: Seconds between two looks at what is left over on a worker host.
SECONDS = 3600.0
#: The prefixes of the portal's temporary folders, on the machine and in the data directory.
TEMPORARY_PREFIXES = (
    SOCKET_FOLDER, "cat-herder-commit-", "cat-herder-validate-", "cat-herder-doctor-", "cat-herder-gate-",
    "cat-herder-probe-",
)  # fmt: skip
DATA_PREFIXES = ("cat-herder-probe-", ".sample-")


@dataclass(frozen=True)
class Freed:
    """The outcome for one folder or repository: `freed` bytes, or why it was `kept`."""

    path: Path
    freed: int = 0
    kept: str = ""


def remove_unused_folders(*, dry_run: bool = False) -> Iterator[Freed]:
    """Remove folders of removed projects and tasks on a worker host, unless a process uses them.

    Nothing on the portal's own host: there a restored database may be older than the repositories.
    """
    if paths.portal_of_worker_host() is None or holds_portal(paths.data_dir()):
        return
    for path in paths.without_rows():
        if dry_run:
            yield Freed(path, freed=_size(path))
            continue
        with _unused(path) as unused:
            yield _remove(path) if unused else Freed(path, kept="a process uses it")


def _remove(path: Path) -> Freed:
    size = _size(path)
    try:
        paths.remove_folder(path)
    except WorkspaceError as error:
        return Freed(path, kept=str(error))
    return Freed(path, freed=size)


@contextmanager
def _unused(path: Path) -> Iterator[bool]:
    """Hold all locks of a folder. Yield False if another process has one: an agent, a fetch or a setup."""
    beside = path.with_name(f"{path.name}.lock")
    with ExitStack() as held:
        locks = [one for one in (path, beside, path / "lock", *path.glob("*.lock")) if one.is_file()]
        yield all(_lock(one, held) for one in locks)


def _lock(path: Path, held: ExitStack) -> bool:
    try:
        fcntl.flock(held.enter_context(path.open()), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _size(path: Path) -> int:
    if path.is_dir():
        return size_of_folder(path)
    return path.lstat().st_blocks * 512


def prune_repositories(*, older_than: timedelta = UNNAMED_KEPT) -> Iterator[Freed]:
    """Remove old objects that no reference and no row names, from the repositories of this host.

    Yields only those in which there is something to do.
    """
    for project in Project.objects.order_by("pk"):
        repository = paths.repository(project)
        if not repository.path.exists():
            continue
        try:
            since = timezone.now() - older_than
            done = prune(repository, unused_since=since, named=partial(named_commits, project))
        except (WorkspaceError, OSError) as error:
            yield Freed(repository.path, kept=str(error))
            continue
        if done.freed or done.kept:
            yield Freed(repository.path, freed=done.freed, kept=done.kept)


def remove_abandoned_folders() -> Iterator[Freed | Cleaned]:
    """Remove what killed processes left half-made on this host: temporary folders, clones and repositories.

    A clone of a task that goes on is not removed here: its next worker makes it anew.
    """
    places = (
        (paths.data_dir(), DATA_PREFIXES),
        (paths.data_dir() / "repositories", (TEMPORARY,)),
        (Path(tempfile.gettempdir()), TEMPORARY_PREFIXES),
        (Path("/tmp"), (SOCKET_FOLDER,)),  # noqa: S108 if that path is too long for a socket
    )
    for parent, prefixes in places:
        for path in abandoned_folders(parent, *prefixes):
            size = _size(path)
            try:
                remove_tree(path)
            except OSError as error:
                yield Freed(path, kept=str(error))
                continue
            yield Freed(path, freed=size)
    for path in sorted((paths.data_dir() / "repositories").glob("*.git.new")):
        with _unused(path.with_suffix("")) as unused:
            if unused:
                yield _remove(path)
    for project in Project.objects.order_by("pk"):
        place = paths.repository(project)
        if freed := remove_unfinished_files(place, older_than=UNFINISHED_KEPT):
            yield Freed(place.path, freed=freed)
    yield from remove_half_made_clones()


def log_removed(one: Freed | Cleaned) -> None:
    """Log what was removed, or why it was kept."""
    if one.kept:
        logger.warning("%s is left over and was kept: %s", one.path, one.kept)
    else:
        logger.info("%s was left over and is removed: %s bytes", one.path, f"{one.freed:,}")


class Housekeeper(threading.Thread):
    """Removes what is left over on this host, at the start and then every SECONDS until it is stopped."""

    def __init__(self, sandbox: Callable[[], Sandbox]) -> None:
        super().__init__(name="housekeeper", daemon=True)
        self._sandbox = sandbox
        self._stop_wanted = threading.Event()

    def run(self) -> None:
        while not self._stop_wanted.is_set():
            try:
                close_old_connections()
                self._remove_all()
            except Exception as error:
                trace = None if temporary_fault(error) else error
                logger.error("what is left over could not be removed (%s)", error, exc_info=trace)
            finally:
                close_old_connections()
            self._stop_wanted.wait(SECONDS)

    def _remove_all(self) -> None:
        remove_pushes_of_ended_tasks()
        removed: Iterator[Freed | Cleaned] = chain(
            remove_abandoned_folders(), remove_unused_folders(), self._remove_old_workspaces()
        )
        for one in removed:
            if one.kept == BUSY:
                continue
            log_removed(one)
            if self._stop_wanted.is_set():
                return

    def _remove_old_workspaces(self) -> Iterator[Cleaned]:
        """Remove workspaces that are older than the setting says."""
        if days := settings.ENVIRONMENT.keep_workspaces_days:
            yield from clean_workspaces(older_than=timedelta(days=days), sandbox=self._sandbox())

    def stop(self) -> None:
        self._stop_wanted.set()
