"""The plan that an agent wrote for review: a file in its home, which cannot be trusted, links included."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from tasks_app.agent.config_dir import config_dir

_MAX_BYTES = 400_000


def plans_folder(home: Path) -> Path:
    return config_dir(home) / "plans"


def newest_plan(home: Path) -> str:
    """Return the plan that was written last; empty if there is none."""
    # Open one folder after the other: a link anywhere in the path could lead to any file of the portal.
    with suppress(OSError):
        above = os.open(plans_folder(home).parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            folder = os.open("plans", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=above)
        finally:
            os.close(above)
        try:
            names = [name for name in os.listdir(folder) if name.endswith(".md")][:1000]  # noqa: PTH208
            return max((_read_with_time(folder, name) for name in names), default=(0, ""))[1]
        finally:
            os.close(folder)
    return ""


def _read_with_time(folder: int, name: str) -> tuple[int, str]:
    """Return the file's time of change and its text; an empty text for anything but a regular file."""
    with suppress(OSError):
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
        with os.fdopen(descriptor, "rb") as file:
            facts = os.fstat(descriptor)
            if stat.S_ISREG(facts.st_mode):
                return facts.st_mtime_ns, file.read(_MAX_BYTES).decode("utf-8", "replace")
    return 0, ""
