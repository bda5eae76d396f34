"""Questions that `cat-herder ask` noted because it ran where no halt was possible.

The folder lies in the agent's home, so whatever is in it, and the folder itself, is the agent's word: a
link could lead to any file of the portal, and a pipe would keep its reader for ever.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

from tasks_app.core.types import Ask, AskItem

FOLDER = "asked"
_MOST = 20
_BYTES = 1_000_000


def spool_folder(home: Path) -> Path:
    return home / FOLDER


def clear_spool(home: Path) -> None:
    """An empty folder for the next run. What was noted before must be stored by now."""
    folder = spool_folder(home)
    if folder.is_symlink() or folder.is_file():
        folder.unlink()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)


def spooled_asks(home: Path) -> list[Ask]:
    """The questions in the order noted. They stay until `clear_spool`, so that a crash loses none."""
    try:
        folder = os.open(spool_folder(home), os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return []
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(".json"))  # noqa: PTH208
        found = [note for name in names[: 10 * _MOST] for note in _note(folder, name)]
    finally:
        os.close(folder)
    return [ask for _, ask in sorted(found, key=lambda note: note[0])][:_MOST]


def _note(folder: int, name: str) -> Iterator[tuple[int, Ask]]:
    """The note with the time at which it was written; nothing for what is not a readable note."""
    # RecursionError: brackets in brackets, a thousand deep.
    with suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
        with closing(os.fdopen(descriptor, "rb")) as file:
            facts = os.fstat(descriptor)
            if not stat.S_ISREG(facts.st_mode) or facts.st_size > _BYTES:
                return
            question = str(json.loads(file.read(_BYTES).decode("utf-8"))["question"]).strip()
        if question:
            # The name is the agent's too: any bytes, and long enough to differ only at its end.
            identity = f"noted-{hashlib.sha256(os.fsencode(name)).hexdigest()[:32]}"
            yield facts.st_mtime_ns, Ask(identity, "command", (AskItem(question),))
