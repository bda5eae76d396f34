"""Patterns of tool calls. Patterns of files are in `path_patterns.py`.

Standard library only: the gate's program loads this file too.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping

from tasks_app.agent.gate.path_patterns import allowed, matches, may_match_within
from tasks_app.agent.gate.possible_commands import certain_commands, possible_commands, without_options
from tasks_app.agent.gate.shell_reader import read
from tasks_app.agent.gate.shell_words import REPLACED, UNKNOWN, UNKNOWN_WORD, is_known, plain

#: Tools that write files, and the key of the path in their input. A rule for one of them applies to all.
WRITING = {
    "Write": "file_path",
    "Edit": "file_path",
    "MultiEdit": "file_path",
    "NotebookEdit": "notebook_path",
}
#: Tools that read a file or, by the key `path`, all files of a folder. A rule for Read applies to all.
READING = {
    "Read": "file_path",
    "NotebookRead": "notebook_path",
    "Grep": "path",
    "Glob": "path",
    "LS": "path",
}
#: Names of the tool that starts a sub-agent: the program calls it by the second one.
SUBAGENTS = ("Task", "Agent")
#: Characters that bash may replace, with their marks: they stand for any text.
REPLACED_CHARACTERS = re.compile(f"(?:{REPLACED}.)+", re.DOTALL)
CALL_PATTERN = re.compile(r"\A([A-Za-z*][\w*-]*)(?:\((.+)\))?\Z")
LONGEST_PATTERN = 300
#: A permission of a step, such as `Bash(npm test:*)`.
_STEP_RULE = re.compile(r"\A([A-Za-z][\w-]*)(?:\((.*)\))?\Z", re.DOTALL)


def call_pattern_fault(pattern: str) -> str | None:
    """Return what is wrong with a pattern of tool calls, as the rest of a sentence, or None."""
    if len(pattern) > LONGEST_PATTERN:
        return f"must have at most {LONGEST_PATTERN} characters, not {len(pattern):,}"
    if not pattern.isprintable():
        return "must be one line without control characters"
    if not CALL_PATTERN.match(pattern):
        return "must be a tool such as WebFetch, or a tool with a glob such as Bash(git push*)"
    return None


def needs_approval(
    patterns: Iterable[str], name: str, tool_input: Mapping[str, object], *, workspace: str, cwd: str = ""
) -> str | None:
    """Return the pattern that the tool call matches, because of which a human must approve it.

    Of several, it is the first that names the tool itself, else the first.
    """
    same_rules = _tools_with_same_rules(name)
    for pattern in sorted(patterns, key=lambda one: one.partition("(")[0] != name):
        found = CALL_PATTERN.match(pattern)
        if found is None or not any(wild(tool, found[1]) for tool in same_rules):
            continue
        if found[2] is None:
            return pattern
        if READING.get(name) == "path" and _search_reads(found[2], name, tool_input, workspace, cwd):
            return pattern
        only_for_read = READING.get(name) == "path" and not wild(name, found[1])
        if not only_for_read and _argument_matches(found[2], name, tool_input, workspace, cwd):
            return pattern
    return None


def names_written(pattern: str) -> bool:
    """Return whether the pattern is for writing certain files, such as `Write(docs/**)`."""
    found = CALL_PATTERN.match(pattern)
    return bool(found and found[2] is not None and any(wild(tool, found[1]) for tool in WRITING))


def _tools_with_same_rules(name: str) -> Iterable[str]:
    if name in WRITING:
        return WRITING
    if name in READING:
        return ("Read", name)
    if name in SUBAGENTS:
        return SUBAGENTS
    return (name,)


def _argument_matches(
    glob: str, name: str, tool_input: Mapping[str, object], workspace: str, cwd: str
) -> bool:
    if name == "Bash":
        return command_matches(str(tool_input.get("command", "")), glob)
    if name in WRITING or "file_path" in tool_input or "notebook_path" in tool_input:
        path = str(tool_input.get({**WRITING, **READING}.get(name, "file_path"), ""))
        return any(matches(spelling, glob) for spelling in _path_spellings(path, workspace, cwd))
    return any(_text_matches(text, glob) for text in _texts_in(tool_input))


def _search_reads(glob: str, name: str, tool_input: Mapping[str, object], workspace: str, cwd: str) -> bool:
    """Return whether a search or a list of a folder, by default the current one, may show such a file."""
    folder = str(tool_input.get("path") or "")
    if name == "Glob":  # folders at the beginning of its own pattern
        below = re.match(r"(?:[^*?\[{]*/)?", str(tool_input.get("pattern", "")))
        folder = os.path.join(folder, below[0] if below else "")  # noqa: PTH118
    # What does not exist cannot be shown: the folders, or the file, that the pattern names without wildcards.
    named, *wildcards = re.split(r"[*?\[]", glob.removeprefix("./"), maxsplit=1)
    if wildcards:
        named = named.rpartition("/")[0]
    if not os.path.lexists(os.path.join(workspace, named)):  # noqa: PTH118
        return False
    roots = [f"{root}/" for root in (workspace, os.path.realpath(workspace))]
    for spelling in _path_spellings(folder, workspace, cwd):
        holds_all = any(root.startswith(f"{spelling.rstrip('/')}/") for root in roots)
        if matches(spelling, glob):
            return True
        if may_match_within("" if holds_all else spelling, glob):
            return True
    return False


def _text_matches(text: str, glob: str) -> bool:
    """Return whether the text matches as it is or, if it is a URL, in a normalised spelling."""
    if wild(text, glob):
        return True
    if not text.lstrip().lower().startswith(("http:", "https:")):
        return False
    from tasks_app.agent.gate.urls import normalised_urls

    begin = re.match(r"[A-Za-z]+://[^/]*", glob)
    if begin:
        glob = begin[0].lower() + glob[begin.end() :]
    return any(wild(url, glob) for url in normalised_urls(text))


def _path_spellings(path: str, workspace: str, cwd: str) -> Iterator[str]:
    """Yield the file's path relative to the workspace and in full, as written and with links followed."""
    written = os.path.normpath(os.path.join(cwd or workspace, path))  # noqa: PTH118
    for root, full in (
        (os.path.normpath(workspace), written),
        (os.path.realpath(workspace), os.path.realpath(written)),
    ):
        yield full
        if full.startswith(root + os.sep):
            yield os.path.relpath(full, root)


