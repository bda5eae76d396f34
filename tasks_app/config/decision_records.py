"""Writing decisions as records (ADRs, in the format of MADR) that `decision_files.py` reads back."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date

import yaml

from tasks_app.config.decision_files import EXPORTED_AS, NoDecision, read_decision
from tasks_app.config.faults import ConfigInvalid
from tasks_app.config.yaml_text import read_yaml

_LONGEST_TITLE = 90
#: With the byte order mark and the line ends that some editors write.
_FRONT_MATTER = re.compile(r"(?P<mark>\ufeff?)---(?P<end>\r?\n)(?P<front>(?:.*\n)*?)---\r?\n")
#: The first line of a key. Items of its list may stand at the beginning of a line as well.
#: A key ends with no blank: else each blank of a long run would be tried as its end.
_KEY = re.compile(r"(?![\s#-])(?P<quote>[\"']?)(?P<key>(?:.*?[^ \t])?)(?P=quote)[ \t]*:(?=\s)")


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
    def values(self) -> dict[str, object]:
        """The keys of the front matter that the portal writes; None for those that the file does not get."""
        return {
            "status": self.status,
            "date": self.decided_on.isoformat() if self.decided_on else None,
            "decision-makers": [self.decided_by] if self.decided_by else None,
            EXPORTED_AS: self.label,
            "paths": list(self.paths) or None,
            "step": self.step or None,
            "review-after": self.review_after.isoformat() if self.review_after else None,
        }

    @property
    def front_matter(self) -> str:
        return "".join(_dumped_each(self.values).values())


def _dumped_each(values: Mapping[str, object]) -> dict[str, str]:
    """Return the lines of each key that has a value."""
    return {name: _dumped({name: value}) for name, value in values.items() if value is not None}


def _dumped(values: Mapping[str, object]) -> str:
    dumped: str = yaml.safe_dump(dict(values), allow_unicode=True, sort_keys=False, width=1000)
    return dumped


def record_text(record: DecisionRecord, *, path: str) -> str:
    """Return the text of a new file at `path`.

    The statement and the reason stand in it as they are. They are quoted if they would be read otherwise,
    such as a text with headings or with the beginning of a code block.
    """
    text = _record_text(record, quoted=False)
    with suppress(NoDecision):
        read = read_decision(path, text.encode(errors="replace"))
        if (read.statement, read.reason) == (record.statement, record.reason):
            return text
    return _record_text(record, quoted=True)


def with_front_matter(record: DecisionRecord, text: str) -> str:
    """Return the text of an existing file with the front matter of the record; the rest stays as it is.

    Line ends stay, too, and in the front matter the keys and comments of people.
    """
    found = _FRONT_MATTER.match(text)
    if found is None:
        return f"---\n{record.front_matter}---\n{text}"
    end = found["end"]
    front = _merged(record, found["front"].replace("\r\n", "\n")).replace("\n", end)
    return f"{found['mark']}---{end}{front}---{end}{text[found.end() :]}"


def _merged(record: DecisionRecord, front: str) -> str:
    """Return the front matter with the record's values in the places of the old ones, new keys at the end."""
    own = _dumped_each(record.values)
    kept = [own.pop(key, "") if key in record.values else block for key, block in _blocks(front)]
    merged = "".join([*kept, *own.values()])
    foreign = {key: value for key, value in _values_in(front).items() if key not in record.values}
    wanted = foreign | {key: value for key, value in record.values.items() if value is not None}
    # Not so for a mapping in braces, for example: then the keys of people are written anew.
    return (
        merged
        if _values_in(merged) == wanted
        else record.front_matter + (_dumped(foreign) if foreign else "")
    )


def _blocks(front: str) -> Iterator[tuple[str, str]]:
    """Yield each key with its lines, and "" with comments that begin a line."""
    key, lines = "", ""
    for line in front.splitlines(keepends=True):
        begins = _KEY.match(line)
        if begins or line.startswith("#"):
            yield key, lines
            key, lines = begins["key"] if begins else "", ""
        lines += line
    yield key, lines


def _values_in(front: str) -> dict[str, object]:
    try:
        values = read_yaml(front, where="front matter").value
    except ConfigInvalid:
        return {}
    return values if isinstance(values, dict) else {}


def _record_text(record: DecisionRecord, *, quoted: bool) -> str:
    parts = [f"---\n{record.front_matter}---", f"# {record.title}"]
    if record.reason:
        parts += ["## Context and Problem Statement", _quoted(record.reason) if quoted else record.reason]
    parts += ["## Decision Outcome", _quoted(record.statement) if quoted else record.statement]
    return "\n\n".join(parts) + "\n"


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}" if line else ">" for line in text.split("\n"))
