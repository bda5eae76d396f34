"""Text that others wrote, made safe to stand in a prompt: it cannot pass for a section of ours."""

from __future__ import annotations

import re

_WORD = re.compile(r"\w")
_DASHES = re.compile(r"[-‐‑‒–—―−﹘﹣-]{2,}")
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0e-\x1f\x7f]")


def section(name: str, body: str) -> str:
    """A section of a prompt: our marker, then the body."""
    return f"--- {name} ---\n\n{body}"


def foreign(text: str) -> str:
    """The text with `\\` before each line that looks like a section marker, and without control characters
    and terminal colours.

    Every kind of line end becomes a plain one, so that a marker cannot hide behind an unusual one.
    """
    readable = text.encode("utf-8", "replace").decode("utf-8").removeprefix("\ufeff")
    lines = (_CONTROL.sub("", line) for line in readable.splitlines())
    return "\n".join("\\" + line if _like_a_marker(line) else line for line in lines).strip("\n")


def _like_a_marker(line: str) -> bool:
    """Words between dashes, whatever else (blanks, quotes, stars, invisible marks) is around them.

    Two searches from either end instead of one pattern: the time stays linear for a line of 100 kB of dashes.
    """
    first = _WORD.search(line)
    last = _WORD.search(line[::-1])
    if not first or not last:
        return False
    return bool(_DASHES.search(line[: first.start()]) and _DASHES.search(line[len(line) - last.start() :]))


def quoted(text: str, *, indent: str = "") -> str:
    """Foreign text as a Markdown quotation, so that it is plain where it begins and ends."""
    return "\n".join(f"{indent}> {line}".rstrip() for line in foreign(text).split("\n"))


def fenced(text: str) -> str:
    """Foreign text in a code fence that is longer than any fence inside it."""
    safe = foreign(text)
    longest = max((len(run) for run in re.findall(r"`{3,}", safe)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}\n{safe}\n{fence}"


def tail(text: str, *, limit: int) -> str:
    """The last `limit` characters, with a line before them that says how much is left out."""
    if len(text) <= limit:
        return text
    return f"[… {len(text) - limit:,} characters before this are left out …]\n{text[-limit:]}"


def head(text: str, *, limit: int) -> str:
    """The first `limit` characters, with a line after them that says how much is left out."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]}\n[… {len(text) - limit:,} more characters are left out …]"
