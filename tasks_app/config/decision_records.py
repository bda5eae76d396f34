"""Writing decisions as records (ADRs, in the format of MADR) that `decision_files.py` reads back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

import yaml

from tasks_app.config.decision_files import EXPORTED_AS, read_decisions, split_front_matter

_LONGEST_TITLE = 90


@dataclass(frozen=True)
class DecisionRecord:
    """What the file of a decision says. `status` is that of MADR: accepted, superseded by …, deprecated."""

    label: str
    statement: str
    status: str
    reason: str = ""
    decided_by: str = ""
    decided_on: date | None = None
    paths: Sequence[str] = ()
    step: str = ""
    review_after: date | None = None

    @property
    def title(self) -> str:
        """The first sentence of the statement, or its beginning."""
        line = " ".join(self.statement.strip().partition("\n")[0].split())
        sentence = line.partition(". ")[0].removesuffix(".") or self.label
        if len(sentence) <= _LONGEST_TITLE:
            return sentence
        return f"{sentence[:_LONGEST_TITLE].rpartition(' ')[0] or sentence[:_LONGEST_TITLE]} …"

    @property
    def front_matter(self) -> str:
        values = {
            "status": self.status,
            "date": self.decided_on.isoformat() if self.decided_on else None,
            "decision-makers": [self.decided_by] if self.decided_by else None,
            EXPORTED_AS: self.label,
            "paths": list(self.paths) or None,
            "step": self.step or None,
            "review-after": self.review_after.isoformat() if self.review_after else None,
        }
        written = {name: value for name, value in values.items() if value is not None}
        dumped: str = yaml.safe_dump(written, allow_unicode=True, sort_keys=False, width=1000)
        return dumped


def record_text(record: DecisionRecord, *, path: str) -> str:
    """Return the text of a new file at `path`.

    The statement and the reason stand in it as they are. They are quoted if they would be read otherwise,
    such as a text with headings or with the beginning of a code block.
    """
    text = _text(record, quoted=False)
    read = read_decisions(path, text.encode(errors="replace"))
    if [(one.statement, one.reason) for one in read] == [(record.statement, record.reason)]:
        return text
    return _text(record, quoted=True)


def with_front_matter(record: DecisionRecord, text: str) -> str:
    """Return the text of an existing file with the front matter of the record; the rest stays as it is."""
    return f"---\n{record.front_matter}---\n{split_front_matter(text)[1]}"


def _text(record: DecisionRecord, *, quoted: bool) -> str:
    parts = [f"---\n{record.front_matter}---", f"# {record.title}"]
    if record.reason:
        parts += ["## Context and Problem Statement", _quoted(record.reason) if quoted else record.reason]
    parts += ["## Decision Outcome", _quoted(record.statement) if quoted else record.statement]
    return "\n\n".join(parts) + "\n"


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}" if line else ">" for line in text.split("\n"))
