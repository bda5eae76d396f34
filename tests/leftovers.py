"""What killed processes leave half-made on the disk: neither work of a task nor in use."""

from __future__ import annotations

from pathlib import Path

from tasks_app.core.files import is_unused

#: Below the data directory. Git names what it has not finished `tmp…`.
_PATTERNS = (
    ".*", "cat-herder-*", "wakeup/.*", "repositories/.*", "repositories/*.new",
    "repositories/*.git/**/*.lock", "repositories/*.git/**/*tmp*", "repositories/*.git/**/*.part",
    "tasks/.*", "tasks/*/.*", "tasks/*/*.new", "tasks/*/*.part",
)  # fmt: skip


def leftovers(data_dir: Path, temporary: Path) -> list[str]:
    """Return the paths that no process uses any more, below the data directory and among temporary files."""
    found = [path for pattern in _PATTERNS for path in data_dir.glob(pattern)]
    found += temporary.iterdir()
    return sorted(str(path) for path in found if path.is_file() or is_unused(path))
