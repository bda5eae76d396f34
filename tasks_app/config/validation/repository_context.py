"""The repository under validation, and reading its files without following links out of it."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tasks_app.config.faults import ConfigInvalid, Problem
from tasks_app.config.yaml_text import MAX_BYTES


@dataclass(frozen=True)
class RepositoryContext:
    """A repository's top folder, and what the portal brings along.

    `prompts` is the folder of the portal's own prompts, `threshold` the installation's interaction
    threshold. `tracked` are the files that git knows, None where git cannot say. `toolchains` are the names
    of toolchains with why this machine does not have them, "" if it does.
    """

    root: Path
    prompts: Path
    threshold: int = 0
    tracked: frozenset[str] | None = field(default=None, repr=False)
    toolchains: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def shipped_steps(self) -> Path:
        return self.prompts / "steps"

    def leads_out(self, path: Path) -> bool:
        """Return whether `path` is outside the repository once links are followed."""
        try:
            return not path.resolve().is_relative_to(self.root.resolve())
        except (OSError, RuntimeError):  # links in a circle, a name too long
            return True

    def is_real(self, path: Path) -> bool:
        """Return whether neither the path itself nor a folder on the way to it is a link."""
        return path.resolve() == self.root.resolve() / os.path.relpath(path, self.root)

    def is_committed(self, name: str) -> bool:
        """Return whether a task's clone will have the file `name`; True where git cannot say."""
        return self.tracked is None or name in self.tracked

    def has(self, name: str) -> bool:
        """Return whether a task's clone will have the file `name`."""
        if self.tracked is None:
            return (self.root / name).is_file()
        return name in self.tracked

    def has_folder(self, name: str) -> bool:
        """Return whether a task's clone will have a file in the folder `name`."""
        if self.tracked is None:
            return False
        return any(one.startswith(f"{name}/") for one in self.tracked)


def read_text(context: RepositoryContext, name: str, *, follow: bool = False) -> str | None:
    """Return the text of the repository's file `name`; None if there is nothing of that name.

    What the portal reads out of a commit cannot be reached through links; with `follow`, for what programs
    read in a clone, links within the repository are as good as files. Raises ConfigInvalid for a link, a
    folder, a pipe, a file that is too large, cannot be read, or is not text.
    """
    path = context.root / name
    if not os.path.lexists(path):
        return None
    if context.leads_out(path) or not (follow or context.is_real(path)):
        raise _unusable(name, "there is a link in the way; tasks do not follow links to find this file")
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise _unusable(name, "this is not a file")
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as fault:
        raise _unusable(name, f"the file cannot be read: {fault.strerror}") from fault
    return decoded(data, name=name)


def decoded(data: bytes, *, name: str) -> str:
    """Raises ConfigInvalid with the line where it stops being text."""
    if len(data) > MAX_BYTES:
        raise _unusable(name, f"the file is larger than {MAX_BYTES:,} bytes")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as fault:
        line = data.count(b"\n", 0, fault.start) + 1
        raise _unusable(name, "this is not UTF-8 text", line=line) from fault
    if (at := text.find("\0")) >= 0:
        raise _unusable(name, "there is a NUL character", line=text.count("\n", 0, at) + 1)
    return text


def _unusable(name: str, message: str, *, line: int | None = None) -> ConfigInvalid:
    return ConfigInvalid([Problem(line, "", message)], where=name)
