"""How much of a repository is read at once for an import or an export of decisions (D7)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tasks_app.git import TreeFile

#: Maximum bytes of all files together: they are held in memory and parsed within one request.
MAX_TOTAL_BYTES = 5_000_000


def first_files(files: Sequence[TreeFile], *, most: int) -> list[TreeFile]:
    """Return the first files that together keep within `most` and MAX_TOTAL_BYTES."""
    return list(_first(files[:most]))


def _first(files: Iterable[TreeFile]) -> Iterator[TreeFile]:
    total = 0
    for file in files:
        total += file.size
        if total > MAX_TOTAL_BYTES:
            return
        yield file


def left_out_note(read: int, of: int, *, most: int) -> str:
    """Return a sentence that says how many files were not read, and which limits hold."""
    return (
        f"Only the first {read:,} of {of:,} files were read: at most {most:,} files and"
        f" {MAX_TOTAL_BYTES:,} bytes are read at once."
    )
