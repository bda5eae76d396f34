"""One portal on a data directory at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from django.conf import settings
from django.core.management.base import CommandError

from tasks_app.operations.running import hold_data_dir


@contextmanager
def only_one() -> Iterator[None]:
    """Hold the data directory: two portals on it would start everything twice. Raises CommandError."""
    data_dir = Path(settings.DATA_DIR)
    lock = hold_data_dir(data_dir)
    if lock is None:
        raise CommandError(f"Cat Herder is already running on {data_dir}.", returncode=2)
    with lock:
        yield
