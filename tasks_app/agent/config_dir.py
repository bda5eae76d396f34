"""The agent program's own folder in its home: sessions, plans, and whatever else it keeps of itself."""

from __future__ import annotations

import os
import shutil
from pathlib import Path


def config_dir(home: Path) -> Path:
    return home / ".claude"


def clear_config_dir(home: Path) -> None:
    """Remove all that the program kept, for a session that begins anew.

    It reads this folder by itself, so what an earlier step left there would reach the next one without a
    call that the log shows. The rest of the home stays: tools and caches that a step installed are for the
    next one too. An agent may have put a link in the folder's place, or taken away its own rights to it.
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
