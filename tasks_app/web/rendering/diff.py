"""Parse a unified diff into files, hunks and lines."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from itertools import islice, takewhile
from typing import Generic, Literal, NamedTuple, TypeVar

from django.utils.html import escape, format_html
from django.utils.safestring import SafeString

from tasks_app.core.text import in_one_line, visible
from tasks_app.web.rendering.syntax_program import Run

#: Lines of one file that are shown; the page refers to git for more.
_KEEP = 5000

#: A character in a name that git puts into quotes.
_QUOTED = re.compile(r"\\([0-7]{3}|.)")
_ESCAPES = {"a": "\a", "b": "\b", "t": "\t", "n": "\n", "v": "\v", "f": "\f", "r": "\r"}

_HUNK = re.compile(r"@@ -(\d+)(?:,\d+)? \+(\d+)(,0)?(?:,\d+)? @@ ?(.*)")

LineKind = Literal["add", "del", "same", "hunk", "note"]
#: A piece of a line, and whether it was changed.
Part = tuple[str, bool]

#: Longer lines, and more removed lines in a row, are not compared word by word.
_LONGEST_COMPARED = 400
_MOST_COMPARED = 100
#: Of longer stretches of words, that a line has between its common beginning and end, all counts as changed.
_MOST_MATCHED = 40
#: Lines with less in common than this are replaced, not changed: marks would only be noise.
_LEAST_IN_COMMON = 0.5
_WORDS = re.compile(r"\w+|\s+|[^\w\s]")


@dataclass(frozen=True)
class Gap:
    """Unchanged lines that a diff leaves out: from `first` to `last` in the new file.

    `offset` is what makes of a number there the number in the old file. `edge` says where in the file the gap
    is: at its `start`, its `end`, or between two hunks ("").
    """

    first: int
    last: int
    offset: int
    edge: Literal["start", "end", ""] = ""

    @property
    def size(self) -> int:
        return self.last - self.first + 1


@dataclass(frozen=True)
class DiffLine:
    """One line, with invisible characters made visible.

    The numbers count in the old and the new file; None in a file without the line. `parts` are the text in
    pieces, each with whether it differs from the line that this one replaces, or by which it is replaced.
    `colours` are the runs of its syntax colours. A line of the kind `hunk` stands for the lines of its `gap`.
    """

    kind: LineKind
    text: str
    old: int | None = None
    new: int | None = None
    parts: tuple[Part, ...] = ()
    colours: Sequence[Run] = ()
    gap: Gap | None = None

    @property
    def html(self) -> SafeString:
        """The text with its colours and its changed words marked."""
        return line_html(self.text, self.parts, self.colours)


def line_html(text: str, parts: Sequence[Part], colours: Sequence[Run]) -> SafeString:
    """Return the text, escaped, with a `mark` for each changed part and a `span` for each colour.

    Colours that do not belong to this text are left out.
    """
    if sum(length for length, _ in colours) != len(text):
        colours = [(len(text), "")]
    pieces = []
    runs = iter(colours)
    left, colour = 0, ""
    for part, changed in parts or [(text, False)]:
        inner, at = [], 0
        while at < len(part):
            if not left:
                left, colour = next(runs)
            taken = min(left, len(part) - at)
            piece = escape(part[at : at + taken])
            if colour:
                piece = format_html('<span class="s-{}">{}</span>', colour, piece)
            inner.append(piece)
            at, left = at + taken, left - taken
        joined = SafeString("".join(inner))
        if changed:
            joined = format_html("<mark>{}</mark>", joined)
        pieces.append(joined)
    return SafeString("".join(pieces))


@dataclass
class FileDiff:
    """The changes of one file. `cut` lines are left out: the page refers to git.

    `old_path`: its name before a rename. The blobs are the ids of its contents, "" where it does not exist
    or only its name was changed.
    """

    path: str
    status: str = "changed"
    added: int = 0
    removed: int = 0
    cut: int = 0
    old_path: str = ""
    old_blob: str = ""
    new_blob: str = ""
    is_binary: bool = False
    lines: list[DiffLine] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The path in one line, with invisible characters made visible."""
        return in_one_line(self.path)

    def take(self, line: DiffLine) -> None:
        self.added += line.kind == "add"
        self.removed += line.kind == "del"
        if len(self.lines) < _KEEP:
            self.lines.append(line)
        else:
            self.cut += 1


def parse_diff(text: str) -> list[FileDiff]:
    """Parse a unified diff of git."""
    return [_file(chunk) for chunk in _chunks(text.split("\n"))]


def _chunks(lines: Iterable[str]) -> list[list[str]]:
    chunks: list[list[str]] = []
    for line in lines:
        if line.startswith("diff --git "):
            chunks.append([])
        if chunks:
            chunks[-1].append(line)
    return chunks


