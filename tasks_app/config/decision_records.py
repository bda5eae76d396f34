"""Decisions as records (ADRs): written in MADR's format, read in the shapes that they have elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from pathlib import PurePosixPath

import yaml
from markdown_it import MarkdownIt

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
    """The contents of a decision's file. `status` as in MADR: accepted, superseded by …, deprecated."""

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
        """The keys of the front matter that the portal writes; the file does not get those that are empty."""
        return {
            "status": self.status,
            "date": str(self.decided_on or ""),
            "decision-makers": list(filter(None, [self.decided_by])),
            EXPORTED_AS: self.label,
            "paths": list(self.paths),
            "step": self.step,
            "review-after": str(self.review_after or ""),
        }

    @property
    def front_matter(self) -> str:
        return "".join(_dumped_each(self.values).values())


def _dumped_each(values: Mapping[str, object]) -> dict[str, str]:
    """Return the lines of each key that has a value."""
    return {name: _dumped({name: value}) for name, value in values.items() if value}


def _dumped(values: Mapping[str, object]) -> str:
    dumped: str = yaml.safe_dump(dict(values), allow_unicode=True, sort_keys=False, width=1000)
    return dumped


def record_text(record: DecisionRecord, *, path: str) -> str:
    """Return the text of a new file at `path`.

    The statement and the reason stand in it as they are. They are quoted if they would be read otherwise,
    such as a text with headings or with the beginning of a code block.
    """
    text = _record_text(record, record.statement, record.reason)
    with suppress(NoDecision):
        read = read_decision(path, text.encode(errors="replace"))
        if (read.statement, read.reason) == (record.statement, record.reason):
            return text
    return _record_text(record, _quoted(record.statement), _quoted(record.reason))


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
    wanted = foreign | {key: value for key, value in record.values.items() if value}
    if _values_in(merged) == wanted:
        return merged
    # As after a mapping in braces: the keys of people are written anew.
    if foreign:
        return record.front_matter + _dumped(foreign)
    return record.front_matter


def _blocks(front: str) -> Iterator[tuple[str, str]]:
    """Yield each key with its lines, and "" with comments that begin a line."""
    key, lines = "", ""
    for line in front.splitlines(keepends=True):
        begins = _KEY.match(line)
        if begins or line.startswith("#"):
            yield key, lines
            key, lines = "", ""
        if begins:
            key = begins["key"]
        lines += line
    yield key, lines


def _values_in(front: str) -> dict[str, object]:
    try:
        values = read_yaml(front, where="front matter").value
    except ConfigInvalid:
        values = None
    if isinstance(values, dict):
        return values
    return {}


def _record_text(record: DecisionRecord, statement: str, reason: str) -> str:
    parts = [f"---\n{record.front_matter}---", f"# {record.title}"]
    if record.reason:
        parts += ["## Context and Problem Statement", reason]
    parts += ["## Decision Outcome", statement]
    return "\n\n".join(parts) + "\n"


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}" if line else ">" for line in text.split("\n"))


# Reading decision records (ADRs) of a repository, in the shapes in which people write them.
#
# A record may be one of Michael Nygard's or of MADR 2 to 4: title and status in front matter, in a list, in
# a table, in a line or below a heading. Decisions are not guessed from other files, such as CLAUDE.md.


MAX_BYTES = 200_000
MAX_STATEMENT, MAX_REASON = 2_000, 10_000

_RECORD = re.compile(
    r"(?:.*/)?(?:adrs?|decisions|decision-records|architecture-decisions)/(?:.*/)?[^/]+\.md", re.IGNORECASE
)
_NOT_A_RECORD = re.compile(r"(?:readme|index|_.*|.*template.*)\.md", re.IGNORECASE)
#: `12. Title`, `0012 Title`, `ADR-12: Title`, `[ADR 12] Title`; but not `12 factors`.
_NUMBER = re.compile(
    r"^(?:\[?(?:ADR|DR|MADR|AD)[-_ #]*\d+\]?\s*[.:)–—-]?|\d+\s*[.:)–—-](?=\s)|0\d+)\s*", re.IGNORECASE
)
#: What a template has in place of a title, such as `{short title}` or `[short title of solved problem]`.
_PLACEHOLDER = re.compile(r"^[{\[<].*[}\]>]$|\{[a-z][^}]*\}")
#: A field in a line: `Status: accepted`, `* Status: accepted`, `**Status:** accepted`.
_FIELD = re.compile(
    r"^[ \t]*(?:[*+-][ \t]+)?[*_]*(status|title|decision|context)[*_]*[ \t]*:[ \t]*[*_]*[ \t]*(\S.*)$",
    re.IGNORECASE | re.MULTILINE,
)
_FIELDS_IN = 20_000
#: The key in the front matter of a record that the portal exported, with the decision's label as its value.
EXPORTED_AS = "decision"
_LABEL = re.compile(r"D-[1-9][0-9]{0,8}")
#: Some tools write “superceded”.
_ENDED = re.compile(
    r"\b(?:(?P<superseded>super[sc]eded|replaced)|(?P<other>deprecated|rejected|withdrawn|obsolete|retired|abandoned|"
    r"declined))\b",
    re.IGNORECASE,
)
_NOT_DECIDED = re.compile(
    r"^\W*(?:proposed|proposal|draft|pending|wip|in review|under (?:review|discussion))\b", re.I
)
_DECISION = ("decision outcome", "decision", "decisions", "outcome", "resolution")
_CONTEXT = ("context and problem statement", "context and problem", "context", "problem statement", "issue")
_CONSEQUENCES = ("consequences", "positive consequences", "negative consequences", "implications")
#: Names of rows of a table.
_KEYS = frozenset(
    {"status", "title", "decision", "context", "date", "deciders", "author", "authors", "owner"}
)
_SECTIONS = frozenset({*_DECISION, *_CONTEXT, *_CONSEQUENCES, "status", "date", "deciders"})


