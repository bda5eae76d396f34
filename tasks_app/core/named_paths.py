"""Names of files and folders in texts that people and agents write."""

from __future__ import annotations

import re
from collections.abc import Iterable

#: One character of a name, or a group in brackets: `[id]`, `[[...slug]]`, `(group)`, `{{name}}`.
_PIECE = (
    r"(?:[\w.@+$~!-]"
    r"|\[{1,2}[\w.@+$=-]{1,60}\]{1,2}"
    r"|\([\w.@+$-]{1,60}\)"
    r"|\{{1,2}[\w.@+$-]{1,60}\}{1,2})"
)
#: A word that may be a path: with a folder, or with a file ending. A match begins where a word begins;
#: otherwise a long word without a slash would be read anew from each of its letters.
_PATH = re.compile(
    r"(?<![\w.@+$~!\])}-])"
    rf"(?:{_PIECE}+(?:/(?:{_PIECE}|\*)+)+|[\w.@+$~!-]+\.[A-Za-z][A-Za-z0-9]{{0,9}}\b)",
)
#: A path between backticks, which may have any characters, blanks as well.
_QUOTED = re.compile(r"`([^`\n\0]{1,300})`")
_WHOLE = re.compile(r"[^/]+(?:/[^/]+)+|[^/]+\.[A-Za-z][A-Za-z0-9]{0,9}")
_MAX_TEXT, _MAX_CANDIDATES, _LONGEST = 20_000, 200, 1_000


def paths_named_in(texts: Iterable[str]) -> list[str]:
    """Return the words of texts that may be paths of files, also with `*`, in order, each once.

    Text between backticks may be one as a whole. All are relative to the repository, and none leads out of
    it. Whether there are such files, only git can say.
    """
    found: dict[str, None] = {}
    for text in (text[:_MAX_TEXT] for text in texts):
        quoted = (match[1] for match in _QUOTED.finditer(text) if _WHOLE.fullmatch(match[1]))
        for name in [*(match[0] for match in _PATH.finditer(text)), *quoted]:
            parts = [part for part in name.split("/") if part != "."]
            if ".." not in parts and len(name) <= _LONGEST:
                found["/".join(parts).rstrip(".!")] = None
    return list(filter(None, found))[:_MAX_CANDIDATES]
