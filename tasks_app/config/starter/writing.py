"""Write files into a repository without changing existing ones."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from tasks_app.config.starter.files import StarterFile
from tasks_app.config.validation.repository_context import RepositoryContext
from tasks_app.core.errors import BadInput


class Outcome(StrEnum):
    """The result for one file."""

    MADE = "made"
    THERE = "there already"  # the same, or something that serves as well
    LEFT = "left alone"  # something else is in its place


@dataclass(frozen=True)
class Written:
    """A file and its result; `remark` says why, or what to do."""

    name: str
    outcome: Outcome
    remark: str = ""


def write_all(files: Iterable[StarterFile], context: RepositoryContext, *, dry_run: bool) -> list[Written]:
    """Make each file that is not there; with `dry_run`, only say what would become of it.

    Raises BadInput if a folder leads out of the repository or cannot be written.
    """
    return [_written(file, context, dry_run=dry_run) for file in files]


def _written(file: StarterFile, context: RepositoryContext, *, dry_run: bool) -> Written:
    path = context.root / file.name
    if file.satisfied:
        return Written(file.name, Outcome.THERE, file.satisfied)
    if context.leads_out(path.parent):
        raise BadInput("its folder is a link that leads out of the repository", where=file.name)
    try:
        made = not os.path.lexists(path) if dry_run else _write_new(path, file.text)
    except OSError as fault:
        raise BadInput(f"the file cannot be written: {fault.strerror}", where=file.name) from fault
    if made:
        return Written(file.name, Outcome.MADE)
    same = path.is_file() and path.read_bytes() == file.text.encode()
    return Written(file.name, Outcome.THERE) if same else Written(file.name, Outcome.LEFT, file.hint)


def _write_new(path: Path, text: str) -> bool:
    """False if something of that name is there, a link that leads nowhere included."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with path.open("x", encoding="utf-8", newline="") as file:
            file.write(text)
    except FileExistsError:
        return False
    return True