def command_matches(command: str, glob: str) -> bool:
    """Return whether the line, or any command that it may run, matches. `*` stands for any characters.

    `git push:*` means the same as `git push*`. If the name of a program cannot be known, or the line cannot
    be parsed, the answer is yes: it is better to ask once too often.
    """
    glob = _as_glob(glob)
    if wild(" ".join(command.split()), glob):
        return True
    try:
        return any(_may_match(possible, glob) for possible in possible_commands(command))
    except (ValueError, RecursionError):
        return True


def _as_glob(glob: str) -> str:
    return " ".join(glob.removesuffix(":*").split()) + ("*" if glob.endswith(":*") else "")


def matching_parts(command: str, pattern: str) -> list[str]:
    """Return the commands of a line because of which it matches a pattern such as Bash(git push*).

    Empty if the line matches as a whole, or because of what cannot be known.
    """
    found = CALL_PATTERN.match(pattern)
    if found is None or found[2] is None:
        return []
    try:
        certain, possible = list(certain_commands(command)), list(possible_commands(command))
    except (ValueError, RecursionError):
        return []
    for commands in (certain, possible):
        known = [one for one in commands if not isinstance(one, str) and is_known(one[0])]
        matching = [one for one in known if _may_match(one, _as_glob(found[2]))]
        if matching and len(matching) < len(known):
            return list(dict.fromkeys(" ".join(map(plain, one)).strip() for one in matching))
    return []


