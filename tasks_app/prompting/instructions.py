"""Instructions that agents get: for a step, from the repository, and on when and how to ask.

A step's are in the repository's own prompt file or in the shipped one (SPEC P2). The repository's are in
the files that Claude Code itself would read (P4). It is told not to load anything of a repository, because it
would load settings and hooks too, so the portal reads these files; `validate` and the project's page say what
is not read. On asking there is `prompts/interaction-intro.md` (SPEC H1, H2, H13).
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import yaml

from tasks_app.core.errors import BadInput

ROOT_FILES = ("CLAUDE.md", "AGENTS.md")
#: Files that hold for the whole repository, too.
MORE_FILES = (".claude/CLAUDE.md", "CLAUDE.local.md")
RULES = ".claude/rules/"
NESTED = ("CLAUDE.md", "AGENTS.md")
INSTRUCTION_FILES = re.compile(r"\.claude/rules/.+\.md|(?:.+/)?(?:CLAUDE|AGENTS)\.md")
MAX_DEPTH = 5
#: Imports of one file; and a longer line is not searched for them.
MAX_IMPORTS, MAX_LINE = 200, 2_000
#: Characters of further files, besides the two of the root, in the prompt; other files are listed there.
MAX_TEXT = 60_000

_FRONT_MATTER = re.compile(r"\A---[ \t]*\n(?P<front>(?:.*\n)*?)---[ \t]*(?:\n|\Z)")
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})", re.MULTILINE)
_CODE_SPAN = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)")
_IMPORT = re.compile(r"(?:^|(?<=\s))@(?P<path>(?:[^\s\\]|\\ )+)")


@dataclass(frozen=True)
class Unread:
    """The reason why a file that Claude Code would read is not read; `line` is where `file` names it."""

    file: str
    line: int | None
    message: str


@dataclass
class ProjectInstructions:
    """`root` are CLAUDE.md and AGENTS.md, `more` further files with their texts, `listed` what to read when.

    `read` returns the text of a file of the repository, None if there is none, and follows links that stay in
    the repository. `names` are the repository's files.
    """

    read: Callable[[str], str | None]
    names: Collection[str]
    root: dict[str, str] = field(default_factory=dict)
    more: list[tuple[str, str]] = field(default_factory=list)
    listed: list[tuple[str, str]] = field(default_factory=list)
    unread: list[Unread] = field(default_factory=list)
    _seen: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._seen.update(ROOT_FILES)
        for name in ROOT_FILES:
            if (text := self.read(name)) is not None:
                self.root[name] = text
        for name, text in self.root.items():
            self._import_from(name, text, depth=1)
        for name in MORE_FILES:
            self._add(name, "for the whole repository", depth=0)
        rules = sorted(name for name in self.names if name.startswith(RULES) and name.endswith(".md"))
        for name in rules:
            text = self.read(name)
            globs = _globs_of(text or "")
            if text is not None and globs:
                self._seen.add(name)
                self.listed.append((name, f"for files that match {', '.join(globs)}"))
            else:
                self._add(name, "for the whole repository", depth=0)
        for name in sorted(self.names):
            folder, _, base = name.rpartition("/")
            if base in NESTED and folder and name not in self._seen:
                self.listed.append((name, f"for files in {folder}/"))

    def _add(self, name: str, applies: str, *, depth: int) -> None:
        """Put a file into the prompt or, if it has too much text, into the list of files to read."""
        if name in self._seen:
            return
        text = self.read(name)
        if text is None:
            return
        self._seen.add(name)
        body = _FRONT_MATTER.sub("", text.replace("\r\n", "\n"), count=1)
        if (
            not body.strip()
            or "\0" in body
            or body.strip() in {known.strip() for known in self.root.values()}
        ):
            return
        if sum(len(known) for _, known in self.more) + len(body) > MAX_TEXT:
            self.listed.append((name, f"{applies}; it is too long to stand here"))
            return
        self.more.append((name, body))
        self._import_from(name, body, depth=depth + 1)

    def _import_from(self, name: str, text: str, *, depth: int) -> None:
        for line, target in islice(imports_in(text), MAX_IMPORTS):
            path = posixpath.normpath(posixpath.join(posixpath.dirname(name), target))
            if target.startswith(("~", "/")) or path.startswith(".."):
                why = "it is outside of the repository"
            elif self.read(path) is None:
                if not path.endswith(".md") and not target.startswith("."):
                    continue  # `@types/node` or a decorator is not an import
                why = "there is no such file"
            elif depth > MAX_DEPTH:
                why = f"it is more than {MAX_DEPTH} imports away"
            else:
                self._add(path, f"imported by {name}", depth=depth)
                continue
            self.unread.append(Unread(name, line, f"@{target} is not read: {why}"))


def imports_in(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines and paths of `@path` imports. In code there are none."""
    fence = ""
    for number, line in enumerate(text.splitlines(), start=1):
        marker = _FENCE.match(line)
        if marker and not fence:
            fence = marker[1]
        elif fence:
            if marker and marker[1].startswith(fence) and not line.strip().strip(fence[0]):
                fence = ""
        elif len(line) <= MAX_LINE:
            for found in _IMPORT.finditer(_CODE_SPAN.sub("", line)):
                path = found["path"].replace("\\ ", " ").partition("#")[0].rstrip(".,;:!?)")
                if path and path not in (".", ".."):
                    yield number, path


