"""What a person approves is what is done: nothing hides in a call that is shown to be judged (R4)."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest

from tasks_app.agent.approvals import approval_of
from tasks_app.core.control_characters import strip_controls
from tasks_app.core.types import Ask
from tasks_app.models import Question
from tasks_app.web.rendering.evidence import evidence_of

WORKSPACE, HOME = Path("/w"), Path("/home/guest")

HIDING = {
    "title-of-a-terminal": "ls \x1b]0;$(rm -rf hidden)\x07",
    "sequence": "ls \x1b[1;hidden",
    "overwritten": "rm -rf hidden\rls             ",
    "rubbed-out": "hidden\b\b\b\b\b\bls    ",
    "turned-round": "ls \u202e hidden \u202c",
    "isolated": "ls \u2066# \u2069hidden",
    "no-width": "l\u200bs hidden",
    "tags": "ls hidden\U000e0041",
    "c1": "ls \x9d0;hidden\x9c",
}


def ask_for(name: str, **given: str) -> Ask:
    return approval_of("1", name, given, workspace=WORKSPACE, home=HOME)


@pytest.mark.parametrize("text", HIDING.values(), ids=HIDING)
def test_nothing_hides_in_what_is_approved(text: str) -> None:
    """As a page shows it, which takes control sequences out, and as a terminal does."""
    asks = [
        ask_for("Bash", command=text, description=text),
        ask_for("Write", file_path=text, content=text),
        ask_for("Edit", file_path=text, old_string="", new_string=text),
        ask_for("WebFetch", url=text),
    ]
    for ask in asks:
        for shown in [piece.text for piece in ask.evidence] + [ask.items[0].question]:
            assert strip_controls(shown) == shown and shown.replace("\n", "").isprintable(), ask
            assert "hidden" in shown


def test_lines_that_only_a_program_takes_for_lines_hide_nothing() -> None:
    """A diff leaves out headers of files: no line of a file may pass for one."""
    ask = ask_for(
        "Edit", file_path="/w/a.js", old_string="a", new_string="b\u2028diff --git x\u2028index evil()"
    )
    assert "+b⟨U+2028⟩diff --git x⟨U+2028⟩index evil()" in ask.evidence[0].text.splitlines()


def test_ordinary_text_stays_as_it_is() -> None:
    text = "echo 'grüße, 世界 🐈'\n\tmake\r\ntrue"
    assert ask_for("Bash", command=text).evidence[0].text == text.replace("\r", "")


def test_the_first_lines_of_a_long_change_are_no_header() -> None:
    ask = ask_for("Edit", file_path="/w/a.sql", old_string="-- keep\n" * 2_001, new_string="++ new")
    (pane,) = evidence_of(Question(evidence=[asdict(ask.evidence[0])]))
    assert [line.text for line in pane.lines][1:3] == ["-- keep", "-- keep"]


def test_lines_that_are_not_shown_are_counted() -> None:
    text = "@@ @@\n" + "+x\n" * 5_000
    (pane,) = evidence_of(Question(evidence=[{"kind": "diff", "title": "", "text": text}]))
    assert pane.cut == 2 * (5_001 - len(pane.lines)) > 0
