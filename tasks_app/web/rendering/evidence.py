"""Evidence of approvals for a page: commands, files, diffs and texts."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from tasks_app.models import Question
from tasks_app.web.rendering.diff import DiffLine, LineKind

_KEEP = 60_000
_KEEP_LINES = 1_500
#: Lines that a pane on a card has room for.
_PANE = 24
_KINDS = ("command", "file", "diff", "markdown")

#: Only before a file's first hunk: inside one, `--- x` is the line `-- x`, taken away.
_HEADER = re.compile(r"(index|---|\+\+\+|(new|deleted) file|(old|new) mode|similarity|rename) ")


@dataclass(frozen=True)
class EvidencePane:
    """One piece of evidence. `lines`: of a diff; `cut`: number of characters that are not shown."""

    kind: str
    title: str
    text: str
    lines: list[DiffLine] = field(default_factory=list)
    cut: int = 0

    @property
    def is_long(self) -> bool:
        """Whether it does not fit into its box."""
        return self.text.count("\n") > _PANE


def evidence_of(question: Question) -> list[EvidencePane]:
    return [_pane(one) for one in question.evidence if isinstance(one, dict)]


def _pane(given: dict[str, Any]) -> EvidencePane:
    kind, text = str(given.get("kind", "")), str(given.get("text", ""))
    kept = text[:_KEEP]
    lines = diff_lines(kept) if kind == "diff" else []
    known = kind if kind in _KINDS else "text"
    cut = len(text) - len(kept) + sum(len(line.text) + 1 for line in lines[_KEEP_LINES:])
    return EvidencePane(known, str(given.get("title", "")), kept, lines[:_KEEP_LINES], cut)


def diff_lines(text: str) -> list[DiffLine]:
    """Return the lines of a diff with their kind, without file headers."""
    lines = []
    in_header = True
    for line in text.splitlines():
        in_header = line.startswith("diff --git ") or (in_header and bool(_HEADER.match(line)))
        if not in_header:
            lines.append(_diff_line(line))
    return lines


def _diff_line(line: str) -> DiffLine:
    if line.startswith("@@"):
        return DiffLine("hunk", line.rpartition("@@")[2].strip())
    kinds: dict[str, LineKind] = {"+": "add", "-": "del"}
    return DiffLine(kinds.get(line[:1], "same"), line[1:])
