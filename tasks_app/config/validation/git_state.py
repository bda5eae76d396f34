"""Check with git whether tasks can start from a folder, and what they would not see.

Looking runs nothing of the repository's own: its hooks, watchers and filters are switched off.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tasks_app.config.validation.findings import REPOSITORY, Finding, error, warning
from tasks_app.core.errors import BadInput, WorkspaceError
from tasks_app.git.program import Git
from tasks_app.git.source import inspect_source

_NAMED = 5


@dataclass(frozen=True)
class GitState:
    """`tracked` are the files that git knows, None where it cannot say."""

    findings: tuple[Finding, ...]
    tracked: frozenset[str] | None = None


def git_state(root: Path) -> GitState:
    """Return whether `root` is a repository with a commit, and what in it is not committed."""
    git = Git(directory=root / ".git", work_tree=root)
    try:
        inspect_source(str(root))
    except (WorkspaceError, BadInput) as fault:
        return GitState((error(REPOSITORY, str(fault)),))
    try:
        return GitState(tuple(_uncommitted(git)), frozenset(_split_names(git.run("ls-files", "-z"))))
    except WorkspaceError as fault:
        return GitState((error(REPOSITORY, str(fault)),))


def is_repository(root: Path) -> bool:
    """Return whether `root` is the top folder of a repository, with commits or without."""
    try:
        Git(directory=root / ".git").run("rev-parse", "--git-dir")
    except WorkspaceError:
        return False
    return True


def _uncommitted(git: Git) -> Iterator[Finding]:
    status = ("status", "--porcelain", "-z", "--no-renames", "--untracked-files=normal")
    listed = git.run("--no-optional-locks", *_without_filters(git), *status, "--ignore-submodules=all")
    if names := [entry[3:] for entry in _split_names(listed)]:
        what = f"not committed: {', '.join(names[:_NAMED])}"
        if len(names) > _NAMED:
            what += f" and {len(names) - _NAMED} more"
        yield warning(REPOSITORY, f"{what}. Tasks start from the last commit and do not see this.")


def _without_filters(git: Git) -> Iterator[str]:
    """Settings that switch off the programs through which a repository passes files."""
    try:
        found = git.run("config", "--null", "--name-only", "--get-regexp", r"^filter\.")
    except WorkspaceError:  # there are none
        return
    for name in _split_names(found):
        value = "false" if name.endswith(".required") else ""
        if "=" in name:
            raise WorkspaceError(f"The setting {name} of the repository cannot be switched off.")
        yield from ("-c", f"{name}={value}")


def _split_names(output: bytes) -> list[str]:
    return [name for name in output.decode("utf-8", errors="replace").split("\0") if name]
