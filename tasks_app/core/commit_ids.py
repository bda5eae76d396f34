"""Ids of commits as git writes them out: SHA-1, or SHA-256 in newer repositories."""

from __future__ import annotations

import re

_COMMIT_ID = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


def is_commit_id(text: str) -> bool:
    """Return whether it is a full id, not the name of a branch or an abbreviation."""
    return _COMMIT_ID.fullmatch(text) is not None
