"""Reading single files of a project: as committed, or as an agent left them."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from tasks_app.errors import WorkspaceError
from tasks_app.workspace.git import valid_commit
from tasks_app.workspace.repository import Repository

TEXT_BYTES = 1_000_000


def committed_text(repository: Repository, *, commit: str, path: str) -> str | None:
    """The text of `path` in a commit, up to 1 MB; None if the commit has no such file."""
    listed = repository.git.run("ls-tree", "-z", "--full-tree", valid_commit(commit), "--", path)
    if not listed.startswith(b"100"):  # a regular file, neither folder, link nor submodule
        return None
    blob = listed.split(b"\t", 1)[0].split()[2].decode()
    content, more = repository.git.beginning("cat-file", "blob", blob, limit=TEXT_BYTES)
    if more:
        raise WorkspaceError(f"{path} is larger than {TEXT_BYTES:,} bytes.")
    return content.decode("utf-8", errors="replace")


def committed_names(repository: Repository, *, commit: str, folder: str) -> list[str]:
    """Names of the regular files in a folder of a commit, sorted; none if there is no such folder."""
    listed = repository.git.run(
        "ls-tree", "-z", "--full-tree", valid_commit(commit), "--", folder.rstrip("/") + "/"
    )
    lines = [line for line in listed.decode("utf-8", errors="replace").split("\0") if line.startswith("100")]
    return sorted(line.split("\t", 1)[1].rsplit("/", 1)[-1] for line in lines)


def working_names(workspace: Path, folder: str) -> list[str]:
    """Names of the regular files in a folder as the agent left it, sorted; links are not followed."""
    target = workspace / folder
    if target.is_symlink() or not target.is_dir():
        return []
    if not target.resolve().is_relative_to(workspace.resolve()):
        return []
    with os.scandir(target) as entries:
        return sorted(entry.name for entry in entries if entry.is_file(follow_symlinks=False))


def working_text(workspace: Path, path: str, *, limit: int = TEXT_BYTES) -> str | None:
    """The beginning of a file as the agent left it; None if there is none.

    The agent may have put a link there that leads to a file of the portal: links are not followed.
    """
    target = workspace / path
    if not target.parent.resolve().is_relative_to(workspace.resolve()):
        return None
    try:
        descriptor = os.open(target, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        return file.read(limit).decode("utf-8", errors="replace")