def _globs_of(text: str) -> list[str]:
    """Return the `paths` of a rule's front matter; none for a rule that always holds."""
    found = _FRONT_MATTER.match(text.removeprefix("\ufeff").replace("\r\n", "\n"))
    if found is None or len(found["front"]) > 10_000:
        return []
    try:
        front = yaml.safe_load(found["front"])
    except (
        yaml.YAMLError,
        RecursionError,
        ValueError,
    ):  # a glob that begins with * is not YAML without quotes
        return re.findall(r"[^\s,\[\]\"']*[*/][^\s,\[\]\"']*", found["front"])
    paths = front.get("paths") if isinstance(front, dict) else None
    if isinstance(paths, str):
        return [one.strip() for one in paths.split(",") if one.strip()]
    if isinstance(paths, list):
        return [str(one) for one in paths if str(one).strip()]
    return []


# The instructions of a step: the repository's own prompt file, or the shipped one (SPEC P2).


SELF = "self"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def repository_path(name: str) -> str:
    """Return the path of a repository's own prompt file for a command, relative to its root."""
    return f".claude/commands/{name}.md"


def load_step_instructions(name: str, *, repository_text: str | None, shipped_dir: Path) -> str:
    """Return the prompt file of the command `name`, without its front matter.

    `repository_text` is the repository's own file, None if it has none; `shipped_dir` holds the shipped
    files. For `self` the task is the prompt, so a repository's file of that name does not count. Raises
    `BadInput` if the file is missing or empty; it names its path, or the commands that exist.
    """
    if not _NAME.fullmatch(name):
        raise BadInput(f"{name!r} is not the name of a command: letters, digits, '.', '_' and '-' only")
    if repository_text is not None and name != SELF:
        return _without_front_matter(repository_text, where=repository_path(name))
    return _without_front_matter(_shipped(name, shipped_dir), where=str(shipped_dir / f"{name}.md"))


def _shipped(name: str, shipped_dir: Path) -> str:
    path = shipped_dir / f"{name}.md"
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        built_in = ", ".join(sorted(one.stem for one in shipped_dir.glob("*.md")))
        raise BadInput(
            f'there are no instructions for the command "{name}": the repository has no '
            f"{repository_path(name)}, and the built-in commands are {built_in}"
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"the instructions cannot be read: {error}", where=str(path)) from error


def _without_front_matter(text: str, *, where: str) -> str:
    plain = text.removeprefix("\ufeff").replace("\r\n", "\n")
    if body := _FRONT_MATTER.sub("", plain, count=1).strip():
        return body
    raise BadInput("there are no instructions in this file", where=where)


WHERE = "prompts/interaction-intro.md"
PLACEHOLDER = "{{threshold}}"

_BAND_OF_LEVEL = {1: "LOW", 2: "LOW", 3: "MEDIUM", 4: "MEDIUM", 5: "HIGH"}
_COMMON = "COMMON"
_SECTIONS = (_COMMON, "LOW", "MEDIUM", "HIGH", *(f"LEVEL {level}" for level in _BAND_OF_LEVEL))

