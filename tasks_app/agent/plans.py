"""The plan that an agent wrote for review: a file in its home, which cannot be trusted, links included."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from tasks_app.agent.config_dir import config_dir
from tasks_app.core.files import open_file, open_folder

_MAX_BYTES = 400_000


def plans_folder(home: Path) -> Path:
    return config_dir(home) / "plans"


def newest_plan(home: Path) -> str:
    """Return the plan that was written last; empty if there is none."""
    with suppress(OSError), open_folder(home, plans_folder(home).relative_to(home).as_posix()) as folder:
        names = [name for name in os.listdir(folder) if name.endswith(".md")][:1000]  # noqa: PTH208
        return max((_read_with_time(folder, name) for name in names), default=(0, ""))[1]
    return ""


def _read_with_time(folder: int, name: str) -> tuple[int, str]:
    """Return the file's time of change and its text; an empty text for anything but a regular file."""
    with suppress(OSError), open_file(folder, name) as file:
        changed_at = os.fstat(file.fileno()).st_mtime_ns
        return changed_at, file.read(_MAX_BYTES).decode("utf-8", "replace")
    return 0, ""
