"""Decision records of a repository in the shapes in which people write them (D7)."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from datetime import date

import pytest
from hypothesis import assume, given
from hypothesis.strategies import sampled_from, text

from tasks_app.config.decision_records import (
    MAX_BYTES,
    MAX_STATEMENT,
    DecisionRecord,
    NoDecision,
    decision_files,
    read_decision,
    record_text,
    with_front_matter,
)

#: Characters with a meaning in Markdown and YAML, and others.
_TEXT = sampled_from("#=->`~*_<![]():|&\\\"' \n\n\tabc1.é🐱")

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


def test_a_record_of_nygard_is_read() -> None:
    found = read_decision("docs/adr/0012-cents.md", NYGARD.encode())
    assert found.statement == "Store money in cents: We will store cents."
    assert found.reason == "Floats round.\n\nConsequences:\n\nExact sums."
    assert (found.source, found.ended) == ("docs/adr/0012-cents.md:1", "")


@pytest.mark.parametrize(
    ("status", "ended"),
    [
        ("accepted", ""),
        ("proposed", "proposed"),
        ('"superseded by ADR-0123"', "superseded"),
        ("Deprecated", "deprecated"),
        ("rejected", "rejected"),
    ],
)
def test_a_record_of_madr_is_read_with_its_status(status: str, ended: str) -> None:
    text = MADR.format(status=status).replace("\n", "\r\n")
    found = read_decision("adr/0001-cents.md", text.encode())
    assert found.statement == 'Store money in cents: Chosen option: "cents", because they are exact.'
    assert found.reason == "Floats round.\n\nConsequences:\n\n* Good, because exact."
    assert (found.line, found.ended) == (6, ended)


def read(text: str, path: str = "adr/0007-store-cents.md") -> tuple[str, str]:
    found = read_decision(path, text.encode())
    return found.statement, found.ended


@pytest.mark.parametrize(
    ("status", "ended"),
    [
        ("Superseded by [13](0013.md)", "superseded"),
        ("Superceded by [13. Mills](0013.md)", "superseded"),  # adr-tools
        ("Accepted\n\nSupercedes [3. Floats](0003.md)", ""),
        ("Accepted\n\nSuperseded by 13", "superseded"),
        ("~~Accepted~~\n\n* Replaced by 13", "superseded"),
        ("Accepted\n\nThe option with floats was rejected.", ""),
        ("- [ ] Proposed\n- [x] Accepted\n- [ ] Superseded", ""),
        ("Draft", "proposed"),
        ("In review", "proposed"),
    ],
)
def test_the_status_below_its_heading(status: str, ended: str) -> None:
    assert read(NYGARD.replace("Accepted", status))[1] == ended


@pytest.mark.parametrize(
    ("head", "ended"),
    [
        ("* Status: deprecated\n* Deciders: Ann", "deprecated"),  # MADR 2
        ("- **Status:** superseded by [5](5.md)", "superseded"),
        ("**Status**: Accepted", ""),
        ("| Status | Superseded by 5 |\n|---|---|\n| Date | 2026-01-01 |", "superseded"),
        ("| Field | Value |\n| :-- | --- |\n| **Status** | Proposed |", "proposed"),
        ("| Status | Date |\n|---|---|\n| Rejected | 2026-01-01 |", "rejected"),
        ("| Date | Status |\n|---|---|\n| 2026-01-01 | Accepted |", ""),
        ("| a |\n|", ""),
    ],
)
def test_the_status_in_a_list_a_line_or_a_table(head: str, ended: str) -> None:
    assert read(f"# Cents\n\n{head}\n\n## Decision\n\nCents.\n") == ("Cents: Cents.", ended)


@pytest.mark.parametrize(
    ("front", "said"),
    [
        ('title: "ADR-0005: Use cents"\nstatus: accepted', ("Use cents: Cents.", "")),
        ("status: [superseded]", ("Store cents: Cents.", "superseded")),
        ("title: Use cents\nsuperseded-by: ADR-9\nstatus: accepted", ("Use cents: Cents.", "superseded")),
        ("title: Use: cents\nstatus: deprecated", ("Use: cents: Cents.", "deprecated")),  # no valid YAML
        ("tags: [money]", ("Store cents: Cents.", "")),
    ],
)
def test_title_and_status_in_front_matter_or_the_title_in_the_name(front: str, said: tuple[str, str]) -> None:
    body = "## Context and Problem Statement\n\nFloats.\n\n## Decision Outcome\n\nCents.\n"
    assert read(f"---\n{front}\n---\n\n{body}") == said


@pytest.mark.parametrize(
    ("title", "shown"),
    [
        ("12. Use cents", "Use cents"),
        ("0012 Use cents", "Use cents"),
        ("ADR-12: Use cents", "Use cents"),
        ("[ADR 12] Use cents", "Use cents"),
        ("ADR-012 — Use cents", "Use cents"),
        ("12 factors", "12 factors"),
        ("3.5 is enough", "3.5 is enough"),
    ],
)
def test_a_number_is_no_part_of_the_title(title: str, shown: str) -> None:
    assert read(f"# {title}\n\n## 3. Decision:\n\nYes.\n")[0] == f"{shown}: Yes."


@pytest.mark.parametrize(
    ("decision", "said"),
    [
        (
            "We will:\n\n* store cents\n\n* round half\n  to even\n\nMore.",
            "We will:\n\n* store cents\n\n* round half\n  to even",
        ),
        ("1. Cents.\n2. Never floats.\n\nMore.", "1. Cents.\n2. Never floats."),
        ("We store\ncents.\n\nMore.\n\n* not this", "We store cents."),
    ],
)
def test_a_list_of_the_decision_is_read_as_a_whole(decision: str, said: str) -> None:
    assert read(f"# Cents\n\n## Decision\n\n{decision}\n")[0] == f"Cents: {said}"


def test_a_decision_in_a_table_or_a_line() -> None:
    assert read("# Cents\n\n| Decision | We store cents. |\n|---|---|\n| Status | Accepted |\n") == (
        "Cents: We store cents.",
        "",
    )
    assert (
        read("# Cents\n\n**Status:** Accepted\n\n**Decision:** We store cents.\n")[0]
        == "Cents: We store cents."
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("# Title only\n", "has no section “Decision”"),
        ("# Cents\n\n## Decision\n\n## Consequences\n\nNone.\n", "has no section “Decision”"),
        ("# {short title, representative of solved problem}\n\n## Decision Outcome\n\nX.\n", "is a template"),
        ("# [short title of solved problem and solution]\n\n## Decision\n\nX.\n", "is a template"),
        (
            '---\nstatus: "{proposed | accepted | superseded by ADR-0123}"\n---\n# T\n\n## Decision\n\nX.\n',
            "is a template",
        ),
        ("", "has no section “Decision”"),
    ],
)
def test_why_a_file_states_no_decision(text: str, why: str) -> None:
    with pytest.raises(NoDecision, match=why):
        read(text)


def test_the_folders_of_records_are_found_without_templates() -> None:
    records = [
        "docs/adr/0001-a.md",
        "doc/adr/b.md",
        "adr/c.md",
        "docs/decisions/d.md",
        "docs/architecture-decisions/e.md",
    ]
    others = [
        *("CLAUDE.md", "src/AGENTS.md", "README.md", "adr.md", "docs/adr/README.md", "docs/adr/x.png"),
        *(
            "docs/adr/template.md",
            "docs/adr/0000-template.md",
            "docs/adr/adr-template-minimal.md",
            "adr/_draft.md",
        ),
    ]
    assert decision_files([*records, *others]) == records


@pytest.mark.parametrize(
    ("content", "fault"),
    [(b"- a\0b", "not text"), (b"\xff\xfe", "not UTF-8"), (b"- x\n" * MAX_BYTES, "more than 200,000 bytes")],
)
def test_what_is_no_text_or_too_long_is_refused(content: bytes, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        read_decision("adr/1.md", content)


def test_what_is_found_is_bounded() -> None:
    assert len(read("# A\n\n## Decision\n\n" + "x" * 100_000)[0]) == MAX_STATEMENT
    for shape in ("> " * 50_000, "| " * 50_000, "# A\n\n## Decision\n\n" + "- x\n" * 20_000, "*" * 100_000):
        with suppress(NoDecision):
            assert len(read(shape)[0]) <= MAX_STATEMENT


@given(text(_TEXT, min_size=1, max_size=200), text(_TEXT, max_size=200))
def test_a_record_is_read_as_it_was_written(statement: str, reason: str) -> None:
    statement, reason = statement.strip(), reason.strip()
    assume(statement)
    record = DecisionRecord("D-7", statement, "accepted", reason, paths=["src/**", "- [x]: y"], step="plan")
    found = read_decision("docs/adr/d-7.md", record_text(record, path="docs/adr/d-7.md").encode())
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
    found = read_decision("adr/1.md", record_text(record, path="adr/1.md").encode())
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
        found = read_decision("adr/1.md", changed.encode())
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
