"""Reading decisions from files of a repository: rules for agents (CLAUDE.md), and decision records (ADRs)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import PurePosixPath

from markdown_it import MarkdownIt
from markdown_it.token import Token

from tasks_app.config.faults import ConfigInvalid
from tasks_app.config.yaml_text import read_yaml

MAX_BYTES = 200_000
#: Decisions that are read from one file.
MAX_FOUND = 300
MAX_STATEMENT, MAX_REASON = 2_000, 10_000

RULE_FILES = ("CLAUDE.md", "AGENTS.md")
_RECORD = re.compile(r"(?:.*/)?(?:adrs?|decisions|decision-records)/(?:.*/)?[^/]+\.md", re.IGNORECASE)
_NOT_RECORDS = {"readme.md", "index.md", "template.md", "adr-template.md", "0000-template.md"}
#: A sentence of a paragraph is a rule if one of these words says so, or if it begins as an order.
_RULE = re.compile(
    r"\b(?:must|always|never|should|shall|do not|don't|may not|only|required|forbidden)\b"
    r"|^(?:use|prefer|avoid|keep|write|run|make|add|put|follow|ensure)\b",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"(?<=[.!])\s+(?=[A-Z`])")
_NUMBER = re.compile(r"^(?:ADR[- ]?)?\d+\s*[.:–-]?\s+", re.IGNORECASE)
_STATUS_LINE = re.compile(r"^[*-]?\s*\**status\**\s*:\s*\**\s*(.+)$", re.IGNORECASE | re.MULTILINE)
#: The key in the front matter of a record that the portal exported, with the decision's label as its value.
EXPORTED_AS = "decision"
_LABEL = re.compile(r"D-[1-9][0-9]{0,8}")
_ENDED = re.compile(r"\b(superseded|deprecated|rejected|replaced|withdrawn)\b", re.IGNORECASE)


@dataclass(frozen=True)
class FoundDecision:
    """A decision that a file states. `source` is its place, such as CLAUDE.md:12.

    `ended` is the status of a record that no longer holds, such as “superseded”; else it is empty. A record
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
    """Return those of a repository's files that state decisions: files of rules, then records."""
    listed = list(names)
    rules = [name for name in listed if PurePosixPath(name).name in RULE_FILES]
    return rules + [name for name in listed if is_record(name)]


def is_record(path: str) -> bool:
    """Return whether the file is an ADR, by its folder."""
    return bool(_RECORD.fullmatch(path)) and PurePosixPath(path).name.lower() not in _NOT_RECORDS


def read_decisions(path: str, content: bytes) -> list[FoundDecision]:
    """Return what the file states, at most MAX_FOUND. Raises ValueError if it is no text or too long."""
    if len(content) > MAX_BYTES:
        raise ValueError(f"has more than {MAX_BYTES:,} bytes")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError("is not UTF-8 text") from None
    if "\0" in text:
        raise ValueError("is not text")
    text = text.replace("\r\n", "\n")
    found = _record(path, text) if is_record(path) else _rules(path, text)
    return list(islice(found, MAX_FOUND))


def _rules(path: str, text: str) -> Iterator[FoundDecision]:
    """Yield each item of a list, and each sentence of a paragraph that is a rule, with its headings."""
    headings: list[tuple[int, str]] = []
    items = 0
    tokens = MarkdownIt("commonmark").parse(text)
    for before, token in zip([None, *tokens], tokens, strict=False):
        if token.type in ("list_item_open", "list_item_close"):
            items += token.nesting
        if token.type != "inline" or before is None or token.map is None:
            continue
        if before.type == "heading_open":
            level = int(before.tag[1:])
            headings = [one for one in headings if one[0] < level] + [(level, _plain(token))]
        elif before.type == "paragraph_open":
            reason = " › ".join(title for _, title in headings)[:MAX_REASON]
            for statement in [_plain(token)] if items else _sentences_with_rules(_plain(token)):
                yield FoundDecision(path, token.map[0] + 1, statement[:MAX_STATEMENT], reason)


