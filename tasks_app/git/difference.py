"""Differences between two commits of the portal's repository."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from tasks_app.core.errors import WorkspaceError
from tasks_app.core.storable import storable_text
from tasks_app.git.names import valid_commit
from tasks_app.git.program import BIG_FILE, NETWORK_SECONDS
from tasks_app.git.repository import Repository

Status = Literal["A", "M", "D", "R"]

_DIFF_OPTIONS = ("--no-ext-diff", "--no-textconv", "--no-color", "--find-renames", "--ignore-submodules=none")
_LIST_BYTES = 50_000_000
#: Which language a file has, by its name: then the header of a hunk names the function or method around it.
_ATTRIBUTES = Path(__file__).with_name("hunk_headers.gitattributes")
#: git's lines about a file that it compares as binary, with the ids of both versions.
_AS_BINARY = re.compile(r"^(index (\w+)\.\.(\w+)[^\n]*\n)Binary files [^\n]*$", re.MULTILINE)
_STATUS: dict[str, Status] = {"A": "A", "D": "D", "R": "R"}


@dataclass(frozen=True)
class ChangedFile:
    """One file of a change.

    `added` and `removed` count lines, and are 0 for a file that is not text (`is_binary`). `old_path` is the
    former path of a renamed file (R), "" for others. The blobs are the ids of both contents, "" where the
    file does not exist.
    """

    path: str
    status: Status
    added: int
    removed: int
    old_path: str = ""
    old_blob: str = field(default="", compare=False)
    new_blob: str = field(default="", compare=False)
    is_binary: bool = field(default=False, compare=False)


def diff(
    repository: Repository,
    *,
    base: str,
    head: str,
    limit: int = 2_000_000,
    paths: Sequence[str] = (),
    context: int = 3,
) -> str:
    """Return the unified diff from `base` to `head`, up to `limit` bytes. Its last line says if it is cut.

    `paths` limits it to these files; for a renamed file both paths are needed. `context` is the number of
    unchanged lines around each change.
    """
    only = [f":(top,literal){path}" for path in paths]
    prefixes = ("--src-prefix=a/", "--dst-prefix=b/")
    shown = ("--full-index", f"--unified={context}")
    words = ("diff", *_DIFF_OPTIONS, *shown, *prefixes, *_range(base, head), *only)
    git = replace(repository.git, settings=(f"core.attributesFile={_ATTRIBUTES}",))
    with _naming_lost_commits(repository, base, head):
        output, more = git.run_limited(*words, limit=limit)
    text = storable_text(output.decode("utf-8", errors="ignore" if more else "replace"))
    text = _note_large_files(repository, text)
    return f"{text}\n[… the diff is longer than {limit} bytes and cut here …]\n" if more else text


def patch(repository: Repository, *, base: str, head: str) -> Iterator[bytes]:
    """Yield the whole difference from commit `base` to `head`, with binary files, for `git apply`.

    It comes in pieces for a client that may be slow: it has `NETWORK_SECONDS`. Raises WorkspaceError, before
    the first piece if a commit is missing.
    """
    words = ("diff", *_DIFF_OPTIONS, "--binary", "--full-index", "--src-prefix=a/", "--dst-prefix=b/")
    with _naming_lost_commits(repository, base, head):
        return repository.git.stream(*words, *_range(base, head), timeout=NETWORK_SECONDS)


def changed_files(
    repository: Repository, *, base: str, head: str, paths: Sequence[str] = ()
) -> tuple[ChangedFile, ...]:
    """Return the files that differ between the commits `base` and `head`, in git's order.

    `paths` limits it to these files; for a renamed file both paths are needed. Raises WorkspaceError if the
    list is too long: with only a part of it, files could escape a guard.
    """
    only = [f":(top,literal){path}" for path in paths]
    words = ("diff", *_DIFF_OPTIONS, "--raw", "--no-abbrev", "--numstat", "-z", *_range(base, head), *only)
    with _naming_lost_commits(repository, base, head):
        output, more = repository.git.run_limited(*words, limit=_LIST_BYTES)
    if more:
        raise WorkspaceError(f"The list of files changed since {base} is longer than {_LIST_BYTES} bytes.")
    return tuple(_parse(output.decode("utf-8", errors="replace")))


@contextmanager
def _naming_lost_commits(repository: Repository, *commits: str) -> Iterator[None]:
    """Replace an error because of a lost commit by one that names the commit and explains it."""
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


def _note_large_files(repository: Repository, text: str) -> str:
    """Say which files are too large to be compared line by line: git calls them binary, maybe wrongly."""
    binaries = list(_AS_BINARY.finditer(text))
    if not binaries:
        return text
    blobs = sorted({blob for found in binaries for blob in (found[2], found[3]) if blob.strip("0")})
    listed = repository.git.run(
        "cat-file", "--batch-check=%(objectsize)", stdin="".join(f"{blob}\n" for blob in blobs).encode()
    )
    sizes = zip(blobs, listed.decode().splitlines(), strict=True)
    large = {blob for blob, size in sizes if size.isdecimal() and int(size) > BIG_FILE}
    note = f"[… this file is larger than {BIG_FILE // 1024**2} MB and not shown here …]"
    return _AS_BINARY.sub(
        lambda found: f"{found[1]}{note}" if {found[2], found[3]} & large else found[0], text
    )


def _range(base: str, head: str) -> tuple[str, ...]:
    return ("--end-of-options", valid_commit(base), valid_commit(head), "--")


def _parse(output: str) -> Iterator[ChangedFile]:
    """Parse git's output: all statuses, then all line counts of the same files in the same order."""
    fields = iter(output.split("\0")[:-1])
    entries: list[_RawEntry] = []
    counts: list[tuple[str, str]] = []
    for one in fields:
        if one.startswith(":"):
            entries.append(_parse_entry(one, fields))
        else:
            counts.append(_parse_counts(one, fields))
    for entry, (added, removed) in zip(entries, counts, strict=True):
        is_binary = added == "-"
        yield ChangedFile(
            entry.path, entry.status, 0 if is_binary else int(added), 0 if is_binary else int(removed),
            entry.old_path, entry.old_blob, entry.new_blob, is_binary,
        )  # fmt: skip


@dataclass(frozen=True)
class _RawEntry:
    status: Status
    path: str
    old_path: str
    old_blob: str
    new_blob: str


def _parse_entry(entry: str, fields: Iterator[str]) -> _RawEntry:
    """Parse `:100644 100644 1f2e… 3d4c… R100`, and then one path, or the old and the new one of a rename."""
    *_, old_blob, new_blob, letter = entry.split(" ")
    status = _STATUS.get(letter[0], "M")
    first = next(fields)
    path, old_path = (next(fields), first) if status == "R" else (first, "")
    return _RawEntry(status, path, old_path, _or_empty(old_blob), _or_empty(new_blob))


def _or_empty(blob: str) -> str:
    """Return the id; "" for git's id of zeros."""
    return blob if blob.strip("0") else ""


def _parse_counts(counts: str, fields: Iterator[str]) -> tuple[str, str]:
    """Parse `3<TAB>1<TAB>path`. A rename has no path here but two after it; a binary file has `-` twice."""
    added, removed, name = counts.split("\t", 2)
    if not name:
        next(fields), next(fields)
    return added, removed
