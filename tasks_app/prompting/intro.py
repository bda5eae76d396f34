"""What tells an agent when and how to ask, from `prompts/interaction-intro.md` (SPEC H1, H2, H13)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tasks_app.errors import BadInput

WHERE = "prompts/interaction-intro.md"
PLACEHOLDER = "{{threshold}}"

_BAND_OF_LEVEL = {1: "LOW", 2: "LOW", 3: "MEDIUM", 4: "MEDIUM", 5: "HIGH"}
_COMMON = "COMMON"
_SECTIONS = (_COMMON, "LOW", "MEDIUM", "HIGH", *(f"LEVEL {level}" for level in _BAND_OF_LEVEL))

_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_HEADING = re.compile(r"^##[ \t]+(.+?)[ \t]*$", re.MULTILINE)
_ANY_PLACEHOLDER = re.compile(r"\{\{.*?\}\}")


@dataclass(frozen=True)
class InteractionIntro:
    """The sections of the file by name; complete, or it would not exist."""

    sections: Mapping[str, str]

    def render(self, threshold: int) -> str:
        """What an agent with this threshold is told: its band, its level, how to ask. Nothing for 0."""
        if threshold == 0:
            return ""
        if threshold not in _BAND_OF_LEVEL:
            raise BadInput(f"the threshold must be a whole number from 0 to 5, not {threshold}", where=WHERE)
        names = (_BAND_OF_LEVEL[threshold], f"LEVEL {threshold}", _COMMON)
        text = "\n\n".join(self.sections[name] for name in names)
        return text.replace(PLACEHOLDER, str(threshold))


def read_interaction_intro(path: Path) -> InteractionIntro:
    """The sections of the file at `path`. Raises `BadInput` that names the path and the section."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"the file cannot be read: {error}", where=str(path)) from error
    return load_interaction_intro(text, where=str(path))


def load_interaction_intro(text: str, *, where: str = WHERE) -> InteractionIntro:
    """The sections in the text; comments and what stands before the first section are left out.

    Raises `BadInput` that names file and section when one is missing, empty, there twice or unknown, when
    the place for the number is missing, or when there is a place for something else.
    """
    sections: dict[str, str] = {}
    for name, body in _split(text):
        if name not in _SECTIONS:
            raise BadInput(f"the section {name} is not known; known are: {', '.join(_SECTIONS)}", where=where)
        if name in sections:
            raise BadInput(f"the section {name} is there twice", where=where)
        sections[name] = body
    _check(sections, where=where)
    return InteractionIntro(sections)


def _split(text: str) -> Iterator[tuple[str, str]]:
    plain = _COMMENT.sub("", text.replace("\r\n", "\n"))
    _, *parts = _HEADING.split(plain)
    for name, body in zip(parts[::2], parts[1::2], strict=True):
        yield " ".join(name.upper().split()), body.strip()


def _check(sections: Mapping[str, str], *, where: str) -> None:
    for name in _SECTIONS:
        if name not in sections:
            raise BadInput(f"the section {name} is missing", where=where)
        if not sections[name]:
            raise BadInput(f"the section {name} is empty", where=where)
        for placeholder in _ANY_PLACEHOLDER.findall(sections[name]):
            if placeholder != PLACEHOLDER:
                raise BadInput(f"the section {name} has the unknown placeholder {placeholder}", where=where)
    if PLACEHOLDER not in sections[_COMMON]:
        raise BadInput(f"the section {_COMMON} lacks {PLACEHOLDER}, the place for the number", where=where)
