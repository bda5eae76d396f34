"""Patterns of files and of tool calls. Standard library only: the gate's program loads this file too."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping

from tasks_app.agent.gate.shell import runs, without_options
from tasks_app.agent.gate.shell_reader import REPLACED, UNKNOWN, UNKNOWN_WORD, is_known, plain, read

GLOB_PARTS = re.compile(r"(\*\*/|\*\*|\*|\?|\[!?[^\]]+\])")
#: Tools that write files, and the key of the path in their input. A rule for one of them holds for all.
WRITING = {
    "Write": "file_path",
    "Edit": "file_path",
    "MultiEdit": "file_path",
    "NotebookEdit": "notebook_path",
}
#: A character that bash may replace, with its mark: it stands for anything.
KNOWN_TO_BE_REPLACED = re.compile(f"(?:{REPLACED}.)+", re.DOTALL)
CALL_PATTERN = re.compile(r"\A([A-Za-z*][\w*-]*)(?:\((.+)\))?\Z")
LONGEST_PATTERN = 300


def call_pattern_fault(pattern: str) -> str | None:
    """What is wrong with a pattern of tool calls, as the rest of a sentence; None if nothing is."""
    if len(pattern) > LONGEST_PATTERN:
        return f"must have at most {LONGEST_PATTERN} characters, not {len(pattern):,}"
    if not pattern.isprintable():
        return "must be one line without control characters"
    if not CALL_PATTERN.match(pattern):
        return "must be a tool such as WebFetch, or a tool with a glob such as Bash(git push*)"
    return None


def asked_before(
    patterns: Iterable[str], name: str, tool_input: Mapping[str, object], *, workspace: str, cwd: str = ""
) -> str | None:
    """The first pattern that the tool call matches: a human must approve it before it is made."""
    for pattern in patterns:
        found = CALL_PATTERN.match(pattern)
        if found is None or not _is_tool(found[1], name):
            continue
        if found[2] is None or _argument_matches(found[2], name, tool_input, workspace, cwd):
            return pattern
    return None


def _is_tool(glob: str, name: str) -> bool:
    return wild(name, glob) or (name in WRITING and any(wild(other, glob) for other in WRITING))


def _argument_matches(
    glob: str, name: str, tool_input: Mapping[str, object], workspace: str, cwd: str
) -> bool:
    if name == "Bash":
        return command_matches(str(tool_input.get("command", "")), glob)
    if name in WRITING or "file_path" in tool_input:
        path = str(tool_input.get(WRITING.get(name, "file_path"), ""))
        return any(matches(spelling, glob) for spelling in _paths(path, workspace, cwd))
    return any(_matches_text(text, glob) for text in _texts(tool_input))


def _matches_text(text: str, glob: str) -> bool:
    """Whether the text matches, as it is or, if it is an address, in its plainest spelling."""
    if wild(text, glob):
        return True
    if not text.lstrip().lower().startswith(("http:", "https:")):
        return False
    from tasks_app.agent.gate.urls import plain_addresses

    begin = re.match(r"[A-Za-z]+://[^/]*", glob)
    lowered = glob if begin is None else begin[0].lower() + glob[begin.end() :]
    return any(wild(spelling, lowered) for spelling in plain_addresses(text))


def _paths(path: str, workspace: str, cwd: str) -> Iterator[str]:
    """The file as seen from the workspace and in full, as written and with its links followed."""
    written = os.path.normpath(os.path.join(cwd or workspace, path))  # noqa: PTH118
    for root, full in (
        (os.path.normpath(workspace), written),
        (os.path.realpath(workspace), os.path.realpath(written)),
    ):
        yield full
        if full.startswith(root + os.sep):
            yield os.path.relpath(full, root)


def command_matches(command: str, glob: str) -> bool:
    """Whether the line, or any command that it may run, matches. `*` stands for any characters.

    `git push:*` means the same as `git push*`. Where the name of a program cannot be known, and for a line
    that cannot be taken apart, the answer is yes: better asked once too often.
    """
    glob = " ".join(glob.removesuffix(":*").split()) + ("*" if glob.endswith(":*") else "")
    if wild(" ".join(command.split()), glob):
        return True
    try:
        return any(_may_run(run, glob) for run in runs(command))
    except (ValueError, RecursionError):
        return True


def _may_run(run: list[str] | str, glob: str) -> bool:
    """Whether the command, or the program in another language, may be what the glob stands for."""
    if isinstance(run, str):
        return wild(run, f"* {glob}*") or wild(run.replace("/", " "), f"* {glob}*")
    return any(_wild_command(text, glob) for text in _spellings(run)) or _may_become(run, glob)


def _spellings(words: list[str]) -> Iterator[str]:
    """The command with single blanks, and without the options before its subcommand."""
    for spelled in (words, without_options(words)):
        yield " ".join(" ".join(map(plain, spelled)).split())


def _may_become(words: list[str], glob: str) -> bool:
    """Whether what is not known of the words may make them the beginning of the glob."""
    if words[0] == UNKNOWN:
        return True
    head, star, _ = glob.partition("*")
    pieces = head.split(" ") if head else []
    return any(_begins(spelled, pieces, open_end=bool(star)) for spelled in (words, without_options(words)))


def _begins(words: list[str], pieces: list[str], *, open_end: bool) -> bool:
    guessed = False
    for index, piece in enumerate(pieces):
        last = open_end and index == len(pieces) - 1
        if index >= len(words):
            return guessed and last and not piece
        word = KNOWN_TO_BE_REPLACED.sub(UNKNOWN, words[index])
        before, mark, after = _parted(word)
        if not mark:
            if word != piece and not (last and word.startswith(piece)):
                return False
        elif not (piece.startswith(before) or (last and before.startswith(piece))):
            return False
        elif mark == UNKNOWN:
            return True  # it may be several words
        elif not last and not piece.endswith(after):
            return False
        guessed = guessed or bool(mark)
    return guessed


def _parted(word: str) -> tuple[str, str, str]:
    """What is known of a word at its beginning and its end, and the mark of what is not."""
    found = re.search(f"[{UNKNOWN}{UNKNOWN_WORD}]", word)
    if found is None:
        return word, "", ""
    mark = UNKNOWN if UNKNOWN in word else UNKNOWN_WORD
    return word[: found.start()], mark, re.split(f"[{UNKNOWN}{UNKNOWN_WORD}]", word)[-1]


def every_command_matches(command: str, globs: Iterable[str]) -> bool:
    """Whether each command of the line matches one of the globs, so that it may be run without asking."""
    rules = [glob.removesuffix(":*") + "*" if glob.endswith(":*") else glob for glob in globs]
    try:
        commands = read(command)
    except (ValueError, RecursionError):
        return False
    lines = [" ".join(map(plain, one.words)) if is_known(one.words[0]) else "" for one in commands]
    return bool(lines) and all(any(_wild_command(one, rule) for rule in rules) for one in lines)


def _wild_command(command: str, glob: str) -> bool:
    """`git push *` also means a bare `git push`."""
    return wild(command, glob) or (glob.endswith(" *") and wild(command, glob[:-2]))


def wild(text: str, glob: str) -> bool:
    """Whether the glob matches all of the text; `*` stands for any characters, line ends too.

    Piece by piece, so that the time stays that of a search, whatever a repository writes.
    """
    first, *rest = glob.split("*")
    if not rest:
        return text == glob
    last = rest.pop()
    if not text.startswith(first) or not text.endswith(last) or len(text) < len(first) + len(last):
        return False
    at = len(first)
    for piece in rest:
        at = text.find(piece, at, len(text) - len(last))
        if at < 0:
            return False
        at += len(piece)
    return True


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)


def path_within(path: str, workspace: str, cwd: str) -> str | None:
    """The path relative to the workspace, with links followed; None if it leads out."""
    root = os.path.realpath(workspace)
    real = os.path.realpath(os.path.join(cwd or root, path))  # noqa: PTH118
    if real == root or not real.startswith(root + os.sep):
        return None
    return os.path.relpath(real, root)


def allowed(path: str, globs: list[str]) -> bool:
    """Whether a path relative to the workspace matches one of the globs."""
    return any(matches(path, glob) for glob in globs)


def matches(path: str, glob: str) -> bool:
    """`*`, `?` and `[…]` stay within a folder, `**` does not; `docs/` is all in it.

    Step by step, and not as an expression of `re`: a repository could write a glob that takes it years.
    """
    glob = glob.removeprefix("./")
    if glob.endswith("/"):
        glob += "**"
    reached = {0}
    for part in GLOB_PARTS.split(glob):
        reached = _after(part, path, reached) if part else reached
        if not reached:
            return False
    return len(path) in reached


def _after(part: str, path: str, reached: set[int]) -> set[int]:
    """The places in the path that may be reached when `part` of a glob follows those reached before it."""
    if part == "**":
        return set(range(min(reached), len(path) + 1))
    if part == "**/":
        return reached | {at + 1 for at in range(min(reached), len(path)) if path[at] == "/"}
    if part == "*":
        return _within_folder(path, reached)
    if part == "?" or part[0] == "[":
        return {at + 1 for at in reached if at < len(path) and _is_one(path[at], part)}
    return {at + len(part) for at in reached if path.startswith(part, at)}


def _within_folder(path: str, reached: set[int]) -> set[int]:
    found = set(reached)
    for at in range(min(reached), len(path)):
        if at in found and path[at] != "/":
            found.add(at + 1)
    return found


def _is_one(char: str, part: str) -> bool:
    """Whether `?` or a class such as `[a-z_]` or `[!0-9]` stands for the character."""
    if char == "/" or part == "?":
        return char != "/"
    inner = part[1:-1]
    negated = len(inner) > 1 and inner[0] == "!"
    inner = inner[negated:]
    ranges = re.findall(r"(.)-(.)", inner, re.DOTALL)
    singles = re.sub(r".-.", "", inner, flags=re.DOTALL)
    return (char in singles or any(low <= char <= high for low, high in ranges)) is not negated
