"""Names of files and folders in texts that people and agents write."""

from __future__ import annotations

import re
from collections.abc import Iterable

#: A word that may be a path: with a folder, or with a file ending. A match begins where a word begins;
#: otherwise a long word without a slash would be read anew from each of its letters.
_PATH = re.compile(
    r"(?<![\w.@+-])(?:[\w.@+-]+(?:/[\w.*@+-]+)+|[\w.@+-]+\.[A-Za-z][A-Za-z0-9]{0,9}\b)",
)
_MAX_TEXT, _MAX_CANDIDATES = 20_000, 200


def paths_named_in(texts: Iterable[str]) -> list[str]:
    """Return the words of texts that may be paths of files, also with `*`, in order, each once.

    Whether there are such files, only git can say.
    """
    found = (match[0].rstrip(".") for text in texts for match in _PATH.finditer(text[:_MAX_TEXT]))
    return list(dict.fromkeys(found))[:_MAX_CANDIDATES]
