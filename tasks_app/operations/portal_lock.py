"""Detect a portal that runs on this data directory or database."""

from __future__ import annotations

import fcntl
from pathlib import Path
from typing import IO

from django.db import DatabaseError

from tasks_app.models import WorkerBeat


def hold_data_dir(data_dir: Path) -> IO[str] | None:
    """Return the lock of the one portal that may run on a data directory, or None if another has it."""
    lock = (data_dir / "up.lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        return None
    return lock


def live_workers() -> list[str]:
    """Return running workers as HOST:PID; none for a database without tables."""
    try:
        return [str(worker) for worker in WorkerBeat.objects.alive()]
    except DatabaseError:
        return []
