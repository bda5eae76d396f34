"""Decisions in files of a repository: rules for agents, and records in two formats (D7)."""

from __future__ import annotations

from dataclasses import replace
from datetime import date

import pytest
from hypothesis import assume, given
from hypothesis.strategies import sampled_from, text

from tasks_app.config.decision_files import (
    MAX_BYTES,
    MAX_FOUND,
    MAX_STATEMENT,
    decision_files,
    read_decisions,
)
from tasks_app.config.decision_records import DecisionRecord, record_text, with_front_matter

#: Characters with a meaning in Markdown and YAML, and others.
_TEXT = sampled_from("#=->`~*_<![]():|&\\\"' \n\n\tabc1.é🐱")

RULES = """\
# Shop

This is a shop. Money must be in cents! It is old.

## Code

- Use `Decimal` for
  rates.
  - Never floats.
1. Run `make test`.

```
- not a rule
```
"""
NYGARD = """\
# 12. Store money in cents

Date: 2026-01-01

## Status

Accepted

## Context

Floats round.

## Decision

We will store cents.

More words.

## Consequences

Exact sums.
"""
MADR = """\
---
status: {status}
date: 2026-01-01
---

# Store money in cents

## Context and Problem Statement

Floats round.

## Decision Outcome

Chosen option: "cents", because they are exact.

### Consequences

* Good, because exact.
"""


def test_each_item_and_each_rule_of_a_paragraph_is_found_with_its_line_and_headings() -> None:
    found = [(one.source, one.statement, one.reason) for one in read_decisions("CLAUDE.md", RULES.encode())]
    assert found == [
        ("CLAUDE.md:3", "Money must be in cents!", "Shop"),
        ("CLAUDE.md:7", "Use `Decimal` for rates.", "Shop › Code"),
        ("CLAUDE.md:9", "Never floats.", "Shop › Code"),
        ("CLAUDE.md:10", "Run `make test`.", "Shop › Code"),
    ]


def test_a_record_of_nygard_is_read() -> None:
    (found,) = read_decisions("docs/adr/0012-cents.md", NYGARD.encode())
    assert found.statement == "Store money in cents: We will store cents."
    assert found.reason == "Floats round.\n\nConsequences:\n\nExact sums."
    assert (found.source, found.ended) == ("docs/adr/0012-cents.md:1", "")


@pytest.mark.parametrize(
    ("status", "ended"),
    [
        ("accepted", ""),
        ("proposed", ""),
        ('"superseded by ADR-0123"', "superseded"),
        ("Deprecated", "deprecated"),
        ("rejected", "rejected"),
    ],
)
def test_a_record_of_madr_is_read_with_its_status(status: str, ended: str) -> None:
    text = MADR.format(status=status).replace("\n", "\r\n")
    (found,) = read_decisions("adr/0001-cents.md", text.encode())
    assert found.statement == 'Store money in cents: Chosen option: "cents", because they are exact.'
    assert found.reason == "Floats round.\n\nConsequences:\n\n* Good, because exact."
    assert (found.line, found.ended) == (6, ended)


def test_a_status_in_a_list_or_below_its_heading_counts() -> None:
    text = NYGARD.replace("Accepted", "Superseded by [13](0013.md)")
    assert read_decisions("adr/1.md", text.encode())[0].ended == "superseded"
    text = "# Cents\n\n* Status: deprecated\n\n## Decision\n\nCents.\n"
    assert read_decisions("adr/1.md", text.encode())[0].ended == "deprecated"


def test_the_folders_of_records_are_found() -> None:
    names = [
        *("CLAUDE.md", "src/AGENTS.md", "README.md", "docs/adr/0001-a.md", "doc/adr/b.md", "adr/c.md"),
        *("docs/decisions/d.md", "docs/adr/README.md", "docs/adr/template.md", "docs/adr/x.png", "adr.md"),
    ]
    assert decision_files(names) == [
        *(
            "CLAUDE.md",
            "src/AGENTS.md",
            "docs/adr/0001-a.md",
            "doc/adr/b.md",
            "adr/c.md",
            "docs/decisions/d.md",
        ),
    ]


