"""Make text of others safe for a prompt: it cannot pass for one of our sections, and has a bounded length."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tasks_app.core.text import lines_joined, strip_controls

_WORD = re.compile(r"\w")
_DASHES = re.compile(r"[-‐‑‒–—―−﹘﹣-]{2,}")


def section(name: str, body: str) -> str:
    """Return a section of a prompt: our marker, then the body."""
    return f"--- {name} ---\n\n{body}"


def escape(text: str) -> str:
    """Put `\\` before each line that looks like a section marker.

    Control characters and terminal colours are removed. Every kind of line end becomes a plain one, so that a
    marker cannot hide behind an unusual one.
    """
    readable = text.encode("utf-8", "replace").decode("utf-8").removeprefix("\ufeff")
    lines = (strip_controls(line, directions=True) for line in readable.splitlines())
    return "\n".join("\\" + line if _resembles_marker(line) else line for line in lines).strip("\n")


def _resembles_marker(line: str) -> bool:
    """Return whether the line has words between dashes, whatever else (blanks, quotes, stars) surrounds them.

    Two searches from either end, not one pattern: the time stays linear for a line of 100 kB of dashes.
    """
    first = _WORD.search(line)
    last = _WORD.search(line[::-1])
    if not first or not last:
        return False
    return bool(_DASHES.search(line[: first.start()]) and _DASHES.search(line[len(line) - last.start() :]))


def quote(text: str, *, indent: str = "") -> str:
    """Escape the text and make it a Markdown quotation, so that its begin and end are clear."""
    return "\n".join(f"{indent}> {line}".rstrip() for line in escape(text).split("\n"))


def fence(text: str) -> str:
    """Escape the text and put it into a code fence that is longer than any fence inside it."""
    safe = escape(text)
    longest = max((len(run) for run in re.findall(r"`{3,}", safe)), default=2)
    ticks = "`" * (longest + 1)
    return f"{ticks}\n{safe}\n{ticks}"


def tail(text: str, *, limit: int) -> str:
    """Return the last `limit` characters, with a line before them that says how much is left out."""
    if len(text) <= limit:
        return text
    return f"[… {len(text) - limit:,} characters before this are left out …]\n{text[-limit:]}"


def head(text: str, *, limit: int) -> str:
    """Return the first `limit` characters, with a line after them that says how much is left out."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]}\n[… {len(text) - limit:,} more characters are left out …]"


def escaped_line(text: str) -> str:
    return lines_joined(escape(text))


def newest_that_fit(entries: Sequence[str], *, limit: int) -> list[str]:
    """Return the last entries that together fit into `limit` characters, and at least the very last."""
    used, first = 0, len(entries)
    for index in range(len(entries) - 1, -1, -1):
        used += len(entries[index])
        if used > limit and index < len(entries) - 1:
            break
        first = index
    return list(entries[first:])