def _file(lines: list[str]) -> FileDiff:
    starts = (index for index, line in enumerate(lines) if line.startswith("@@ "))
    start = next(starts, len(lines))
    file = _header(lines[:start])
    _hunks(file, lines[start:])
    _mark_changed_words(file)
    return file


def _header(lines: list[str]) -> FileDiff:
    file = FileDiff(path=_parse_path(lines[0].removeprefix("diff --git ")))
    for line in lines[1:]:
        if line.startswith("new file"):
            file.status = "new"
        elif line.startswith("deleted file"):
            file.status = "deleted"
        elif line.startswith("rename from "):
            file.old_path = _unquoted(line.removeprefix("rename from "))
            file.status = f"renamed from {visible(file.old_path)}"
        elif line.startswith("rename to "):
            file.path = _unquoted(line.removeprefix("rename to "))
        elif line.startswith("index "):
            blobs = line.split(" ")[1].split("..")
            file.old_blob, file.new_blob = (blob if blob.strip("0") else "" for blob in blobs)
        elif line.startswith("Binary files"):
            file.is_binary = True
        elif line.startswith("[… "):  # that the diff was cut
            file.take(DiffLine("note", line))
    return file


def _parse_path(names: str) -> str:
    """Return NAME of `a/NAME b/NAME`: both halves are equal, so ` b/` in a name is harmless.

    A renamed file has both names in lines of their own.
    """
    half = _unquoted(names[len(names) // 2 + 1 :])
    return half.removeprefix("b/")


def _unquoted(name: str) -> str:
    """Decode a path that git quoted as a C string."""
    if not name.startswith('"'):
        return name
    return _QUOTED.sub(_unescaped, name[1:-1])


def _unescaped(quoted: re.Match[str]) -> str:
    if quoted[1].isdigit():
        return chr(int(quoted[1], 8))
    return _ESCAPES.get(quoted[1], quoted[1])


def _hunks(file: FileDiff, lines: list[str]) -> None:
    old = new = 1
    for line in lines:
        if match := _HUNK.match(line):
            gap = _gap_before(match, old, new)
            old, new = int(match[1]), int(match[2])
            if gap:
                file.take(DiffLine("hunk", visible(match[4]), gap=gap))
        elif line.startswith("+"):
            file.take(DiffLine("add", _seen(line), new=new))
            new += 1
        elif line.startswith("-"):
            file.take(DiffLine("del", _seen(line), old=old))
            old += 1
        elif line.startswith(" "):
            file.take(DiffLine("same", _seen(line), old, new))
            old, new = old + 1, new + 1
        elif line:  # "\\ No newline at end of file", or that the diff was cut
            file.take(DiffLine("note", line.removeprefix("\\ ")))


def _gap_before(hunk: re.Match[str], old: int, new: int) -> Gap | None:
    """Return the gap between the line `new` of the new file (`old` of the old one) and this hunk."""
    # A hunk without lines on the new side names the line after which it stands.
    begins = int(hunk[2]) + bool(hunk[3])
    if begins <= new:
        return None
    return Gap(new, begins - 1, old - new, "start" if new == 1 else "")


def _mark_changed_words(file: FileDiff) -> None:
    """Mark what differs where as many lines were added as removed before them: each replaces one."""
    start = 0
    while start < len(file.lines):
        removed = _same_kind(file.lines, start, "del")
        added = _same_kind(file.lines, start + removed, "add")
        if removed == added and 0 < removed <= _MOST_COMPARED:
            for index in range(start, start + removed):
                file.lines[index], file.lines[index + removed] = _compared(
                    file.lines[index], file.lines[index + removed]
                )
        start += max(removed + added, 1)


def _same_kind(lines: list[DiffLine], start: int, kind: LineKind) -> int:
    """Return how many lines from `start` on are of this kind."""
    return sum(1 for _ in takewhile(lambda line: line.kind == kind, islice(lines, start, None)))


def _compared(old: DiffLine, new: DiffLine) -> tuple[DiffLine, DiffLine]:
    """Return both lines in parts; as they are if they are too long or have too little in common."""
    if max(len(old.text), len(new.text)) > _LONGEST_COMPARED:
        return old, new
    before, after = _WORDS.findall(old.text), _WORDS.findall(new.text)
    spans = _spans(before, after)
    common = sum(span.end_before - span.before for span in spans if not span.changed)
    if 2 * common < _LEAST_IN_COMMON * (len(before) + len(after)):
        return old, new
    old_parts = [
        ("".join(before[s.before : s.end_before]), s.changed) for s in spans if s.end_before > s.before
    ]
    new_parts = [("".join(after[s.after : s.end_after]), s.changed) for s in spans if s.end_after > s.after]
    return replace(old, parts=tuple(old_parts)), replace(new, parts=tuple(new_parts))


class _Span(NamedTuple):
    """Words from `before` to `end_before` of the old line, and those that the new one has in their place."""

    changed: bool
    before: int
    end_before: int
    after: int
    end_after: int


def _spans(before: Sequence[str], after: Sequence[str]) -> list[_Span]:
    """Return the words of both lines in spans.

    The common beginning and end cost one comparison a word. Between them only few words are matched: the time
    of the matcher grows with the cube of their number, and agents choose the lines.
    """
    start = _common(before, after)
    end = _common(before[start:][::-1], after[start:][::-1])
    stop_before, stop_after = len(before) - end, len(after) - end
    middle = (before[start:stop_before], after[start:stop_after])
    spans = [_Span(False, 0, start, 0, start)]
    if max(map(len, middle)) <= _MOST_MATCHED:
        for tag, *places in SequenceMatcher(None, *middle, autojunk=False).get_opcodes():
            spans.append(_Span(tag != "equal", *(place + start for place in places)))
    else:
        spans.append(_Span(True, start, stop_before, start, stop_after))
    return [*spans, _Span(False, stop_before, len(before), stop_after, len(after))]


def _common(before: Sequence[str], after: Sequence[str]) -> int:
    """Return with how many equal words both begin."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(before, after, strict=False)))


def shown_lines(content: bytes) -> list[str]:
    """Return the lines of a file as a diff shows them."""
    lines = content.decode("utf-8", errors="replace").split("\n")
    if lines[-1] == "":
        lines.pop()
    return [_seen(f" {line}") for line in lines]


def coloured(file: FileDiff, old: Sequence[Sequence[Run]], new: Sequence[Sequence[Run]]) -> None:
    """Give the file's lines the colours of the lines of both contents."""
    for index, line in enumerate(file.lines):
        number, colours = (line.old, old) if line.kind == "del" else (line.new, new)
        if number and number <= len(colours):
            file.lines[index] = replace(line, colours=colours[number - 1])


def with_gap_at_end(file: FileDiff, line_count: int) -> None:
    """Add the gap between the last hunk and the end of the new file, which has `line_count` lines."""
    numbered = next((line for line in reversed(file.lines) if line.new is not None), None)
    if numbered is None or numbered.new is None or file.cut or numbered.new >= line_count:
        return
    if numbered.old is None:  # without unchanged lines at its end the hunk ends the file
        return
    gap = Gap(numbered.new + 1, line_count, numbered.old - numbered.new, "end")
    file.lines.append(DiffLine("hunk", "", gap=gap))


def _seen(line: str) -> str:
    """Make invisible characters visible: bidirectional text could hide what the code does."""
    return visible(line[1:].removesuffix("\r"))


# The tree of changed files: rows of folders and files, in the order of their paths.


File = TypeVar("File")

#: Deeper rows are not indented further.
_DEEPEST_INDENT = 8


@dataclass(frozen=True)
class TreeRow(Generic[File]):
    """A row of the tree: a folder, or a `file`. The level of the topmost rows is 1."""

    name: str
    level: int
    file: File | None = None

    @property
    def indent(self) -> int:
        return min(self.level, _DEEPEST_INDENT)


@dataclass
class _Folder(Generic[File]):
    folders: dict[str, _Folder[File]] = field(default_factory=dict)
    files: list[tuple[str, File]] = field(default_factory=list)


def tree_rows(files: Sequence[tuple[str, File]]) -> list[TreeRow[File]]:
    """Return the rows for files, each given with its path: in each folder its folders, then its files.

    A folder that has only another folder is one row with it.
    """
    root: _Folder[File] = _Folder()
    for path, file in files:
        *names, last = path.split("/")
        folder = root
        for name in names:
            folder = folder.folders.setdefault(name, _Folder())
        folder.files.append((last, file))
    return list(_rows(root))


def _rows(root: _Folder[File]) -> Iterator[TreeRow[File]]:
    """Yield the rows. Without recursion: an agent can nest folders deeper than Python calls."""
    waiting: list[tuple[TreeRow[File], _Folder[File]]] = [(TreeRow("", 0), root)]
    while waiting:
        row, folder = waiting.pop()
        if row.level:
            yield row
        inside = [_entry(name, one, row.level + 1) for name, one in folder.folders.items()]
        files: list[tuple[TreeRow[File], _Folder[File]]] = [
            (TreeRow(in_one_line(name), row.level + 1, file), _Folder()) for name, file in folder.files
        ]
        waiting += reversed([*inside, *files])


def _entry(name: str, folder: _Folder[File], level: int) -> tuple[TreeRow[File], _Folder[File]]:
    """Return the row of a folder, and the folder whose entries come below it."""
    names = [name]
    while not folder.files and len(folder.folders) == 1:
        ((inner, folder),) = folder.folders.items()
        names.append(inner)
    return TreeRow(in_one_line("/".join(names)), level), folder
