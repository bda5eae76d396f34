"""The repository that a command is to look at: a folder, an address, or the name of a project."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings
from django.db import DatabaseError

from tasks_app.config.validation import Ground, is_repository
from tasks_app.core.errors import BadInput
from tasks_app.git import inspect_source
from tasks_app.git.program import NETWORK_SECONDS, Git
from tasks_app.git.source import is_url, upload_pack
from tasks_app.models import Project
from tasks_app.prompting import SHIPPED_PROMPTS


@dataclass(frozen=True)
class Place:
    """A folder with a repository's files; `name` for people. A `copy` is gone when the command ends."""

    root: Path
    name: str
    copy: bool = False


@contextmanager
def opened(named: str) -> Iterator[Place]:
    """The repository that `named` means. BadInput or WorkspaceError if there is none.

    What has no files of its own to look at, an address or a bare repository, is copied for the while.
    """
    source = named if is_url(named) or Path(named).exists() else _source_of_project(named)
    if not is_url(source) and not _is_bare(Path(source)):
        yield Place(folder(source), named)
        return
    with tempfile.TemporaryDirectory(prefix="cat-herder-validate-") as name:
        root = Path(name).resolve() / "repository"
        _copy(source, root)
        yield Place(root, named, copy=True)


def folder(named: str) -> Path:
    """The folder as a full path. Raises BadInput."""
    path = Path(named).expanduser()
    if not path.exists():
        raise BadInput("there is no such folder", where=named)
    if not path.is_dir():
        raise BadInput("this is not a folder; name the top folder of a repository", where=named)
    return path.resolve()


def ground(root: Path) -> Ground:
    """The folder together with what this installation brings along."""
    return Ground(root, prompts=SHIPPED_PROMPTS, threshold=settings.ENVIRONMENT.threshold)


def _source_of_project(name: str) -> str:
    try:
        found = Project.objects.filter(name=name).values_list("source", flat=True).first()
    except DatabaseError:  # nothing has been set up here yet
        found = None
    if found is None:
        raise BadInput("there is no such folder, and no project of that name", where=name)
    return str(found)


def _is_bare(path: Path) -> bool:
    return (path / "HEAD").is_file() and (path / "objects").is_dir() and not is_repository(path)


def _copy(source: str, root: Path) -> None:
    facts = inspect_source(source)
    Git().run(
        "clone", "--quiet", "--depth=1", "--no-tags", "--template=", "--no-recurse-submodules",
        *upload_pack(facts.source), "--", facts.source, str(root), timeout=NETWORK_SECONDS,
    )  # fmt: skip
