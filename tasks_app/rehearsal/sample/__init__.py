"""The sample project: a small git repository with one failing test and a task that fixes it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

from tasks_app.core.errors import WorkspaceError
from tasks_app.core.files import temporary_folder

SAMPLE_TASK_FILE: Final = "tasks/split-to-the-last-cent.md"

_FILES = Path(__file__).parent / "repository"
# A second suffix, so that this project's tools do not process the sample's code.
_SUFFIX = ".py.txt"
_AUTHOR = ("Cat Herder", "rehearsal@localhost", "2025-01-01T12:00:00+00:00")


def create_sample_repository(path: Path) -> None:
    """Create the sample repository at `path`, always with the same commit, unless it exists.

    Raises WorkspaceError if something else is at `path`, or git fails.
    """
    if (path / ".git").is_dir():
        return
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise WorkspaceError(f"The sample repository cannot be created at {path}: something else is there.")
    path.parent.mkdir(parents=True, exist_ok=True)
    # Created under another name and then moved, so that an interruption leaves no incomplete repository.
    with temporary_folder(".sample-", parent=path.parent) as temporary:
        made = temporary / "repository"
        _copy_files(made)
        _git(made, "init", "--quiet", "--initial-branch=main", "--template=")
        _git(made, "add", "--all", "--force")
        _git(made, "commit", "--quiet", "--message=Split bills that divide evenly")
        made.replace(path)


def commit_on_branch(repository: Path, branch: str, file: str, text: str) -> tuple[str, str]:
    """Commit a file on a new branch of the repository; return the commits before and after."""
    before = _git(repository, "rev-parse", "main")
    _git(repository, "checkout", "--quiet", "-B", branch, "main")
    (repository / file).write_text(text, encoding="utf-8")
    _git(repository, "add", "--", file)
    _git(repository, "commit", "--quiet", f"--message=Change {file}")
    after = _git(repository, "rev-parse", branch)
    _git(repository, "checkout", "--quiet", "main")
    return before, after


def _copy_files(target: Path) -> None:
    for source in sorted(_FILES.rglob("*")):
        if source.is_file():
            copy = target / source.relative_to(_FILES)
            copy.parent.mkdir(parents=True, exist_ok=True)
            if copy.name.endswith(_SUFFIX):
                copy = copy.with_name(copy.name.removesuffix(".txt"))
            shutil.copyfile(source, copy)


def _git(repository: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(
            ["git", *arguments],
            cwd=repository,
            env=_git_environment(),
            capture_output=True,
            text=True,
            check=True,
        )
    except FileNotFoundError as error:
        raise WorkspaceError("The sample repository cannot be created: git is not installed.") from error
    except subprocess.CalledProcessError as error:
        raise WorkspaceError(f"The sample repository cannot be created: {error.stderr.strip()}") from error
    return done.stdout.strip()


def _git_environment() -> dict[str, str]:
    name, mail, date = _AUTHOR
    author = {
        f"GIT_{who}_{what}": value
        for who in ("AUTHOR", "COMMITTER")
        for what, value in (("NAME", name), ("EMAIL", mail), ("DATE", date))
    }
    no_config = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    return {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"} | no_config | author
