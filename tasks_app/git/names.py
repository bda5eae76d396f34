"""Names that git takes: of branches and of commits."""

from __future__ import annotations

import re
from functools import lru_cache

from tasks_app.core.errors import BadInput, WorkspaceError
from tasks_app.git.program import Git

#: SHA-1, or SHA-256 in newer repositories.
_COMMIT_ID = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


def is_commit_id(text: str) -> bool:
    """Return whether it is a full id, not the name of a branch or an abbreviation."""
    return _COMMIT_ID.fullmatch(text) is not None


@lru_cache(maxsize=1000)
def valid_branch(name: str) -> str:
    """Return `name` if git accepts it as a branch. Raises BadInput otherwise."""
    try:
        Git().run("check-ref-format", f"refs/heads/{name}")
    except (WorkspaceError, ValueError):
        raise BadInput(f"{name!r} is not a name that git takes for a branch.") from None
    if name.startswith("-"):
        raise BadInput(f"{name!r} is not a name for a branch: it starts with a dash.")
    return name


def valid_commit(text: str) -> str:
    """Return `text` if it is a full commit id. Raises WorkspaceError otherwise."""
    if not is_commit_id(text):
        raise WorkspaceError(f"{text[:80]!r} is not a commit id.")
    return text
