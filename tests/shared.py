"""The folder that all processes of a test run share, for what one of them makes for all."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

if "CATHERDER_TEST_SHARED" not in os.environ:  # `make pictures` and `make bench` run outside pytest
    _own_folder = tempfile.TemporaryDirectory(prefix="test-catherder-run-", ignore_cleanup_errors=True)
    os.environ["CATHERDER_TEST_SHARED"] = _own_folder.name
FOLDER = Path(os.environ["CATHERDER_TEST_SHARED"])


@contextmanager
def alone(what: str = "lock") -> Iterator[None]:
    """Let one process at a time do what is in the block. Blocks within each other need different names."""
    with (FOLDER / what).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
