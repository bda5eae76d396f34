"""Open the repository that a command names: a folder, a URL, or the name of a project."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings
from django.db import DatabaseError

from tasks_app.config.validation import RepositoryContext, is_repository
from tasks_app.core.errors import BadInput
from tasks_app.core.temporary_folders import temporary_folder
from tasks_app.git import inspect_source
from tasks_app.git.program import NETWORK_SECONDS, Git
from tasks_app.git.source import is_url, upload_pack
from tasks_app.models import Project
from tasks_app.prompting import SHIPPED_PROMPTS


@dataclass(frozen=True)
class OpenedRepository:
    """A folder with a repository's files. A `copy` is deleted when the command ends."""

    root: Path
    name: str
    copy: bool = False


@contextmanager
def open_repository(name: str) -> Iterator[OpenedRepository]:
    """Open a repository by folder, URL or project name. Raises BadInput or WorkspaceError.

    URLs and bare repositories have no work tree, so they are cloned temporarily.
    """
    source = name if is_url(name) or Path(name).exists() else _source_of_project(name)
    if not is_url(source) and not _is_bare(Path(source)):
        yield OpenedRepository(resolve_folder(source), name)
        return
    with temporary_folder("cat-herder-validate-") as temporary:
        root = temporary.resolve() / "repository"
        _clone(source, root)
        yield OpenedRepository(root, name, copy=True)


def resolve_folder(name: str) -> Path:
    """Return the full path of a folder. Raises BadInput."""
    path = Path(name).expanduser()
    if not path.exists():
        raise BadInput("there is no such folder", where=name)
    if not path.is_dir():
        raise BadInput("this is not a folder; name the top folder of a repository", where=name)
    return path.resolve()


def repository_context(root: Path) -> RepositoryContext:
    """Return the folder with the prompts and the default threshold of this installation."""
    return RepositoryContext(root, prompts=SHIPPED_PROMPTS, threshold=settings.ENVIRONMENT.threshold)


def project_named(name: str) -> Project | None:
    """Return the project that a command names; None if the name is that of a folder, a URL, or of nothing."""
    if is_url(name) or Path(name).exists():
        return None
    try:
        return Project.objects.filter(name=name).first()
    except DatabaseError:  # the database is not set up yet
        return None


def _source_of_project(name: str) -> str:
    found = project_named(name)
    if found is None:
        raise BadInput("there is no such folder, and no project of that name", where=name)
    return found.source


def _is_bare(path: Path) -> bool:
    return (path / "HEAD").is_file() and (path / "objects").is_dir() and not is_repository(path)


def _clone(source: str, root: Path) -> None:
    inspected = inspect_source(source)
    Git().run(
        "clone", "--quiet", "--depth=1", "--no-tags", "--template=", "--no-recurse-submodules",
        *upload_pack(inspected.source), "--", inspected.source, str(root), timeout=NETWORK_SECONDS,
    )  # fmt: skip