class NoDecision(ValueError):
    """The file states no decision; the text says why, after the file's name."""


@dataclass(frozen=True)
class FoundDecision:
    """The decision that a record states. `source` is its place, such as docs/adr/0012-cents.md:1.

    `ended` is the status of a record that does not hold: “superseded”, “proposed”; else it is empty. A record
    that the portal exported has the `label` that the decision had, and its globs or its step.
    """

    path: str
    line: int
    statement: str
    reason: str = ""
    ended: str = ""
    label: str = ""
    paths: tuple[str, ...] = ()
    step: str = ""

    @property
    def source(self) -> str:
        return f"{self.path}:{self.line}"


def decision_files(names: Iterable[str]) -> list[str]:
    """Return the decision records among a repository's files."""
    return [name for name in names if is_record(name)]


def is_record(path: str) -> bool:
    """Return whether the file is an ADR, by its folder."""
    return bool(_RECORD.fullmatch(path)) and not _NOT_A_RECORD.fullmatch(PurePosixPath(path).name)


def read_decision(path: str, content: bytes) -> FoundDecision:
    """Return what the record states.

    Raises NoDecision if it states nothing, or another ValueError if it is not text or too long.
    """
    if len(content) > MAX_BYTES:
        raise ValueError(f"has more than {MAX_BYTES:,} bytes")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError("is not UTF-8 text") from None
    if "\0" in text:
        raise ValueError("is not text")
    front, body, skipped = split_front_matter(text.replace("\r\n", "\n"))
    title, line, sections = _sections(body)
    values = _values_of(front)
    if _LABEL.fullmatch(str(values.get(EXPORTED_AS))):
        return _exported_record(path, line + skipped, sections, values)
    in_lines = reversed(_FIELD.findall(body[:_FIELDS_IN]))  # the first one of a name counts
    fields = {name.lower(): value for name, value in in_lines} | _table_fields(body)
    in_name = _NUMBER.sub("", re.sub(r"[-_]+", " ", PurePosixPath(path).stem)).strip().capitalize()
    title = title or str(values.get("title") or "") or fields.get("title", "") or in_name
    status = values.get("status") or ""
    status = "\n".join(map(str, status)) if isinstance(status, list) else str(status)
    if _PLACEHOLDER.search(title) or _PLACEHOLDER.search(status):
        raise NoDecision("is a template")
    decided = _section(sections, *_DECISION) or fields.get("decision", "")
    if not decided:
        raise NoDecision("has no section “Decision” or “Decision Outcome” with a text")
    statement = f"{_NUMBER.sub('', title)}: {_first_thought(decided)}"
    context = _section(sections, *_CONTEXT) or fields.get("context", "")
    consequences = "\n\n".join(sections[name] for name in _CONSEQUENCES if sections.get(name))
    reason = "\n\n".join(filter(None, [context, consequences and f"Consequences:\n\n{consequences}"]))
    if any(values.get(key) for key in ("superseded-by", "superseded_by", "supersededBy")):
        status = "superseded"
    ended = _why_not_in_force(status or _section(sections, "status") or fields.get("status", ""))
    return FoundDecision(path, line + skipped, statement[:MAX_STATEMENT], reason[:MAX_REASON], ended)


def _why_not_in_force(status: str) -> str:
    """Return what the status says of a record that does not hold; "" for one that does."""
    lines = [line for line in status.splitlines() if "[ ]" not in line and line.strip()]
    for number, line in enumerate(lines):
        words = re.sub(r"~~.*?~~", "", line)
        # Below the first line there may be prose, so a word counts only at the beginning of a line.
        found = _ENDED.match(words.lstrip("*->_[]x() #\t"))
        if number == 0:
            found = _ENDED.search(words)
        if found and found["superseded"]:
            return "superseded"
        if found:
            return found["other"].lower()
    if lines and _NOT_DECIDED.search(lines[0]):
        return "proposed"
    return ""


