"""Names that git takes: of branches and of commits."""

from __future__ import annotations

from functools import lru_cache

from tasks_app.core.commit_ids import is_commit_id
from tasks_app.core.errors import BadInput, WorkspaceError
from tasks_app.git.program import Git


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
