"""The instructions of a step: the repository's own prompt file, or the shipped one (SPEC P2)."""

from __future__ import annotations

import re
from pathlib import Path

from tasks_app.core.errors import BadInput

SELF = "self"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_FRONT_MATTER = re.compile(r"\A---[ \t]*\n(?:.*\n)*?---[ \t]*(?:\n|\Z)")


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
