"""Reasons of git's failures, read from its messages: damage, too little memory, another git's lock."""

from __future__ import annotations

import re
from pathlib import Path

#: Error messages of git for a damaged repository.
_DAMAGE = re.compile(
    r"not a git repository|bad (object|tree|config|ref|signature|revision 'HEAD')|missing (object|blob|tree)"
    r"|corrupt|unable to (read|parse|unpack|find|map) |could not (read|parse) [0-9a-f]{40}|inflate: "
    r"|cannot read existing object|invalid (object|sha1 pointer|reflog)|does not point to a valid object"
    r"|packfile .* (cannot|is|index)"
    r"|unexpected line in .*packed-refs|unterminated line in .*packed-refs|broken (name|ref)|ignoring broken"
    r"|is too small|wrong index|file .* too short|remote did not send all necessary objects",
    re.IGNORECASE,
)
#: Error messages of git that have other reasons.
_NO_MEMORY = re.compile(r"out of memory|cannot allocate memory", re.IGNORECASE)
_NO_DAMAGE = re.compile(r"no space left|permission denied|too many open files|read-only file", re.IGNORECASE)


def is_damage(reason: str) -> bool:
    """Return whether git failed because a repository is damaged; during a fetch it may be the source."""
    return bool(_DAMAGE.search(reason)) and not _NO_DAMAGE.search(reason)


def is_out_of_memory(reason: str) -> bool:
    """Return whether git needed more memory than it may take."""
    return bool(_NO_MEMORY.search(reason))


def is_lock_conflict(reason: str) -> bool:
    """Return whether git failed because of a lock file, such as a killed git leaves behind."""
    return ".lock': File exists" in reason


def damage_marker(repository: Path) -> Path:
    """Return the file beside a repository whose existence means that the repository could not be read."""
    return repository.with_name(f"{repository.name}.is-damaged")
