"""Names of files and folders in texts that people and agents write."""

from __future__ import annotations

import re
from collections.abc import Iterable

#: A word that may be a path: with a folder, or with a file ending. A match begins where a word begins;
#: otherwise a long word without a slash would be read anew from each of its letters.
_PATH = re.compile(
    r"(?<![\w.@+-])(?:[\w.@+-]+(?:/[\w.*@+-]+)+|[\w.@+-]+\.[A-Za-z][A-Za-z0-9]{0,9}\b)",
)
_MAX_TEXT, _MAX_CANDIDATES, _LONGEST = 20_000, 200, 1_000


def paths_named_in(texts: Iterable[str]) -> list[str]:
    """Return the words of texts that may be paths of files, also with `*`, in order, each once.

    All are relative to the repository, and none leads out of it. Whether there are such files, only git can
    say.
    """
    found = (_path_inside(match[0]) for text in texts for match in _PATH.finditer(text[:_MAX_TEXT]))
    return list(dict.fromkeys(filter(None, found)))[:_MAX_CANDIDATES]


def _path_inside(name: str) -> str:
    """Return the path without `./`; "" for one that is too long or has `..`: git fails if it leads out."""
    parts = [part for part in name.split("/") if part != "."]
    return "" if ".." in parts or len(name) > _LONGEST else "/".join(parts).rstrip(".")
