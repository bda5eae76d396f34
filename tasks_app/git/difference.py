"""Differences between two commits of the portal's repository."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from tasks_app.core.amounts import counted
from tasks_app.core.errors import WorkspaceError
from tasks_app.core.text import in_one_line, storable_text
from tasks_app.git.files import blob_contents, blob_sizes
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
#: A commit, and the size of its change in git's words.
_SIZE = re.compile(
    r"^(?P<head>[0-9a-f]+)\n (?P<files>\d+) files? changed"
    r"(?:, (?P<added>\d+) insertions?\(\+\))?(?:, (?P<removed>\d+) deletions?\(-\))?$",
    re.MULTILINE,
)
_STATUS: dict[str, Status] = {"A": "A", "D": "D", "R": "R"}
StatusWord = Literal["new", "deleted", "renamed", "changed"]
STATUS_WORDS: dict[Status, StatusWord] = {"A": "new", "D": "deleted", "R": "renamed", "M": "changed"}
_FILE, _EXECUTABLE, _LINK, _SUBMODULE = "100644", "100755", "120000", "160000"
#: Maximum bytes of a path in Linux, and so of a link's target.
_LONGEST_TARGET = 4096


@dataclass(frozen=True)
class ChangedFile:
    """One file of a change.

    `added` and `removed` count lines, and are 0 for a file that is not text (`is_binary`). `old_path` is the
    former path of a renamed file (R), "" for others. The blobs are the ids of both contents, those of a
    submodule its commits, "" where the file does not exist. The modes are git's: 100644, 100755 (executable),
    120000 (a link, with its target) or 160000 (a submodule).
    """

    path: str
    status: Status
    added: int
    removed: int
    old_path: str = ""
    old_blob: str = field(default="", compare=False)
    new_blob: str = field(default="", compare=False)
    is_binary: bool = field(default=False, compare=False)
    old_mode: str = field(default="", compare=False)
    new_mode: str = field(default="", compare=False)
    old_target: str = field(default="", compare=False)
    new_target: str = field(default="", compare=False)

    @property
    def has_old_lines(self) -> bool:
        """Whether the former content is text. A missing file counts as empty text."""
        return not self.is_binary and self.old_mode in ("", _FILE, _EXECUTABLE)

    @property
    def has_new_lines(self) -> bool:
        return not self.is_binary and self.new_mode in ("", _FILE, _EXECUTABLE)

    @property
    def version(self) -> str:
        """An id of the new content and its mode."""
        if self.new_mode in ("", _FILE):
            return self.new_blob
        return f"{self.new_blob} {self.new_mode}"

    @property
    def note(self) -> str:
        """Changes beside lines: type, executable bit, target or commit; "" without any."""
        modes = (self.old_mode, self.new_mode)
        if modes == (_FILE, _EXECUTABLE):
            return "now executable"
        if modes == (_EXECUTABLE, _FILE):
            return "no longer executable"
        if modes == (_SUBMODULE, _SUBMODULE):
            return f"submodule, from {self.old_blob[:10]} to {self.new_blob[:10]}"
        was = _kind(self.old_mode, self.old_target, self.old_blob)
        now = _kind(self.new_mode, self.new_target, self.new_blob)
        if was == now:
            return ""
        if modes == (_LINK, _LINK):
            return f"link, from {self.old_target} to {self.new_target}"
        if not self.old_mode:
            return now.partition(" ")[2]
        if self.new_mode:
            return f"was {was}, is now {now}"
        return "" if was == "an executable file" else f"was {was}"


@dataclass(frozen=True)
class ChangeSize:
    """The number of changed files, and of added and removed lines."""

    files: int
    added: int
    removed: int

    def __str__(self) -> str:
        return f"+{self.added} −{self.removed}, {counted(self.files, 'file')}"


def _kind(mode: str, target: str, blob: str) -> str:
    """Return what a file of this mode is, in words."""
    if mode == _LINK:
        return f"a link to {target}"
    if mode == _SUBMODULE:
        return f"a submodule at {blob[:10]}"
    if mode == _EXECUTABLE:
        return "an executable file"
    return "a file"


def diff(
    repository: Repository,
    *,
    base: str,
    head: str,
    limit: int = 2_000_000,
    paths: Sequence[str] = (),
    without: str = "",
    context: int = 3,
) -> str:
    """Return the unified diff from `base` to `head`, up to `limit` bytes. Its last line says if it is cut.

    `paths` limits it to these files; for a renamed file both paths are needed. The file `without` is left
    out. `context` is the number of unchanged lines around each change.
    """
    only = _pathspecs(paths, without)
    prefixes = ("--src-prefix=a/", "--dst-prefix=b/")
    shown = ("--full-index", f"--unified={context}")
    words = ("diff", *_DIFF_OPTIONS, *shown, *prefixes, *_range(base, head), *only)
    git = replace(repository.git, settings=(f"core.attributesFile={_ATTRIBUTES}",))
    with _naming_lost_commits(repository, base, head):
        output, more = git.run_limited(*words, limit=limit)
    text = storable_text(output.decode("utf-8", errors="ignore" if more else "replace"))
    text = _note_large_files(repository, text)
    if more:
        return f"{text}\n[… the diff is longer than {limit} bytes and cut here …]\n"
    return text


def patch(repository: Repository, *, base: str, head: str, without: str = "") -> Iterator[bytes]:
    """Yield the whole difference from commit `base` to `head`, with binary files, for `git apply`.

    The file `without` is left out.
    It comes in pieces for a client that may be slow: it has `NETWORK_SECONDS`. Raises WorkspaceError, before
    the first piece if a commit is missing.
    """
    words = ("diff", *_DIFF_OPTIONS, "--binary", "--full-index", "--src-prefix=a/", "--dst-prefix=b/")
    with _naming_lost_commits(repository, base, head):
        only = _pathspecs((), without)
        return repository.git.stream(*words, *_range(base, head), *only, timeout=NETWORK_SECONDS)


def added_lines(repository: Repository, *, base: str, head: str, matching: str) -> str:
    """Return the lines that files have gained from `base` to `head`, of files with such a line that matches.

    `matching` is an extended regular expression of POSIX. At most two million bytes are read.
    """
    words = ("diff", *_DIFF_OPTIONS, "--text", "--unified=0", f"-G{matching}", *_range(base, head))
    with _naming_lost_commits(repository, base, head):
        output, _ = repository.git.run_limited(*words, limit=2_000_000)
    lines = output.decode(errors="replace").splitlines()
    return "\n".join(line for line in lines if line.startswith("+"))


def _pathspecs(paths: Sequence[str], without: str) -> list[str]:
    specs = [f":(top,literal){path}" for path in paths]
    if without:
        specs.append(f":(top,literal,exclude){without}")
    return specs


def changed_files(
    repository: Repository, *, base: str, head: str, paths: Sequence[str] = (), without: str = ""
) -> tuple[ChangedFile, ...]:
    """Return the files that differ between the commits `base` and `head`, in git's order.

    `paths` limits it to these files; for a renamed file both paths are needed. `without` is left out. Raises
    WorkspaceError if the list is too long: with only a part of it, files could escape a guard.
    """
    only = _pathspecs(paths, without)
    words = ("diff", *_DIFF_OPTIONS, "--raw", "--no-abbrev", "--numstat", "-z", *_range(base, head), *only)
    with _naming_lost_commits(repository, base, head):
        output, more = repository.git.run_limited(*words, limit=_LIST_BYTES)
    if more:
        raise WorkspaceError(f"The list of files changed since {base} is longer than {_LIST_BYTES} bytes.")
    files = tuple(_parse(output.decode("utf-8", errors="replace")))
    links = {
        blob
        for file in files
        for mode, blob in ((file.old_mode, file.old_blob), (file.new_mode, file.new_blob))
        if mode == _LINK
    }
    if not links:
        return files
    sizes = blob_sizes(repository, links)
    small = [blob for blob in links if sizes.get(blob, BIG_FILE) <= _LONGEST_TARGET]
    contents = blob_contents(repository, small)
    targets = {blob: in_one_line(content.decode(errors="replace")) for blob, content in contents.items()}
    return tuple(
        replace(
            file,
            old_target=targets.get(file.old_blob, "…") if file.old_mode == _LINK else "",
            new_target=targets.get(file.new_blob, "…") if file.new_mode == _LINK else "",
        )
        for file in files
    )


def sizes_of_changes(repository: Repository, bases: Mapping[str, str]) -> dict[str, ChangeSize]:
    """Return the size of the change to each commit from its base, by commit; one process for all of them.

    Commits without a change are left out, and so are those that are lost or whose base is.
    """
    try:
        lines = "".join(f"{valid_commit(head)} {valid_commit(base)}\n" for head, base in bases.items())
        output = repository.git.run(
            "diff-tree", "--stdin", "-r", "--shortstat", *_DIFF_OPTIONS, stdin=lines.encode()
        )
    except WorkspaceError:  # git ends at a base that is lost
        if len(bases) == 1:
            return {}
        each = [sizes_of_changes(repository, {head: base}) for head, base in bases.items()]
        return {head: size for one in each for head, size in one.items()}
    return {
        found["head"]: ChangeSize(*(int(found[name] or 0) for name in ("files", "added", "removed")))
        for found in _SIZE.finditer(output.decode())
    }


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
    files: list[ChangedFile] = []
    counts: list[tuple[str, str]] = []
    for one in fields:
        if one.startswith(":"):
            # `:100644 100644 1f2e… 3d4c… R100`, and then one path, or the old and the new one of a rename.
            *ids, letter = one.removeprefix(":").split(" ")
            old_mode, new_mode, old_blob, new_blob = (id if id.strip("0") else "" for id in ids)
            status = _STATUS.get(letter[0], "M")
            path, old_path = next(fields), ""
            if status == "R":
                path, old_path = next(fields), path
            files.append(
                ChangedFile(path, status, 0, 0, old_path, old_blob, new_blob, False, old_mode, new_mode)
            )
        else:
            # `3<TAB>1<TAB>path`. A rename has no path here but two after it; a binary file has `-` twice.
            added, removed, name = one.split("\t", 2)
            if not name:
                next(fields), next(fields)
            counts.append((added, removed))
    for file, (added, removed) in zip(files, counts, strict=True):
        file = replace(file, is_binary=added == "-")
        # git counts the target of a link, and the commit of a submodule, as a line.
        yield replace(
            file,
            added=int(added) if file.has_new_lines else 0,
            removed=int(removed) if file.has_old_lines else 0,
        )


# Where lines of a file are in a later commit.


_HUNK = re.compile(r"^@@ -(\d+)(?:,(\d+))? \+\d+(?:,(\d+))? @@", re.MULTILINE)


@dataclass(frozen=True)
class Hunk:
    """`removed` lines from line `start` on became `added` lines. If none was removed, they follow `start`."""

    start: int
    removed: int
    added: int


@dataclass(frozen=True)
class MovedFile:
    """A file in a later commit: its `path` there (None: it was deleted), and how its lines moved."""

    path: str | None
    hunks: tuple[Hunk, ...] = field(default=())

    def line(self, number: int) -> int | None:
        """Return the number of the line in the later commit; None if it was changed or deleted."""
        if self.path is None:
            return None
        moved = number
        for hunk in self.hunks:
            if hunk.removed and hunk.start <= number < hunk.start + hunk.removed:
                return None
            if number >= hunk.start + max(hunk.removed, 1):
                moved += hunk.added - hunk.removed
        return moved


def moved_files(
    repository: Repository, *, base: str, head: str, paths: Iterable[str]
) -> dict[str, MovedFile]:
    """Return for each of the `paths` in commit `base` where it is in `head`.

    Raises WorkspaceError if a commit is lost.
    """
    wanted = set(paths)
    if base == head or not wanted:
        return {path: MovedFile(path) for path in wanted}
    changed = {file.old_path or file.path: file for file in changed_files(repository, base=base, head=head)}
    return {path: _moved(repository, base, head, path, changed.get(path)) for path in wanted}


def _moved(repository: Repository, base: str, head: str, path: str, change: ChangedFile | None) -> MovedFile:
    if change is None or change.status == "A":
        return MovedFile(path)
    if change.status == "D":
        return MovedFile(None)
    names = (path,) if path == change.path else (path, change.path)
    text = diff(repository, base=base, head=head, paths=names, context=0)
    hunks = (Hunk(int(found[1]), int(found[2] or 1), int(found[3] or 1)) for found in _HUNK.finditer(text))
    return MovedFile(change.path, tuple(hunks))