def _first_thought(section: str) -> str:
    """Return the first paragraph in one line, with a list that follows it; or all of the first list."""
    lines = section.split("\n")
    blocks = [
        (token.type, "\n".join(lines[token.map[0] : token.map[1]]).strip())
        for token in MarkdownIt("commonmark").parse(section)
        if token.level == 0 and token.map and token.nesting >= 0
    ]
    lists = ("bullet_list_open", "ordered_list_open")
    if not blocks:
        return ""
    kind, first = blocks[0]
    if kind in lists:
        return first
    first = " ".join(first.split())
    if kind == "paragraph_open" and len(blocks) > 1 and blocks[1][0] in lists:
        return f"{first}\n\n{blocks[1][1]}"
    return first


def _table_fields(body: str) -> dict[str, str]:
    """Return status, decision and so on from tables: a name beside its value, or above it."""
    names = ("status", "title", "decision", "context")
    rows: list[list[str]] = []
    for line in map(str.strip, body[:_FIELDS_IN].splitlines()):
        cells = []
        if line.startswith("|") and line.endswith("|"):
            cells = re.split(r"(?<!\\)\|", line)[1:-1]
        rows.append([cell.strip(" \t*_`") for cell in cells])
    found: dict[str, str] = {}
    for row, rule, below in zip(rows, [*rows[1:], []], [*rows[2:], [], []], strict=False):
        is_head = bool(rule) and all(cell and not cell.strip("-:") for cell in rule)
        for column, cell in enumerate(row):
            name = cell.lower().rstrip(":")
            if name not in names or name in found:
                continue
            # As a head, `| Status | Date |` names columns; `| Status | Accepted |` is a name and its value.
            is_column = is_head and len(below) == len(row) and below[0].lower().rstrip(":") not in _KEYS
            value = ""
            if is_column:
                value = below[column]
            elif column == 0 and len(row) == 2:
                value = row[1]
            if value:
                found[name] = value
    return found


def _values_of(front: str) -> Mapping[str, object]:
    try:
        values = read_yaml(front, where="front matter").value
    except ConfigInvalid:
        return {name.lower(): value for name, value in _FIELD.findall(front)}
    if isinstance(values, dict):
        return values
    return {}


def _exported_record(
    path: str, line: int, sections: dict[str, str], values: Mapping[str, object]
) -> FoundDecision:
    """Return the decision as it was exported: all of the section is its statement."""
    statement = _unquoted(_section(sections, "decision outcome"))
    if not statement:
        raise NoDecision("has no section “Decision Outcome” with a text")
    ended = _ENDED.search(str(values.get("status", "")))
    globs = values.get("paths")
    if not isinstance(globs, list):
        globs = []
    return FoundDecision(
        path,
        line,
        statement[:MAX_STATEMENT],
        _unquoted(_section(sections, "context and problem statement"))[:MAX_REASON],
        ended=ended[0].lower() if ended else "",
        label=str(values[EXPORTED_AS]),
        paths=tuple(map(str, globs)),
        step=str(values.get("step") or ""),
    )


def _unquoted(section: str) -> str:
    """Return the text of a section, which is quoted if all its lines are."""
    lines = section.split("\n")
    if not all(line.startswith(">") for line in lines):
        return section
    return "\n".join(line.removeprefix(">").removeprefix(" ") for line in lines)


def split_front_matter(text: str) -> tuple[str, str, int]:
    """Return YAML front matter, the rest, and the number of lines before the rest."""
    if not text.startswith("---\n"):
        return "", text, 0
    front, end, body = text[4:].partition("\n---\n")
    if end:
        return front, body, front.count("\n") + 3
    return "", text, 0


def _sections(text: str) -> tuple[str, int, dict[str, str]]:
    """Return the title, its line, and the text below each heading by its lower-case name.

    A first heading that names a section, such as “Context”, is not a title.
    """
    lines = text.split("\n")
    headings: list[tuple[str, int, int]] = []
    tokens = MarkdownIt("commonmark").parse(text)
    for before, token in zip([None, *tokens], tokens, strict=False):
        if before is not None and before.type == "heading_open" and before.level == 0 and before.map:
            heading = " ".join(token.content.split())  # as it was written, in one line
            headings.append((heading, before.map[0], before.map[1]))
    if not headings:
        return "", 1, {}
    ends = [begin for _, begin, _ in headings[1:]] + [len(lines)]
    sections: dict[str, str] = {}
    for (name, _, begin), end in zip(headings, ends, strict=True):
        key = _section_name(name)  # the title may be named like a section
        sections[key] = sections.get(key) or "\n".join(lines[begin:end]).strip()
    title, line, _ = headings[0]
    if len(headings) > 1 and _section_name(title) in _SECTIONS:
        title = ""
    return title, line + 1, sections


def _section_name(heading: str) -> str:
    """Return the name without a number, emoji or colon: `3. Decision:` is “decision”."""
    return re.sub(r"^[\W\d_]+|[\W_]+$", "", heading.lower())


def _section(sections: Mapping[str, str], *names: str) -> str:
    return next((sections[name] for name in names if sections.get(name)), "")
