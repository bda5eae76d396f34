"""Reading single files of a project: as committed, or as an agent left them."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from tasks_app.core.errors import WorkspaceError
from tasks_app.git.program import valid_commit
from tasks_app.git.repository import Repository

TEXT_BYTES = 1_000_000
_TREE_BYTES = 8_000_000


@dataclass(frozen=True)
class TreeFile:
    """A file of a commit; `mode` as git has it: 100644, 100755 (may be run) or 120000 (a link)."""

    path: str
    mode: str
    blob: str
    size: int

    @property
    def is_link(self) -> bool:
        return self.mode == "120000"


def committed_tree(repository: Repository, *, commit: str) -> tuple[TreeFile, ...]:
    """All files of a commit in git's order; of a list longer than 8 MB the beginning."""
    listed, _ = repository.git.beginning(
        "ls-tree", "-r", "-l", "-z", "--full-tree", valid_commit(commit), limit=_TREE_BYTES
    )
    entries = listed.decode("utf-8", errors="replace").split("\0")[:-1]
    return tuple(file for entry in entries if (file := _tree_file(entry)))


def _tree_file(entry: str) -> TreeFile | None:
    """From `100644 blob 1f2e…     123<TAB>path`; None for a submodule."""
    facts, _, path = entry.partition("\t")
    mode, kind, blob, size = facts.split()
    return TreeFile(path, mode, blob, int(size)) if kind == "blob" else None


def blob_bytes(repository: Repository, file: TreeFile, *, limit: int = TEXT_BYTES) -> bytes:
    """The first `limit` bytes of a file of a commit."""
    return repository.git.beginning("cat-file", "blob", file.blob, limit=limit)[0]


def committed_text(repository: Repository, *, commit: str, path: str) -> str | None:
    """The text of `path` in a commit, up to 1 MB; None if the commit has no such file."""
    content = committed_bytes(repository, commit=commit, path=path)
    return None if content is None else content.decode("utf-8", errors="replace")


def committed_bytes(
    repository: Repository, *, commit: str, path: str, limit: int = TEXT_BYTES
) -> bytes | None:
    """The content of `path` in a commit; None if the commit has no such file.

    Raises WorkspaceError for more than `limit` bytes.
    """
    blob = committed_blob(repository, commit=commit, path=path)
    if blob is None:
        return None
    content, more = repository.git.beginning("cat-file", "blob", blob, limit=limit)
    if more:
        raise WorkspaceError(f"{path} is larger than {limit:,} bytes.")
    return content


def committed_blob(repository: Repository, *, commit: str, path: str) -> str | None:
    """What git calls the content of `path` in a commit; None if the commit has no such file."""
    listed = repository.git.run("ls-tree", "-z", "--full-tree", valid_commit(commit), "--", path)
    if not listed.startswith(b"100"):  # a regular file, neither folder, link nor submodule
        return None
    return listed.split(b"\t", 1)[0].split()[2].decode()


def committed_names(repository: Repository, *, commit: str, folder: str) -> list[str]:
    """Names of the regular files in a folder of a commit, sorted; none if there is no such folder."""
    listed = repository.git.run(
        "ls-tree", "-z", "--full-tree", valid_commit(commit), "--", folder.rstrip("/") + "/"
    )
    lines = [line for line in listed.decode("utf-8", errors="replace").split("\0") if line.startswith("100")]
    return sorted(line.split("\t", 1)[1].rsplit("/", 1)[-1] for line in lines)


def working_names(workspace: Path, folder: str) -> list[str]:
    """Names of the regular files in a folder as the agent left it, sorted; links are not followed.

    The agent may be at work: somebody looks at the page of its sequence.
    """
    with _opened(workspace, folder, os.O_DIRECTORY) as descriptor:
        if descriptor is None:
            return []
        with os.scandir(descriptor) as entries:
            return sorted(entry.name for entry in entries if entry.is_file(follow_symlinks=False))


def working_text(workspace: Path, path: str, *, limit: int = TEXT_BYTES) -> str | None:
    """The beginning of a file as the agent left it; None if there is none.

    The agent may have put a link there that leads to a file of the portal: links are not followed.
    """
    with _opened(workspace, path) as descriptor:
        if descriptor is None or not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        with os.fdopen(os.dup(descriptor), "rb") as file:
            return file.read(limit).decode("utf-8", errors="replace")


def replace_file(workspace: Path, name: str, content: bytes | None) -> bool:
    """Put a file into the root of a workspace in which no agent runs, or take it away (None).

    Return whether anything changed.
    A link in its place is replaced, not followed; a folder, or whatever else is no file, is left alone.
    """
    root = os.open(workspace, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        kind = _kind(root, name)
        if kind not in (None, stat.S_IFREG, stat.S_IFLNK) or (kind is None and content is None):
            return False
        if kind == stat.S_IFREG and content is not None and _content(root, name) == content:
            return False
        if kind is not None:
            os.unlink(name, dir_fd=root)
        if content is not None:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
            with os.fdopen(os.open(name, flags, 0o644, dir_fd=root), "wb") as file:
                file.write(content)
        return True
    finally:
        os.close(root)


def _kind(folder: int, name: str) -> int | None:
    try:
        return stat.S_IFMT(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return None


def _content(folder: int, name: str) -> bytes:
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    with os.fdopen(descriptor, "rb") as file:
        return file.read()


@contextmanager
def _opened(workspace: Path, path: str, flags: int = 0) -> Iterator[int | None]:
    """What is there, opened to be read; None for nothing, or for a link anywhere on the way.

    One step at a time: what was looked at by its whole name could be a link by the time it is opened.
    """
    parts = PurePosixPath(path).parts
    with ExitStack() as held:
        try:
            if not parts or parts[0] == "/" or ".." in parts:
                raise ValueError(path)
            here = os.open(workspace, os.O_RDONLY | os.O_DIRECTORY)
            held.callback(os.close, here)
            for name in parts[:-1]:
                here = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=here)
                held.callback(os.close, here)
            found = os.open(parts[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | flags, dir_fd=here)
            held.callback(os.close, found)
        except (OSError, ValueError):
            found = None
        yield found
