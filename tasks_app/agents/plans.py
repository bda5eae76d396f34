"""The plan that an agent wrote to be reviewed: a file in its home, so the agent's word, links included."""

from __future__ import annotations

import os
import shutil
import stat
from contextlib import suppress
from pathlib import Path

_BYTES = 400_000


def plans_folder(home: Path) -> Path:
    return home / ".claude" / "plans"


def clear_plans(home: Path) -> None:
    """No plan of an earlier session can be taken for this one's."""
    folder = plans_folder(home)
    if folder.parent.is_symlink() or folder.is_symlink() or folder.is_file():
        (folder.parent if folder.parent.is_symlink() else folder).unlink()
    shutil.rmtree(folder, ignore_errors=True)


def plan_in(home: Path) -> str:
    """The plan that was written last; empty if there is none."""
    # One step at a time: a link anywhere on the way could lead to any file of the portal.
    with suppress(OSError):
        above = os.open(plans_folder(home).parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            folder = os.open("plans", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=above)
        finally:
            os.close(above)
        try:
            names = [name for name in os.listdir(folder) if name.endswith(".md")][:1000]  # noqa: PTH208
            return max((_read(folder, name) for name in names), default=(0, ""))[1]
        finally:
            os.close(folder)
    return ""


def _read(folder: int, name: str) -> tuple[int, str]:
    """When the file was written, and what it says; nothing for what is not a plain file."""
    with suppress(OSError):
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
        with os.fdopen(descriptor, "rb") as file:
            facts = os.fstat(descriptor)
            if stat.S_ISREG(facts.st_mode):
                return facts.st_mtime_ns, file.read(_BYTES).decode("utf-8", "replace")
    return 0, ""