def _may_match(possible: list[str] | str, glob: str) -> bool:
    """Return whether a possible command, or a program in another language, may match the glob."""
    if isinstance(possible, str):
        return wild(possible, f"* {glob}*") or wild(possible.replace("/", " "), f"* {glob}*")
    spellings = (possible, without_options(possible))
    texts = (" ".join(" ".join(map(plain, words)).split()) for words in spellings)
    if any(_wild_command(text, glob) for text in texts) or possible[0] == UNKNOWN:
        return True
    head, star, _ = glob.partition("*")
    pieces = head.split(" ") if head else []
    return any(_may_begin_with(words, pieces, open_end=bool(star)) for words in spellings)


def _may_begin_with(words: list[str], pieces: list[str], *, open_end: bool) -> bool:
    """Return whether the words can become the pieces of a glob, if their unknown text is chosen so.

    False for words without unknown text. With `open_end` the last piece needs to match only its beginning.
    """
    guessed = False
    for index, piece in enumerate(pieces):
        last = open_end and index == len(pieces) - 1
        if index >= len(words):
            return guessed and last and not piece
        word = REPLACED_CHARACTERS.sub(UNKNOWN, words[index])
        before, mark, after = _split_at_unknown(word)
        if not mark:
            if word != piece and not (last and word.startswith(piece)):
                return False
        elif not (piece.startswith(before) or (last and before.startswith(piece))):
            return False
        elif mark == UNKNOWN:
            return True  # unknown text may be several words
        elif not last and not piece.endswith(after):
            return False
        guessed = guessed or bool(mark)
    return guessed


def _split_at_unknown(word: str) -> tuple[str, str, str]:
    """Return the known beginning of a word, the mark of its unknown text, and its known end."""
    found = re.search(f"[{UNKNOWN}{UNKNOWN_WORD}]", word)
    if found is None:
        return word, "", ""
    mark = UNKNOWN if UNKNOWN in word else UNKNOWN_WORD
    return word[: found.start()], mark, re.split(f"[{UNKNOWN}{UNKNOWN_WORD}]", word)[-1]


def every_command_matches(command: str, globs: Iterable[str]) -> bool:
    """Return whether each command of the line matches one of the globs, so that it needs no permission."""
    rules = [glob.removesuffix(":*") + "*" if glob.endswith(":*") else glob for glob in globs]
    try:
        commands = read(command)
    except (ValueError, RecursionError):
        return False
    lines = [" ".join(map(plain, one.words)) if is_known(one.words[0]) else "" for one in commands]
    return bool(lines) and all(any(_wild_command(one, rule) for rule in rules) for one in lines)


def rules_for(rules: Iterable[str], name: str) -> list[re.Match[str]]:
    """Return the step's permissions for a tool, with what stands in brackets as the second group.

    A rule for one of the tools that write applies to all of them.
    """
    names = WRITING if name in WRITING else (name,)
    return [found for rule in rules if (found := _STEP_RULE.match(rule)) and found[1] in names]


def permitted(rules: Iterable[str], name: str, tool_input: Mapping[str, object], path: str | None) -> bool:
    """Return whether the step's permissions cover a call of Bash, or of a tool that writes `path`.

    `path` is relative to the workspace, None outside of it.
    """
    globs = [rule[2] for rule in rules_for(rules, name)]
    if None in globs:
        return True
    if name == "Bash":
        return every_command_matches(str(tool_input.get("command", "")), globs)
    return path is not None and allowed(path, [glob.removeprefix("/") for glob in globs])


def _wild_command(command: str, glob: str) -> bool:
    """Return whether the glob matches the command. `git push *` also matches `git push`."""
    return wild(command, glob) or (glob.endswith(" *") and wild(command, glob[:-2]))


def wild(text: str, glob: str) -> bool:
    """Return whether the glob matches the whole text; `*` stands for any characters, line ends included.

    It searches piece by piece, so that no pattern of a repository can make it slow.
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


def _texts_in(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _texts_in(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts_in(inner)


def path_within(path: str, folder: str, cwd: str) -> str | None:
    """Return the path relative to the folder, with links followed, or None if it leads out of the folder."""
    root = os.path.realpath(folder)
    real = os.path.realpath(os.path.join(cwd or root, path))  # noqa: PTH118
    if real == root or not real.startswith(root + os.sep):
        return None
    return os.path.relpath(real, root)