_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_HEADING = re.compile(r"^##[ \t]+(.+?)[ \t]*$", re.MULTILINE)
_ANY_PLACEHOLDER = re.compile(r"\{\{.*?\}\}")


@dataclass(frozen=True)
class IntroFault:
    """One fault of the file; `line` is that of the section or placeholder, None if something is missing."""

    line: int | None
    message: str


@dataclass(frozen=True)
class InteractionIntro:
    """The sections of the file by name. They are always complete."""

    sections: Mapping[str, str]

    def render(self, threshold: int) -> str:
        """Return the text for a threshold: when to ask (its band and level), and how. Empty for 0."""
        if threshold == 0:
            return ""
        if threshold not in _BAND_OF_LEVEL:
            raise BadInput(f"the threshold must be a whole number from 0 to 5, not {threshold}", where=WHERE)
        when = f"{self.sections[_BAND_OF_LEVEL[threshold]]}\n{self.sections[f'LEVEL {threshold}']}"
        text = f"{when}\n\n{self.sections[_COMMON]}"
        return text.replace(PLACEHOLDER, str(threshold))


def read_interaction_intro(path: Path) -> InteractionIntro:
    """Read the sections of the file at `path`. Raises `BadInput` that names the path and the section."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"the file cannot be read: {error}", where=str(path)) from error
    return load_interaction_intro(text, where=str(path))


def load_interaction_intro(text: str, *, where: str = WHERE) -> InteractionIntro:
    """Read the sections of the text, without comments and what precedes the first section.

    Raises `BadInput` that names file and section if a section is missing, empty, duplicated or unknown, if
    the placeholder for the number is missing, or if there is an unknown placeholder.
    """
    if faults := intro_faults(text):
        raise BadInput(faults[0].message, where=where)
    return InteractionIntro(_text_by_heading(_COMMENT.sub("", text.replace("\r\n", "\n"))))


def intro_faults(text: str) -> list[IntroFault]:
    """Return everything that makes the text unusable."""
    # Keep the line ends of comments, so that line numbers stay right.
    lined = _COMMENT.sub(lambda comment: "\n" * comment[0].count("\n"), text.replace("\r\n", "\n"))
    return [*_faults_of_headings(lined), *_faults_of_sections(lined)]


def _text_by_heading(text: str) -> dict[str, str]:
    _, *parts = _HEADING.split(text)
    return {_section_name(name): body.strip() for name, body in zip(parts[::2], parts[1::2], strict=True)}


def _section_name(heading: str) -> str:
    return " ".join(heading.upper().split())


def _faults_of_headings(lined: str) -> Iterator[IntroFault]:
    seen: set[str] = set()
    for heading in _HEADING.finditer(lined):
        name, line = _section_name(heading[1]), _line_of(lined, heading.start())
        if name not in _SECTIONS:
            known = f"known are: {', '.join(_SECTIONS)}"
            yield IntroFault(line, f"the section {name} is not known; {known}")
        elif name in seen:
            yield IntroFault(line, f"the section {name} is there twice")
        seen.add(name)


def _faults_of_sections(lined: str) -> Iterator[IntroFault]:
    bodies = _text_by_heading(lined)
    lines = {_section_name(one[1]): _line_of(lined, one.start()) for one in _HEADING.finditer(lined)}
    for name in _SECTIONS:
        if name not in bodies:
            yield IntroFault(None, f"the section {name} is missing")
        elif not bodies[name]:
            yield IntroFault(lines[name], f"the section {name} is empty")
        elif name == _COMMON and PLACEHOLDER not in bodies[name]:
            yield IntroFault(lines[name], f"the section {name} lacks {PLACEHOLDER}, the place for the number")
    for placeholder in _ANY_PLACEHOLDER.finditer(lined):
        above = list(_HEADING.finditer(lined, 0, placeholder.start()))
        if above and placeholder[0] != PLACEHOLDER:
            message = (
                f"the section {_section_name(above[-1][1])} has the unknown placeholder {placeholder[0]}"
            )
            yield IntroFault(_line_of(lined, placeholder.start()), message)


def _line_of(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1
