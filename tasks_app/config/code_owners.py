"""Read CODEOWNERS as GitHub, GitLab and Forgejo do: who owns a file of the repository.

On GitHub and GitLab the last line that matches a file names its owners, and one without owners says that the
file has none. GitLab looks at each section by itself; a section has default owners. Forgejo takes the owners
of every line that matches.

A repository’s pattern could take `re` years, so `path_patterns` matches them, step by step. Those of Forgejo
are regular expressions: they are read as far as they say what a pattern of paths can say.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from tasks_app.agent.gate.path_patterns import LONGEST, allowed

Dialect = Literal["github", "gitlab", "forgejo"]

#: Where each forge looks for the file; the first that exists counts.
PLACES: Mapping[Dialect, tuple[str, ...]] = MappingProxyType({
    "github": (".github/CODEOWNERS", "CODEOWNERS", "docs/CODEOWNERS"),
    "gitlab": ("CODEOWNERS", "docs/CODEOWNERS", ".gitlab/CODEOWNERS"),
    "forgejo": ("CODEOWNERS", "docs/CODEOWNERS", ".gitea/CODEOWNERS", ".forgejo/CODEOWNERS"),
})  # fmt: skip
#: Each line is compared with every file that a task has changed.
MOST_LINES = 3000

_SECTION = re.compile(r"\^?\[([^\]]+)\](?:\[\d+\])?(?:\s+(.*))?")
_WORD = re.compile(r"(?:\\.|[^\s\\])+")
#: The pieces of a regular expression that a pattern of paths can say, with that pattern.
_PIECES = (
    (re.compile(r"\.[*+]"), "**"),
    (re.compile(r"\[\^/\][*+]"), "*"),
    (re.compile(r"\[\^/\]|\."), "?"),
    (re.compile(r"\\[^A-Za-z0-9]"), ""),
    (re.compile(r"[^\\\[\](){}*+?|^$]"), ""),
)


@dataclass(frozen=True)
class Owned:
    """Who owns a file: names as the file has them, and the pattern of the line that says so."""

    owners: tuple[str, ...]
    pattern: str


@dataclass(frozen=True)
class _Line:
    written: str
    patterns: tuple[str, ...]
    owners: tuple[str, ...]
    excludes: bool = False
    number: int = 0

    def matches(self, path: str) -> bool:
        return allowed(path, self.patterns)


@dataclass(frozen=True)
class CodeOwners:
    """A CODEOWNERS file: its lines by section, in order. Without sections all are in the section ""."""

    dialect: Dialect = "github"
    sections: Mapping[str, list[_Line]] = field(default_factory=dict)
    place: str = ""

    @classmethod
    def parse(cls, text: str, dialect: Dialect, *, place: str = "") -> CodeOwners:
        """Read a file, which is at `place`. Lines that cannot be read are passed over, as the forges do."""
        sections: dict[str, list[_Line]] = {}
        section = ""
        defaults: tuple[str, ...] = ()
        for number, line in enumerate(text.splitlines()[:MOST_LINES], start=1):
            if dialect == "gitlab" and (header := _SECTION.fullmatch(line.strip())):
                section, defaults = (
                    header[1].strip().casefold(),
                    tuple(_owners(_WORD.findall(header[2] or ""))),
                )
                continue
            words = _WORD.findall(line)
            if not words or words[0].startswith("#") or len(words[0]) > LONGEST:
                continue
            excludes = dialect != "github" and words[0].startswith("!")
            pattern = words[0].removeprefix("!") if excludes else words[0]
            owners = tuple(_owners(words[1:])) or defaults
            if patterns := _patterns(pattern, dialect):
                sections.setdefault(section, []).append(_Line(words[0], patterns, owners, excludes, number))
        return cls(dialect, sections, place)

    def of(self, path: str) -> list[Owned]:
        """Return the owners of a file; at GitLab one entry for each section that names some."""
        if self.dialect == "forgejo":
            lines = self.sections.get("", [])
            return [Owned(line.owners, line.written) for line in lines if line.matches(path) != line.excludes]
        found = []
        for lines in self.sections.values():
            matching = [line for line in lines if line.matches(path)]
            if matching and not any(line.excludes for line in matching):
                found.append(Owned(matching[-1].owners, matching[-1].written))
        return [one for one in found if one.owners]

    def names(self) -> dict[str, int]:
        """Return each name of the file with the first line whose files it owns, in the order of lines."""
        lines = sorted((one for lines in self.sections.values() for one in lines), key=lambda one: one.number)
        found: dict[str, int] = {}
        for line in lines:
            for name in line.owners:
                found.setdefault(name, line.number)
        return found


def _owners(words: Iterable[str]) -> Iterator[str]:
    for word in words:
        if word.startswith("#"):
            return
        if "@" in word and not word.startswith("@@"):  # GitLab's roles, such as @@developer
            yield word


def _patterns(written: str, dialect: Dialect) -> tuple[str, ...]:
    """Return the patterns of `path_patterns` that say the same; none if that is not possible."""
    if dialect == "forgejo":
        pattern = _pattern_of_expression(written)
        return (pattern,) if pattern else ()
    is_anchored = written.startswith("/") if dialect == "gitlab" else "/" in written.rstrip("/")
    # A bracket stands for itself in both; behind a backslash, every character does.
    literal = re.sub(r"\\(.)|(\[)", lambda match: _literal(match[1] or match[2]), written)
    pattern = literal.lstrip("/") if is_anchored else f"**/{literal.lstrip('/')}"
    if not pattern:
        return ()
    if pattern.endswith("/"):
        return (f"{pattern}**",)
    if dialect == "gitlab" or (pattern.endswith("/*") and written != "*"):
        return (pattern,)
    return (pattern, f"{pattern}/**")


def _literal(char: str) -> str:
    return f"[{char}]" if char in "*?[" else char


def _pattern_of_expression(expression: str) -> str:
    """Return the pattern of paths that says what a whole regular expression says; "" if none can."""
    rest, pattern = expression.removeprefix("^").removesuffix("$"), ""
    while rest:
        for piece, meaning in _PIECES:
            if match := piece.match(rest):
                pattern += meaning or _literal(match[0][-1])
                rest = rest[match.end() :]
                break
        else:
            return ""
        if rest[:1] in ("*", "+", "?", "{"):  # of one character, which a pattern cannot repeat
            return ""
    return pattern
