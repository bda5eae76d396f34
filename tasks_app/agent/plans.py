"""The plan that an agent wrote to be reviewed: a file in its home, so the agent's word, links included."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from tasks_app.agent.config_dir import config_dir

_BYTES = 400_000


def plans_folder(home: Path) -> Path:
    return config_dir(home) / "plans"


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
