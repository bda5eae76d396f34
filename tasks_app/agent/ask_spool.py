"""The ask spool: questions that `cat-herder ask` stored because the run could not be halted.

The folder is in the agent's home, so neither it nor its content can be trusted: it is read without following
links.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from tasks_app.core.nofollow import open_file, open_folder
from tasks_app.core.types import Ask, AskItem

FOLDER = "asked"
_MAX_QUESTIONS = 20
_MAX_BYTES = 1_000_000


def spool_folder(home: Path) -> Path:
    return home / FOLDER


def clear_spool(home: Path) -> None:
    """Empty the folder for the next run. Earlier questions must be stored in the database by then."""
    folder = spool_folder(home)
    if folder.is_symlink() or folder.is_file():
        folder.unlink()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)


def spooled_asks(home: Path) -> list[Ask]:
    """Return the questions in the order asked. They stay until `clear_spool`, so that a crash loses none."""
    timed_asks: list[tuple[int, Ask]] = []
    with suppress(OSError), open_folder(home, FOLDER) as folder:
        names = sorted(name for name in os.listdir(folder) if name.endswith(".json"))  # noqa: PTH208
        timed_asks = [timed for name in names[: 10 * _MAX_QUESTIONS] for timed in _read(folder, name)]
    return [ask for _, ask in sorted(timed_asks, key=lambda timed: timed[0])][:_MAX_QUESTIONS]


def _read(folder: int, name: str) -> Iterator[tuple[int, Ask]]:
    """Yield the question with the time at which it was written; nothing if the file cannot be read."""
    # RecursionError: brackets nested a thousand deep.
    with suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
        with open_file(folder, name) as file:
            facts = os.fstat(file.fileno())
            if facts.st_size > _MAX_BYTES:
                return
            question = str(json.loads(file.read(_MAX_BYTES).decode("utf-8"))["question"]).strip()
        if question:
            # The agent chose the name: it may hold any bytes, and long names may differ only at their end.
            call_id = f"noted-{hashlib.sha256(os.fsencode(name)).hexdigest()[:32]}"
            yield facts.st_mtime_ns, Ask(call_id, "command", (AskItem(question),))
