"""Terminal escapes and control characters are removed in one place, and shown in one place."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tasks_app.core.text import strip_controls, visible
from tasks_app.web.middleware import in_page

APP = Path(__file__).parents[2] / "tasks_app"


@pytest.mark.parametrize(
    ("text", "stripped", "one_line"),
    [
        ("plain", "plain", "plain"),
        ("a\tb\nc", "a\tb\nc", "a b c"),
        ("a\r\nb\rc", "a\nb\nc", "a b c"),
        ("\x1b[1;31mred\x1b[0m", "red", "red"),
        ("\x9b2Jgone", "gone", "gone"),
        ("\x1b]0;title\x07text", "text", "text"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link", "link"),
        ("\x1b]0;no end\nnext", "0;no end\nnext", "0;no end next"),
        ("\x1b[31", "[31", "[31"),
        ("\x1b\x1b[0m[31mx", "[31mx", "[31mx"),
        ("\x1b(Bx\x1b", "x", "x"),
        ("a\x00b\x08c\x7fd\x85e", "abcde", "a b c d e"),
        ("a\u202eb\u200bc\u2028d", "a⟨U+202E⟩b\u200bc\u2028d", "a⟨U+202E⟩b c d"),
        ("\u2066a\u2069", "⟨U+2066⟩a⟨U+2069⟩", "⟨U+2066⟩a⟨U+2069⟩"),
        ("a\ud800b", "a?b", "a b"),
        ("  a   b  ", "  a   b  ", "a b"),
    ],
)
def test_controls_are_removed(text: str, stripped: str, one_line: str) -> None:
    assert strip_controls(text) == stripped
    assert strip_controls(text, one_line=True) == one_line


def test_nothing_that_a_terminal_acts_on_is_left() -> None:
    every = "".join(map(chr, range(0x120)))
    for first in every:
        text = strip_controls(f"\x1b{first}\x1b[{first}x\x9b{first}\x1b]{first}")
        assert re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", text) is None
    assert strip_controls(every, one_line=True).isprintable()


def test_hidden_characters_are_shown_to_those_who_judge_a_text() -> None:
    assert visible("a\x1b[31m\u202eb\r\nc\td\x7f") == "a␛[31m⟨U+202E⟩b\nc\td␡"
    assert visible("rm\u2800-rf\u3164/") == "rm⟨U+2800⟩-rf⟨U+3164⟩/"


def test_no_other_module_removes_control_characters() -> None:
    """Of the others one makes classes of colours, one writes a red word, and one reads escapes of shells."""
    allowed = {"core/text.py", "core/error_line.py", "web/rendering/words.py", "agent/gate/shell_words.py"}
    found = {
        path.relative_to(APP).as_posix()
        for path in APP.rglob("*.py")
        if re.search(r"\\x1[bf]|unicodedata\.category|\.isprintable\(\) else", path.read_text())
    }
    assert found == allowed


def test_a_prompt_has_the_directions_that_were_written() -> None:
    assert strip_controls("a\u202eb\x1b[0m", directions=True) == "a\u202eb"


def test_pages_show_directions_but_not_in_tags_and_fields() -> None:
    page = '<p title="{0}a">{0}b <i>c{0}</i></p><textarea>{0}d</textarea>{0}<input value="{0}e">'
    shown = '<p title="{0}a">{1}b <i>c{1}</i></p><textarea>{0}d</textarea>{1}<input value="{0}e">'
    assert in_page(page.format("\u202e")) == shown.format("\u202e", "⟨U+202E⟩")
