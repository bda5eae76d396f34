"""The agent program's folder in its home, which holds sessions, plans and other state."""

from __future__ import annotations

import os
import shutil
from pathlib import Path


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