@pytest.mark.parametrize(
    ("content", "fault"),
    [(b"- a\0b", "not text"), (b"\xff\xfe", "not UTF-8"), (b"- x\n" * MAX_BYTES, "more than 200,000 bytes")],
)
def test_what_is_no_text_or_too_long_is_refused(content: bytes, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        read_decisions("CLAUDE.md", content)


def test_what_is_found_is_bounded() -> None:
    assert len(read_decisions("CLAUDE.md", b"- x\n" * 10_000)) == MAX_FOUND
    assert len(read_decisions("CLAUDE.md", b"- " + b"x" * 100_000)[0].statement) == MAX_STATEMENT
    assert read_decisions("adr/1.md", b"# Title only\n") == []
    assert read_decisions("CLAUDE.md", b"> " * 50_000) == []


@given(text(_TEXT, min_size=1, max_size=200), text(_TEXT, max_size=200))
def test_a_record_is_read_as_it_was_written(statement: str, reason: str) -> None:
    statement, reason = statement.strip(), reason.strip()
    assume(statement)
    record = DecisionRecord("D-7", statement, "accepted", reason, paths=["src/**", "- [x]: y"], step="plan")
    (found,) = read_decisions("docs/adr/d-7.md", record_text(record, path="docs/adr/d-7.md").encode())
    assert (found.statement, found.reason, found.ended) == (statement, reason, "")
    assert (found.label, found.paths, found.step) == ("D-7", ("src/**", "- [x]: y"), "plan")


@pytest.mark.parametrize(
    "statement",
    [
        "# Heading",
        "Title\n===",
        "```\nopen",
        "<!-- open",
        "> quoted",
        "Decision Outcome",
        "a\n\n---\n\nb",
        ".",
    ],
)
def test_words_that_markdown_would_take_for_more_are_quoted(statement: str) -> None:
    record = DecisionRecord("D-7", statement, "superseded by D-9", statement)
    (found,) = read_decisions("adr/1.md", record_text(record, path="adr/1.md").encode())
    assert (found.statement, found.reason, found.ended) == (statement, statement, "superseded")


def test_only_the_front_matter_of_a_file_is_renewed() -> None:
    record = DecisionRecord("D-7", "Cents.", "accepted", decided_by="Ada", decided_on=date(2026, 5, 3))
    written = record_text(record, path="adr/1.md") + "\n## Notes\n\nMine.\n"
    ended = with_front_matter(replace(record, status="deprecated"), written)
    assert ended == written.replace("accepted", "deprecated") and "date: '2026-05-03'" in ended


class TestFrontMatterOfPeople:
    """D7: an export keeps what it did not write."""

    RECORD = DecisionRecord("D-7", "Cents.", "accepted", decided_by="Ada", decided_on=date(2026, 5, 3))
    FRONT = """\
# Ask Grace before you change this.
status: accepted
consulted:
- Grace
- Bob
date: '2026-05-03'
"informed": everybody  # by mail
decision-makers:
- Ada
decision: D-7
notes: |
  status: not a key
"""
    BODY = "\n# Cents\n\n## Decision Outcome\n\nCents.\n\n---\n\nMine.\n"

    def file(self, front: str = FRONT) -> str:
        return f"---\n{front}---\n{self.BODY}"

    def test_a_file_that_says_the_same_stays_byte_for_byte(self) -> None:
        for written in (self.file(), self.file().replace("\n", "\r\n"), "\ufeff" + self.file()):
            assert with_front_matter(self.RECORD, written) == written

    @pytest.mark.parametrize("end", ["\n", "\r\n"])
    def test_keys_comments_and_line_ends_stay(self, end: str) -> None:
        text = self.file().replace("\n", end)
        changed = with_front_matter(replace(self.RECORD, status="deprecated", paths=["src/**"]), text)
        assert changed == text.replace(f"status: accepted{end}", f"status: deprecated{end}").replace(
            f"not a key{end}", f"not a key{end}paths:{end}- src/**{end}"
        )
        (found,) = read_decisions("adr/1.md", changed.encode())
        assert (found.label, found.ended, found.paths, found.statement[:6]) == (
            "D-7", "deprecated", ("src/**",), "Cents.",
        )  # fmt: skip

    def test_a_body_with_other_line_ends_stays(self) -> None:
        text = self.file().replace("Mine.\n", "Mine.\r\n")
        assert with_front_matter(self.RECORD, text) == text

    @pytest.mark.parametrize(
        "front",
        ["{status: accepted, decision: D-7, consulted: [Grace]}\n",
         "decision: D-7\nconsulted: [Grace]\ndecision-makers:\n# the board\n- Ada\n"],
        ids=["braces", "a comment in a list"],
    )  # fmt: skip
    def test_in_other_forms_the_keys_are_written_anew(self, front: str) -> None:
        changed = with_front_matter(self.RECORD, self.file(front))
        assert changed == self.file(f"{self.RECORD.front_matter}consulted:\n- Grace\n")
        assert with_front_matter(self.RECORD, changed) == changed

    def test_a_key_with_a_megabyte_of_blanks_holds_up_nobody(self) -> None:
        """Trying each blank as the end of the key took a quarter of an hour, for all threads."""
        front = f"? a{1_000_000 * ' '}\n: 1\n"
        assert with_front_matter(self.RECORD, self.file(front)).startswith(f"---\n{self.RECORD.front_matter}")

    def test_a_key_that_does_not_apply_any_more_goes(self) -> None:
        narrowed = replace(self.RECORD, step="plan")
        text = record_text(narrowed, path="adr/1.md")
        assert "step: plan" in text
        assert with_front_matter(self.RECORD, text) == text.replace("step: plan\n", "")
