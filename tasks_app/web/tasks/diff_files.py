"""Each file on the page of changes."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile, zip_longest

from tasks_app.core.amounts import counted
from tasks_app.core.text import in_one_line
from tasks_app.git import STATUS_WORDS, TEXT_BYTES, ChangedFile, Repository, blob_contents, blob_sizes
from tasks_app.services.reviews import viewed_key
from tasks_app.web.rendering.diff import (
    DiffLine,
    FileDiff,
    Gap,
    coloured,
    parse_diff,
    shown_lines,
    with_gap_at_end,
)
from tasks_app.web.rendering.syntax import Colours, colours_of, language_of
from tasks_app.web.reviews import ShownLine, ShownThread, ThreadsBeside
from tasks_app.web.tasks.comparison import Comparison

#: Changed lines of one file, and of all files together, that stand in the page from the beginning. The other
#: files are loaded when they come into view.
_FILE_IN_PAGE = 400
_ALL_IN_PAGE = 800
_FILES_IN_PAGE = 20
#: A file with more changed lines is loaded when somebody asks for it.
_LARGE = 2_000
#: Files that the page lists.
MOST_FILES = 2_000
#: Lines that one click shows.
_EXPAND = 20

#: Heights in rows of what stands for a file that is not loaded yet.
_PLACEHOLDERS = (8, 16, 32, 64, 160)


@dataclass(frozen=True)
class Row:
    """A row of a diff: one `line`, or in the split view what stands left and right of each other."""

    line: ShownLine | None = None
    left: ShownLine | None = None
    right: ShownLine | None = None
    expansions: Sequence[Expansion] = ()

    @property
    def threads(self) -> list[ShownThread]:
        found = [shown for one in (self.line, self.left, self.right) if one for shown in one.threads]
        return list({shown.thread.pk: shown for shown in found}.values())


@dataclass(frozen=True)
class Expansion:
    """A button that shows lines which the diff leaves out."""

    label: str
    sign: str
    url: str


@dataclass(frozen=True)
class ShownSide:
    """One side of a file that is not text: its size, and its URL if it is an image."""

    name: str
    size: int | None
    image: str = ""


@dataclass(frozen=True)
class FileBody:
    """The content of a file: its lines, or both sides of a file that is not text, and its other threads."""

    diff: FileDiff
    rows: list[Row]
    threads: list[ShownThread]
    sides: list[ShownSide] = field(default_factory=list)
    is_split: bool = False
    note: str = ""


@dataclass(frozen=True)
class ListedFile:
    """A changed file in the list; `body` is None until it is loaded from `url`."""

    file: ChangedFile
    url: str
    is_viewed: bool
    threads: list[ShownThread]
    body: FileBody | None

    @property
    def name(self) -> str:
        return in_one_line(self.file.path)

    @property
    def old_name(self) -> str:
        return in_one_line(self.file.old_path)

    @property
    def status(self) -> str:
        return STATUS_WORDS[self.file.status]

    @property
    def anchor(self) -> str:
        """Its id in the page, which stays the same when other files are changed."""
        return anchor_of(self.file.path)

    @property
    def size(self) -> int:
        """The number of changed lines."""
        return self.file.added + self.file.removed

    @property
    def is_large(self) -> bool:
        return self.size > _LARGE

    @property
    def placeholder_rows(self) -> int:
        """About how many rows it will have, so that the page does not move when it is loaded."""
        return next((rows for rows in _PLACEHOLDERS if self.size + 6 <= rows), _PLACEHOLDERS[-1])

    @property
    def open_threads(self) -> int:
        return sum(shown.thread.state == "open" for shown in self.threads)


def anchor_of(path: str) -> str:
    return f"file-{hashlib.sha256(path.encode(errors='surrogatepass')).hexdigest()[:12]}"


@dataclass(frozen=True)
class FileList:
    """The files of a comparison, with how many lines they add and remove."""

    files: list[ListedFile]
    count: int
    added: int
    removed: int

    @property
    def left_out(self) -> int:
        """The number of files that are not listed."""
        return self.count - len(self.files)

    @property
    def viewed(self) -> int:
        return sum(listed.is_viewed for listed in self.files)


def file_list(
    compared: Comparison, threads: ThreadsBeside, viewed: Collection[str], *, split: bool
) -> FileList:
    """Return the changed files, the first of them with their lines. Raises WorkspaceError."""
    files = compared.files()
    shown = sorted(files, key=_place_in_tree)[:MOST_FILES]
    seen = {file.path for file in shown if viewed_key(file.path, file.version) in viewed}
    bodies = file_bodies(compared, _first_files(shown, seen), threads, split=split)
    listed = [
        ListedFile(
            file,
            file_url(compared, file, split=split),
            file.path in seen,
            threads.of_file(file.path, file.old_path),
            bodies.get(file.path),
        )
        for file in shown
    ]
    added, removed = sum(file.added for file in files), sum(file.removed for file in files)
    return FileList(listed, len(files), added, removed)


def _place_in_tree(file: ChangedFile) -> list[tuple[bool, str]]:
    """Return the key that sorts files as the tree shows them: in each folder its folders, then its files."""
    *folders, name = file.path.split("/")
    return [*((False, folder) for folder in folders), (True, name)]


def file_url(compared: Comparison, file: ChangedFile, *, split: bool) -> str:
    view = "split" if split else "unified"
    return compared.url("task_diff", file=file.path, was=file.old_path, view=view)


def _first_files(files: Iterable[ChangedFile], viewed: Collection[str]) -> list[ChangedFile]:
    """Return the files that stand in the page from the beginning."""
    chosen: list[ChangedFile] = []
    lines = 0
    for file in files:
        size = file.added + file.removed
        if size > _FILE_IN_PAGE or file.path in viewed:
            continue
        if len(chosen) == _FILES_IN_PAGE or lines + size > _ALL_IN_PAGE:
            break
        chosen.append(file)
        lines += size
    return chosen


def file_bodies(
    compared: Comparison, files: Sequence[ChangedFile], threads: ThreadsBeside, *, split: bool
) -> dict[str, FileBody]:
    """Return what is shown of the files, by path. Their number does not change the number of processes."""
    if not files or compared.difference is None:
        return {}
    names = dict.fromkeys(name for file in files for name in (file.path, file.old_path) if name)
    diffs = {file.path: file for file in _merged(parse_diff(compared.difference.diff(*names)))}
    contents = _Contents.read(compared.difference.repository, files)
    bodies = {}
    for file in files:
        diff = _lines_of_text(file, diffs.get(file.path) or FileDiff(file.path))
        if not diff.is_binary and diff.lines:
            contents.complete(file, diff)
        bodies[file.path] = _body(compared, file, diff, contents.sides(compared, file), threads, split=split)
    return bodies


def _lines_of_text(file: ChangedFile, diff: FileDiff) -> FileDiff:
    """Leave out what git prints of links and submodules: a target, or a commit, as if it were a line."""
    sides = (("del", file.has_old_lines), ("add", file.has_new_lines))
    hidden = [kind for kind, has_lines in sides if not has_lines]
    if hidden and not file.is_binary:
        diff.lines = [line for line in diff.lines if line.kind not in (*hidden, "note", "hunk")]
    return diff


def _merged(diffs: Iterable[FileDiff]) -> Iterator[FileDiff]:
    """Join what git tells of a file in two parts: a file that became a link is removed and added."""
    found: dict[str, FileDiff] = {}
    for diff in diffs:
        if diff.path in found:
            for line in diff.lines:
                found[diff.path].take(line)
        else:
            found[diff.path] = diff
    yield from found.values()


@dataclass(frozen=True)
class _Contents:
    """The sizes of the contents of files by blob, their lines, if they are small, and their colours."""

    sizes: dict[str, int]
    contents: dict[str, bytes]
    lines: dict[str, list[str]]
    colours: dict[str, Colours]

    @classmethod
    def read(cls, repository: Repository, files: Sequence[ChangedFile]) -> _Contents:
        sizes = blob_sizes(repository, [blob for file in files for blob in (file.old_blob, file.new_blob)])
        texts = {
            blob: path
            for file in files
            if not file.is_binary
            for blob, path in ((file.old_blob, file.old_path or file.path), (file.new_blob, file.path))
            if sizes.get(blob, TEXT_BYTES) < TEXT_BYTES
        }
        images = {blob for file in files if file.is_binary for blob in (file.old_blob, file.new_blob)}
        small = {blob for blob in images if sizes.get(blob, TEXT_BYTES) < TEXT_BYTES}
        contents = blob_contents(repository, {*texts, *small})
        lines = {blob: shown_lines(contents[blob]) for blob in texts if blob in contents}
        known = [(blob, language_of(texts[blob]), "\n".join(lines[blob])) for blob in lines]
        return cls(sizes, contents, lines, colours_of(known))

    def complete(self, file: ChangedFile, diff: FileDiff) -> None:
        """Give the lines of the diff their colours, and add the lines after its last hunk."""
        coloured(diff, self.colours.get(file.old_blob, []), self.colours.get(file.new_blob, []))
        if file.new_blob in self.lines:
            with_gap_at_end(diff, len(self.lines[file.new_blob]))

    def sides(self, compared: Comparison, file: ChangedFile) -> list[ShownSide]:
        """Return both sides of a file that is not text."""
        if not file.is_binary:
            return []
        both = (("Before", "old", file.old_blob), ("After", "new", file.new_blob))
        return [self._side(compared, file, *side) for side in both if side[2]]

    def _side(self, compared: Comparison, file: ChangedFile, name: str, side: str, blob: str) -> ShownSide:
        # An image that was not read because of its size is tried: its page knows.
        is_image = image_type(self.contents.get(blob, b"")) or (
            blob not in self.contents
            and file.path.lower().endswith((".png", ".jpg", ".jpeg", ".gif", ".webp"))
        )
        url = compared.url("diff_image", file=file.path, was=file.old_path, side=side) if is_image else ""
        return ShownSide(name, self.sizes.get(blob), url)


def _body(
    compared: Comparison,
    file: ChangedFile,
    diff: FileDiff,
    sides: list[ShownSide],
    threads: ThreadsBeside,
    *,
    split: bool,
) -> FileBody:
    lines = threads.lines_of(diff)
    beside = {shown.thread.pk for line in lines for shown in line.threads}
    others = [one for one in threads.of_file(file.path, file.old_path) if one.thread.pk not in beside]
    rows = rows_of(compared, file, lines, split=split)
    return FileBody(diff, rows, others, sides, split, note=_note(file, rows))


def _note(file: ChangedFile, rows: Sequence[Row]) -> str:
    """Return the sentence that stands in place of lines for a file without any."""
    if rows or file.is_binary:
        return ""
    if file.note:
        return f"{file.note[0].upper()}{file.note[1:]}."
    without_lines = {"A": "The file is empty.", "D": "The file was empty.", "R": "Only the name was changed."}
    return without_lines.get(file.status, "No lines were changed.")


def rows_of(compared: Comparison, file: ChangedFile, lines: Sequence[ShownLine], *, split: bool) -> list[Row]:
    """Return the lines as the rows of the unified or of the split view."""
    if not split:
        return [_full_row(compared, file, line, split=split) for line in lines]
    rows: list[Row] = []
    at = 0
    while at < len(lines):
        removed = _run_of(lines, at, "del")
        added = _run_of(lines, at + len(removed), "add")
        if removed or added:
            rows += [Row(left=left, right=right) for left, right in zip_longest(removed, added)]
        elif lines[at].line.kind == "same":
            rows.append(Row(left=lines[at], right=lines[at]))
        else:
            rows.append(_full_row(compared, file, lines[at], split=split))
        at += len(removed) + len(added) or 1
    return rows


def _run_of(lines: Sequence[ShownLine], start: int, kind: str) -> list[ShownLine]:
    """Return the lines from `start` on that are of this kind."""
    return list(takewhile(lambda line: line.line.kind == kind, (lines[n] for n in range(start, len(lines)))))


def _full_row(compared: Comparison, file: ChangedFile, line: ShownLine, *, split: bool) -> Row:
    gap = line.line.gap
    return Row(line=line, expansions=_expansions(compared, file, gap, split=split) if gap else ())


def _expansions(compared: Comparison, file: ChangedFile, gap: Gap, *, split: bool) -> list[Expansion]:
    """Return the buttons of a gap: lines after the hunk above it, lines before the one below, or all."""

    def url(part: str) -> str:
        return compared.url(
            "diff_lines", file=file.path, was=file.old_path, view="split" if split else "unified",
            first=gap.first, last=gap.last, offset=gap.offset, edge=gap.edge, part=part,
        )  # fmt: skip

    everything = Expansion(f"Show {counted(gap.size, 'hidden line')}", "↕", url("all"))
    if gap.size <= _EXPAND:
        return [everything]
    buttons = []
    if gap.edge != "start":
        buttons.append(Expansion(f"Show {_EXPAND} lines below", "↓", url("top")))
    if gap.edge != "end":
        buttons.append(Expansion(f"Show {_EXPAND} lines above", "↑", url("bottom")))
    return [*buttons, everything]


def expanded_lines(gap: Gap, part: str, lines: Sequence[str], colours: Colours) -> list[DiffLine]:
    """Return lines of a gap: its `top`, its `bottom` or `all`, with the gap that is left."""
    first, last = gap.first, gap.last
    if part == "bottom":
        first = max(first, last - _EXPAND + 1)
    if part == "top":
        last = min(last, first + _EXPAND - 1)
    shown = [
        DiffLine(
            "same", lines[number - 1], number + gap.offset, number,
            colours=colours[number - 1] if number <= len(colours) else (),
        )
        for number in range(first, min(last, len(lines)) + 1)
    ]  # fmt: skip
    if first > gap.first:
        left = Gap(gap.first, first - 1, gap.offset, gap.edge)
        return [DiffLine("hunk", "", gap=left), *shown]
    if last < gap.last:
        left = Gap(last + 1, gap.last, gap.offset, gap.edge)
        return [*shown, DiffLine("hunk", "", gap=left)]
    return shown


#: The first bytes of raster images. SVG is not among them: it can contain scripts.
_SIGNATURES = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
}


def image_type(content: bytes) -> str:
    """Return the media type of a raster image, by its first bytes; "" for everything else."""
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for signature, kind in _SIGNATURES.items() if content.startswith(signature)), "")
