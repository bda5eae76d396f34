"""The instructions on when and how to ask, from `prompts/interaction-intro.md` (SPEC H1, H2, H13)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tasks_app.core.errors import BadInput

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