def _plain(token: Token) -> str:
    """Return the text as it was written, in one line."""
    return " ".join(token.content.split())


def _sentences_with_rules(paragraph: str) -> Iterator[str]:
    return (one for one in _SENTENCE_END.split(paragraph) if _RULE.search(one))


def _record(path: str, text: str) -> Iterator[FoundDecision]:
    """Yield the decision of a record in the format of Michael Nygard or of MADR; nothing if it has none."""
    front, body, skipped = split_front_matter(text)
    title, line, sections = _sections(body)
    if values := _exported(front):
        yield from _exported_record(path, line + skipped, sections, values)
        return
    decided = _section(sections, "decision outcome", "decision")
    if not (title and decided):
        return
    status = _section(sections, "status") or _status_line(front) or _status_line(body)
    ended = _ENDED.search(status.partition("\n")[0])
    statement = f"{_NUMBER.sub('', title)}: {' '.join(decided.partition(chr(10) * 2)[0].split())}"
    context = _section(sections, "context and problem statement", "context")
    consequences = _section(sections, "consequences", "positive consequences")
    reason = "\n\n".join(filter(None, [context, consequences and f"Consequences:\n\n{consequences}"]))
    yield FoundDecision(
        path, line + skipped, statement[:MAX_STATEMENT], reason[:MAX_REASON],
        ended[1].lower() if ended else "",
    )  # fmt: skip


def _exported(front: str) -> dict[str, object]:
    """Return the front matter of a record that the portal exported; empty for other records."""
    try:
        values = read_yaml(front, where="front matter").value
    except ConfigInvalid:
        return {}
    if not isinstance(values, dict) or not _LABEL.fullmatch(str(values.get(EXPORTED_AS))):
        return {}
    return values


def _exported_record(
    path: str, line: int, sections: dict[str, str], values: dict[str, object]
) -> Iterator[FoundDecision]:
    """Yield the decision as it was exported: all of the section is its statement."""
    statement = _unquoted(_section(sections, "decision outcome"))
    if not statement:
        return
    ended = _ENDED.search(str(values.get("status", "")))
    globs = values.get("paths")
    yield FoundDecision(
        path,
        line,
        statement[:MAX_STATEMENT],
        _unquoted(_section(sections, "context and problem statement"))[:MAX_REASON],
        ended[1].lower() if ended else "",
        str(values[EXPORTED_AS]),
        tuple(map(str, globs)) if isinstance(globs, list) else (),
        str(values.get("step") or ""),
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
    return (front, body, front.count("\n") + 3) if end else ("", text, 0)


def _status_line(text: str) -> str:
    found = _STATUS_LINE.search(text[:4_000])
    return found[1] if found else ""


def _sections(text: str) -> tuple[str, int, dict[str, str]]:
    """Return the first heading, its line, and the text below each other heading by its lower-case name."""
    lines = text.split("\n")
    headings: list[tuple[str, int, int]] = []
    tokens = MarkdownIt("commonmark").parse(text)
    for before, token in zip([None, *tokens], tokens, strict=False):
        if before is not None and before.type == "heading_open" and before.level == 0 and before.map:
            headings.append((_plain(token), before.map[0], before.map[1]))
    if not headings:
        return "", 0, {}
    ends = [begin for _, begin, _ in headings[1:]] + [len(lines)]
    sections: dict[str, str] = {}
    for (name, _, begin), end in zip(headings, ends, strict=True):
        key = name.lower().rstrip(":")  # the title may be named like a section
        sections[key] = sections.get(key) or "\n".join(lines[begin:end]).strip()
    return headings[0][0], headings[0][1] + 1, sections


def _section(sections: dict[str, str], *names: str) -> str:
    return next((sections[name] for name in names if sections.get(name)), "")
