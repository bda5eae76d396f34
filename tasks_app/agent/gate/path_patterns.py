"""The one language of patterns of files: `allowWrite`, `askBefore`, `allowedTools`, scopes of decisions.

    docs/prices.md   this file
    docs/            everything in this folder
    docs/*.md        `*`: any characters of one name
    docs/?.md        `?`: one character of a name
    docs/**          `**`: any characters, across folders
    **/prices.md     `**/`: any number of folders, none as well
    v[0-9].md        `[…]`: one of these characters; `[!…]`: one other character
    app/[id]/**      `[…]` also stands for itself, so that a name with brackets can be written as it is

Every other character stands for itself: blanks, `(group)`, `{x}`, `!`. A pattern that equals a path matches
it. `[*]` and `[?]` are a star and a question mark. Paths and patterns are relative to the repository.

Standard library only: the gate's program loads this file too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_PARTS = re.compile(r"(\*\*/|\*\*|\*|\?|\[!?[^\]]+\])")
#: A pattern is compared with every file that a step changed.
LONGEST = 500


def path_pattern_fault(pattern: str) -> str | None:
    """Return what is wrong with a pattern, as the rest of a sentence, or None."""
    if len(pattern) > LONGEST:
        return f"must have at most {LONGEST} characters, not {len(pattern):,}"
    if not pattern.strip():
        return "must not be empty"
    if not pattern.replace("\t", " ").isprintable():
        return "must be one line without control characters"
    if pattern.startswith(("/", "~/", "\\")) or re.match(r"[A-Za-z]:[/\\]", pattern):
        return "must be relative to the repository"
    if ".." in re.split(r"[/\\]", pattern):
        return "must stay inside the repository, without '..'"
    if pattern.startswith("!"):
        return "begins with '!', but there are no exceptions; './!' begins the name of a file with '!'"
    return None


def allowed(path: str, patterns: Iterable[str]) -> bool:
    """Return whether one of the patterns matches the path."""
    return any(matches(path, pattern) for pattern in patterns)


def matches(path: str, pattern: str) -> bool:
    """Return whether the pattern matches the path.

    It is matched step by step and not by `re`, because a repository's pattern could take `re` years.
    """
    pattern = _complete(pattern)
    reached = {0}
    for part in filter(None, _PARTS.split(pattern)):
        reached = _reached_after(part, path, reached)
        if not reached:
            break
    return path == pattern or len(path) in reached


def may_match_within(folder: str, pattern: str) -> bool:
    """Return whether a file in the folder could match the pattern; "" is the whole repository."""
    pattern = _complete(pattern)
    begin = f"{folder}/" if folder else ""
    if pattern.startswith(begin):
        return True
    reached = {0}
    for part in filter(None, _PARTS.split(pattern)):
        # All of the folder's name is used up before the pattern's end, or in the middle of this part.
        if any(part.startswith(begin[at:]) for at in reached):
            return True
        reached = _reached_after(part, begin, reached)
        if not reached:
            return False
    return len(begin) in reached


def _complete(pattern: str) -> str:
    pattern = pattern.removeprefix("./")
    return f"{pattern}**" if pattern.endswith("/") else pattern


def _reached_after(part: str, path: str, reached: set[int]) -> set[int]:
    """Return the positions in the path that the next `part` of a pattern can reach from those before."""
    if part == "**":
        return set(range(min(reached), len(path) + 1))
    if part == "**/":
        return reached | {at + 1 for at in range(min(reached), len(path)) if path[at] == "/"}
    if part == "*":
        found = set(reached)
        for at in range(min(reached), len(path)):
            if at in found and path[at] != "/":
                found.add(at + 1)
        return found
    if part == "?":
        return {at + 1 for at in reached if at < len(path) and path[at] != "/"}
    found = {at + len(part) for at in reached if path.startswith(part, at)}
    if part[0] == "[" and _PARTS.fullmatch(part):
        found |= {at + 1 for at in reached if at < len(path) and _is_in_class(path[at], part)}
    return found


def _is_in_class(char: str, part: str) -> bool:
    """Return whether a class such as `[a-z_]` or `[!0-9]` has the character."""
    if char == "/":
        return False
    inner = part[1:-1]
    negated = len(inner) > 1 and inner[0] == "!"
    inner = inner[negated:]
    ranges = re.findall(r"(.)-(.)", inner, re.DOTALL)
    singles = re.sub(r".-.", "", inner, flags=re.DOTALL)
    return (char in singles or any(low <= char <= high for low, high in ranges)) is not negated
