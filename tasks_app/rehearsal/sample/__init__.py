"""The sample project: a small git repository with one failing test and a task to mend it."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from tasks_app.core.errors import WorkspaceError

SAMPLE_TASK_FILE: Final = "tasks/split-to-the-last-cent.md"

_FILES = Path(__file__).parent / "repository"
# Kept with a second suffix, so that the project's own tools do not take the sample for their code.
_DISGUISE = ".py.txt"
_AUTHOR = ("Cat Herder", "rehearsal@localhost", "2025-01-01T12:00:00+00:00")


def create_sample_repository(path: Path) -> None:
    """Make the sample repository at `path`, always with the same commit; one that is there is left alone.

    Raises WorkspaceError when something else is in the way, or git fails.
    """
    if (path / ".git").is_dir():
        return
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise WorkspaceError(f"The sample repository cannot be made at {path}: something else is there.")
    path.parent.mkdir(parents=True, exist_ok=True)
    # Made beside its place and moved there whole: who is interrupted leaves no half repository behind.
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".sample-") as workshop:
        made = Path(workshop) / "repository"
        _copy_files(made)
        _commit_all(made)
        made.replace(path)


def _copy_files(target: Path) -> None:
    for source in sorted(_FILES.rglob("*")):
        if source.is_file():
            copy = target / source.relative_to(_FILES)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(
                source, copy.with_name(copy.name.removesuffix(".txt")) if _is_code(copy) else copy
            )


def _is_code(path: Path) -> bool:
    return path.name.endswith(_DISGUISE)


def _commit_all(repository: Path) -> None:
    _git(repository, "init", "--quiet", "--initial-branch=main", "--template=")
    _git(repository, "add", "--all", "--force")
    _git(repository, "commit", "--quiet", "--message=Split bills that divide evenly")


def _git(repository: Path, *arguments: str) -> None:
    try:
        subprocess.run(
            ["git", *arguments],
            cwd=repository,
            env=_environment(),
            capture_output=True,
            text=True,
            check=True,
        )
    except FileNotFoundError as error:
        raise WorkspaceError("The sample repository cannot be made: git is not installed.") from error
    except subprocess.CalledProcessError as error:
        raise WorkspaceError(f"The sample repository cannot be made: {error.stderr.strip()}") from error


def _environment() -> dict[str, str]:
    name, mail, date = _AUTHOR
    people = {
        f"GIT_{who}_{what}": value
        for who in ("AUTHOR", "COMMITTER")
        for what, value in (("NAME", name), ("EMAIL", mail), ("DATE", date))
    }
    nobody = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"} | nobody | people
