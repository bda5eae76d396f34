"""What changed between two commits of the portal's repository."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from tasks_app.core.errors import WorkspaceError
from tasks_app.git.program import BIG_FILE, NETWORK_SECONDS, valid_commit
from tasks_app.git.repository import Repository

Status = Literal["A", "M", "D", "R"]

_PLAIN = ("--no-ext-diff", "--no-textconv", "--no-color", "--find-renames", "--ignore-submodules=none")
_LIST_BYTES = 50_000_000
#: What git says of a file that it compares as binary, with the ids of both versions.
_AS_BINARY = re.compile(r"^(index (\w+)\.\.(\w+)[^\n]*\n)Binary files [^\n]*$", re.MULTILINE)
_STATUS: dict[str, Status] = {"A": "A", "D": "D", "R": "R"}


@dataclass(frozen=True)
class ChangedFile:
    """One file of a change. `added` and `removed` count lines, and are 0 for what is not text.
    `old_path` is the former name of a renamed file (R), else empty."""

    path: str
    status: Status
    added: int
    removed: int
    old_path: str = ""


def diff(
    repository: Repository, *, base: str, head: str, limit: int = 2_000_000, paths: Sequence[str] = ()
) -> str:
    """The unified diff from commit `base` to `head`, up to `limit` bytes; a cut is said in its last line.

    `paths` narrows it to these files; of one that was renamed both names are needed.
    """
    only = [f":(top,literal){path}" for path in paths]
    words = ("diff", *_PLAIN, "--src-prefix=a/", "--dst-prefix=b/", *_range(base, head), *only)
    with _lost_commits_named(repository, base, head):
        output, more = repository.git.beginning(*words, limit=limit)
    text = output.decode("utf-8", errors="ignore" if more else "replace").replace(
        "\0", "\N{REPLACEMENT CHARACTER}"
    )
    text = _large_files_named(repository, text)
    return f"{text}\n[… the diff is longer than {limit} bytes and cut here …]\n" if more else text


def patch(repository: Repository, *, base: str, head: str) -> Iterator[bytes]:
    """The whole difference from commit `base` to `head`, binary files too, as `git apply` takes it.

    In pieces, for a client that may be slow: it has `NETWORK_SECONDS`. Raises WorkspaceError, before
    the first piece if a commit is not there.
    """
    words = ("diff", *_PLAIN, "--binary", "--full-index", "--src-prefix=a/", "--dst-prefix=b/")
    with _lost_commits_named(repository, base, head):
        return repository.git.pieces(*words, *_range(base, head), timeout=NETWORK_SECONDS)


def changed_files(repository: Repository, *, base: str, head: str) -> tuple[ChangedFile, ...]:
    """The files that differ between the commits `base` and `head`, in git's order.

    Raises WorkspaceError for a list that is too long to be taken whole: half of it would let files
    pass a guard unseen.
    """
    words = ("diff", *_PLAIN, "--raw", "--numstat", "-z", *_range(base, head))
    with _lost_commits_named(repository, base, head):
        output, more = repository.git.beginning(*words, limit=_LIST_BYTES)
    if more:
        raise WorkspaceError(f"The list of files changed since {base} is longer than {_LIST_BYTES} bytes.")
    return tuple(_parse(output.decode("utf-8", errors="replace")))


@contextmanager
def _lost_commits_named(repository: Repository, *commits: str) -> Iterator[None]:
    """A failure because a commit is gone says which one, and that only this change is concerned."""
    try:
        yield
    except WorkspaceError as error:
        for commit in commits:
            if not repository.has(commit):
                raise WorkspaceError(
                    f"This change cannot be shown: the portal's repository no longer has the commit "
                    f"{commit[:12]}, which was recorded for it. It was lost with a damaged repository."
                ) from error
        raise


def _large_files_named(repository: Repository, text: str) -> str:
    """Files above BIG_FILE are not compared line by line; git calls them binary, which they may not be."""
    compared = list(_AS_BINARY.finditer(text))
    if not compared:
        return text
    names = sorted({name for found in compared for name in (found[2], found[3]) if name.strip("0")})
    said = repository.git.run(
        "cat-file", "--batch-check=%(objectsize)", stdin="".join(f"{name}\n" for name in names).encode()
    )
    sizes = zip(names, said.decode().splitlines(), strict=True)
    large = {name for name, size in sizes if size.isdecimal() and int(size) > BIG_FILE}
    note = f"[… this file is larger than {BIG_FILE // 1024**2} MB and not shown here …]"
    return _AS_BINARY.sub(
        lambda found: f"{found[1]}{note}" if {found[2], found[3]} & large else found[0], text
    )


def _range(base: str, head: str) -> tuple[str, ...]:
    return ("--end-of-options", valid_commit(base), valid_commit(head), "--")


def _parse(output: str) -> Iterator[ChangedFile]:
    """First come all statuses, then all counts, of the same files in the same order."""
    fields = iter(output.split("\0")[:-1])
    statuses: list[tuple[Status, str, str]] = []
    counts: list[tuple[int, int]] = []
    for field in fields:
        if field.startswith(":"):
            statuses.append(_status(field, fields))
        else:
            counts.append(_counts(field, fields))
    for (status, path, old_path), (added, removed) in zip(statuses, counts, strict=True):
        yield ChangedFile(path, status, added, removed, old_path)


def _status(field: str, fields: Iterator[str]) -> tuple[Status, str, str]:
    """`:100644 100644 1f2e… 3d4c… R100` and then one name, or for a rename the old and the new."""
    status = _STATUS.get(field.rsplit(" ", 1)[1][0], "M")
    first = next(fields)
    return (status, next(fields), first) if status == "R" else (status, first, "")


def _counts(field: str, fields: Iterator[str]) -> tuple[int, int]:
    """`3<TAB>1<TAB>name`; without a name for a rename, whose two names follow. Not text: `-` for both."""
    added, removed, name = field.split("\t", 2)
    if not name:
        next(fields), next(fields)
    return (int(added), int(removed)) if added != "-" else (0, 0)
