"""What a human sees of an Edit or Write that waits for approval: the change of the file as it is now.

The call itself has only the text that it replaces, which may be a part of a line, or only the new content.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tasks_app.core.files import open_file, path_inside
from tasks_app.core.text import visible
from tasks_app.core.types import Evidence

#: Maximum characters of one piece of evidence. The text says where it is cut.
MAX_EVIDENCE = 40_000
#: Unchanged lines that are shown before and after a change.
_CONTEXT = 3
_MAX_FILE_BYTES = 5_000_000
#: Why an Edit has no diff.
_MISSING = "There is no such file now, so the call would fail."
#: difflib's time grows with the square of the length.
_MAX_COMPARED = 2_000


def edit_evidence(given: Mapping[str, Any], workspace: Path, on_host: Path | None) -> list[Evidence]:
    """Return the change as a diff of the file or, with a note why, of the call's own texts.

    `workspace` is what the call names it, `on_host` the folder from which the file is read.
    """
    path = str(given.get("file_path", "")).removeprefix(f"{workspace}/")
    old, new = (str(given.get(key, "")).replace("\r\n", "\n") for key in ("old_string", "new_string"))
    title = f"{visible(path)}, every place" if given.get("replace_all") else visible(path)
    names = f"--- {visible(path)}\n+++ {visible(path)}\n"
    note = ""
    if old and on_host is not None:
        text, note = _read(on_host, path)
        hunks, note = ("", note) if note else _hunks(text, old, new, every=bool(given.get("replace_all")))
        if hunks:
            return [Evidence("diff", title, names + hunks)]
    numberless = ["@@ @@", *_compare(visible(old).split("\n"), visible(new).split("\n"))]
    shown = [Evidence("diff", title, shorten(names + "\n".join(numberless)))]
    if note:
        shown.append(Evidence("text", "The file", note))
    return shown


def write_evidence(given: Mapping[str, Any], workspace: Path, on_host: Path | None) -> list[Evidence]:
    """Return the difference from the file as it is now or, of a new file, the content.

    The content is shown, with a note why, also if there is no difference that can be shown whole.
    """
    path = str(given.get("file_path", "")).removeprefix(f"{workspace}/")
    content = str(given.get("content", ""))
    shown = [Evidence("file", visible(path), shorten(content))]
    if on_host is None:
        return shown
    text, note = _read(on_host, path)
    if note == _MISSING:
        return shown
    lines = visible(text).split("\n"), visible(content.replace("\r\n", "\n")).split("\n")
    diff = ""
    if not note and sum(map(len, lines)) <= _MAX_COMPARED:
        name = visible(path)
        diff = "\n".join(difflib.unified_diff(*lines, name, name, n=_CONTEXT, lineterm=""))
        if not diff:
            note = "The file has this content already."
    if diff and len(diff) <= MAX_EVIDENCE:
        return [Evidence("diff", visible(path), diff)]
    note = note or "The file exists and is replaced. The difference is too long to be shown."
    return [*shown, Evidence("text", "The file", note)]


def shorten(text: str) -> str:
    """Return the text or, if it is too long, both its ends with the number of characters left out between."""
    text = visible(text)
    if len(text) <= MAX_EVIDENCE:
        return text
    half = MAX_EVIDENCE // 2
    return f"{text[:half]}\n[… {len(text) - 2 * half:,} characters are not shown here …]\n{text[-half:]}"


def _read(folder: Path, path: str) -> tuple[str, str]:
    """Return the file's text, or why there is none. Links that lead out of the folder are not followed."""
    try:
        with open_file(folder, path_inside(folder, path)) as file:
            content = file.read(_MAX_FILE_BYTES + 1)
        if len(content) > _MAX_FILE_BYTES:
            return "", "The file is too long to be compared. Only the texts of the call are shown."
        return content.decode().replace("\r\n", "\n"), ""
    except FileNotFoundError:
        return "", _MISSING
    except (OSError, UnicodeDecodeError):
        return "", "The file could not be read. Only the texts of the call are shown."


def _hunks(text: str, old: str, new: str, *, every: bool) -> tuple[str, str]:
    """Return the hunks of a unified diff, or why there are none."""
    found = text.count(old)
    if not found:
        return "", "The text to be replaced is not in the file as it is now, so the call would fail."
    if found > 1 and not every:
        return "", f"The text to be replaced is {found} times in the file, so the call would fail."
    lines = text.split("\n")
    shown: list[str] = []
    size = added = 0
    for first, end in _windows(text, old):
        before = lines[first:end]
        after = "\n".join(before).replace(old, new).split("\n")
        at = f"@@ -{first + 1},{len(before)} +{first + 1 + added},{len(after)} @@"
        hunk = visible("\n".join([at, *_compare(before, after)]))
        size += len(hunk)
        if size > MAX_EVIDENCE - 2_000:  # the names of the file come before
            return "", "The lines of the file are too long to be shown. Only the texts of the call are shown."
        shown.append(hunk)
        added += len(after) - len(before)
    return "\n".join(shown), ""


def _windows(text: str, old: str) -> Iterator[tuple[int, int]]:
    """Yield the first line and the end of each part of the file that is shown. They do not overlap."""
    count = text.count("\n") + 1 - text.endswith("\n")
    first = end = line = at = 0
    while (place := text.find(old, at)) >= 0:
        line += text.count("\n", at, place)
        begin = max(line - _CONTEXT, 0)
        line += old.count("\n")
        at = place + len(old)
        if end and begin > end:
            yield first, end
            first = begin
        elif not end:
            first = begin
        end = min(line + 1 + _CONTEXT, max(count, line + 1))
    yield first, end


def _compare(old: list[str], new: list[str]) -> Iterator[str]:
    """Yield all lines of both, each with its mark."""
    if len(old) + len(new) > _MAX_COMPARED:
        yield from (f"-{line}" for line in old)
        yield from (f"+{line}" for line in new)
        return
    whole = len(old) + len(new)
    yield from list(difflib.unified_diff(old, new, n=whole, lineterm=""))[3:]
