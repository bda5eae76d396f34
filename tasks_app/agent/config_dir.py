"""The agent program's folder in its home, which holds sessions, plans and other state."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

from tasks_app.core.files import open_file, open_folder


def config_dir(home: Path) -> Path:
    return home / ".claude"


def clear_config_dir(home: Path) -> None:
    """Remove everything from the folder, for a new session.

    The program reads this folder by itself, so files of an earlier step would reach the next one without a
    call in the log. The rest of the home stays: the next step needs tools and caches that a step installed,
    too. The agent may have replaced the folder by a link, or removed its own permissions.
    """
    folder = config_dir(home)
    if folder.is_symlink() or folder.is_file():
        folder.unlink()
    if not folder.exists():
        return
    folder.chmod(0o700)
    for where, names, _ in os.walk(folder):
        for name in names:
            if not (Path(where) / name).is_symlink():
                (Path(where) / name).chmod(0o700)
    shutil.rmtree(folder)


# The plan that an agent wrote for review: a file in its home, which cannot be trusted, links included.


_MAX_BYTES = 400_000


def plans_folder(home: Path) -> Path:
    return config_dir(home) / "plans"


def newest_plan(home: Path) -> str:
    """Return the plan that was written last, or ""."""
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
