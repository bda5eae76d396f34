"""Whether files still state what was imported from them (D7)."""

from __future__ import annotations

from functools import cache

from tasks_app.config.decision_files import MAX_BYTES, read_decisions
from tasks_app.core.errors import WorkspaceError
from tasks_app.git import TreeFile, blob_bytes
from tasks_app.models import Project, paths


def comparable(statement: str) -> str:
    """Return the statement as it is compared: without letter case and line breaks."""
    return " ".join(statement.casefold().split())


class StatementIndex:
    """What files of a project's repository state; each content is read once. Runs git."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._stated = cache(self._read)

    def are_in(self, passage: str, path: str, blob: str) -> bool:
        """Return whether the file with this content states the passage; an ended record states nothing."""
        return bool(passage and blob) and comparable(passage) in self._stated(path, blob)

    def _read(self, path: str, blob: str) -> frozenset[str]:
        file = TreeFile(path, "100644", blob, 0)
        try:
            content = blob_bytes(paths.repository(self._project), file, limit=MAX_BYTES + 1)
            found = read_decisions(path, content)
        except (ValueError, WorkspaceError):  # it is no text any more, or lost
            return frozenset()
        return frozenset(comparable(one.statement) for one in found if not one.ended)
