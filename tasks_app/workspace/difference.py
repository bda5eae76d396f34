"""What changed between two commits of the portal's repository."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from tasks_app.errors import WorkspaceError
from tasks_app.workspace.git import NETWORK_SECONDS, valid_commit
from tasks_app.workspace.repository import Repository

Status = Literal["A", "M", "D", "R"]

_PLAIN = ("--no-ext-diff", "--no-textconv", "--no-color", "--find-renames", "--ignore-submodules=none")
_LIST_BYTES = 50_000_000
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
    output, more = repository.git.beginning(*words, limit=limit)
    text = output.decode("utf-8", errors="ignore" if more else "replace").replace(
        "\0", "\N{REPLACEMENT CHARACTER}"
    )
    return f"{text}\n[… the diff is longer than {limit} bytes and cut here …]\n" if more else text


def patch(repository: Repository, *, base: str, head: str) -> Iterator[bytes]:
    """The whole difference from commit `base` to `head`, binary files too, as `git apply` takes it.

    In pieces, for a client that may be slow: it has `NETWORK_SECONDS`. Raises WorkspaceError, before
    the first piece if a commit is not there.
    """
    words = ("diff", *_PLAIN, "--binary", "--full-index", "--src-prefix=a/", "--dst-prefix=b/")
    return repository.git.pieces(*words, *_range(base, head), timeout=NETWORK_SECONDS)


def changed_files(repository: Repository, *, base: str, head: str) -> tuple[ChangedFile, ...]:
    """The files that differ between the commits `base` and `head`, in git's order.

    Raises WorkspaceError for a list that is too long to be taken whole: half of it would let files
    pass a guard unseen.
    """
    words = ("diff", *_PLAIN, "--raw", "--numstat", "-z", *_range(base, head))
    output, more = repository.git.beginning(*words, limit=_LIST_BYTES)
    if more:
        raise WorkspaceError(f"The list of files changed since {base} is longer than {_LIST_BYTES} bytes.")
    return tuple(_parse(output.decode("utf-8", errors="replace")))


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
