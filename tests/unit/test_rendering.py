"""What agents and people wrote cannot do harm on a page, and reads well (W7, R4)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from html import unescape
from typing import Any

import pytest
from django.template.loader import render_to_string

from tasks_app.core.amounts import dollars, duration_in_words
from tasks_app.core.text import strip_controls
from tasks_app.history.events.lines import summarise
from tasks_app.web.rendering import words
from tasks_app.web.rendering.diff import FileDiff, parse_diff
from tasks_app.web.rendering.log_entries import Output
from tasks_app.web.rendering.markdown import plain_text, render_inline, render_markdown
from tasks_app.web.rendering.tools import edit_lines, shown_input
from tasks_app.web.rendering.words import headline, render_ansi
from tests.steps import steps

HOSTILE = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "[click](javascript:alert(1))",
    "[click](JaVaScRiPt:alert(1))",
    "[click](data:text/html,<script>alert(1)</script>)",
    "![x](https://elsewhere.example/tracker.png)",
    '<https://x.example/" onmouseover=alert(1)>',
    "```\n</code></pre><script>alert(1)</script>\n```",
    "<a href='x' style='position:fixed'>all</a>",
    "\x1b]8;;javascript:alert(1)\x07link\x1b]8;;\x07",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_markdown_makes_no_script_no_handler_no_picture_and_no_style(text: str) -> None:
    html = render_markdown(text).lower()
    for forbidden in (
        "<script",
        "<img",
        'href="javascript',
        'href="data',
        "<a href='x'",
        " onmouseover=alert(1)>",
    ):
        assert forbidden not in html.replace("&lt;", "")
    assert "\x1b" not in html


def test_markdown_keeps_what_people_use() -> None:
    html = render_markdown(
        "# Plan\n\n1. **do** `it`\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n[docs](https://a.example)"
    )
    for part in ("<h3>Plan</h3>", "<strong>do</strong>", "<code>it</code>", "<td>1</td>"):
        assert part in html
    assert '<a href="https://a.example" rel="noopener noreferrer nofollow">docs</a>' in html


@pytest.mark.parametrize("text", ["parse gives `&#233;` for &#233;", "&eacute; &amp; &#xe9; and é"])
def test_entities_stay_as_they_were_written(text: str) -> None:
    """“parse gives `&#233;` instead of é” was shown with the same letter twice."""
    assert (
        unescape(render_markdown(text)).replace("<code>", "`").replace("</code>", "`") == f"<p>{text}</p>\n"
    )
    assert plain_text(text) == text.replace("`", "")


def test_names_with_underscores_stay_as_they_are() -> None:
    html = render_markdown("**In** pkg/__main__.py, pkg/__init__.py and a/_private_/b: __all__")
    assert html == "<p><strong>In</strong> pkg/__main__.py, pkg/__init__.py and a/_private_/b: __all__</p>\n"
    assert plain_text("pkg/__main__.py *now*") == "pkg/__main__.py now"


def test_headings_of_a_text_stand_below_those_of_the_page() -> None:
    html = render_markdown("# One\n\n## Two\n\nSetext\n===\n\n###### Six")
    assert "<h3>One</h3>" in html and "<h4>Two</h4>" in html and "<h3>Setext</h3>" in html
    assert "<h6>Six</h6>" in html and "<h1" not in html and "<h2" not in html


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Run `a && b`?", "Run <code>a &amp;&amp; b</code>?"),
        ("`<b>` and `c`", "<code>&lt;b&gt;</code> and <code>c</code>"),
        ("Change `src/a-long…", "Change <code>src/a-long…</code>"),
        ("It`s one tick", "It`s one tick"),
        ("<i>x</i>", "&lt;i&gt;x&lt;/i&gt;"),
    ],
)
def test_a_headline_shows_code_as_code(text: str, shown: str) -> None:
    assert render_inline(text) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Which one?", "Which one?"),
        ("It is red. Which one?", "… Which one?"),
        ("Which one? It is red.", "Which one? …"),
        ("It is red. Which one? There are two.", "… Which one?"),
    ],
)
def test_a_headline_says_once_that_something_stands_around_it(text: str, shown: str) -> None:
    assert headline(text) == shown


def test_a_very_long_text_is_cut_and_says_so() -> None:
    assert "in the logs to download" in render_markdown("word " * 50_000)


def test_terminal_colours_become_classes() -> None:
    assert render_ansi("\x1b[1;31mno\x1b[0m yes") == '<span class="ansi-bold ansi-red">no</span> yes'


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[38;5;196mred\x1b[m", "red"),
        ("\x1b[38;2;1;31;3mred\x1b[m", "red"),
        ("\x1b[2J\x1b[1;1Hhome", "home"),
        ("\x1b]0;title\x07text", "text"),
        ("a\x00b\x08c", "abc"),
        ("\x1b[31", "[31"),
        ("<script>\x1b[0m&", "&lt;script&gt;&amp;"),
    ],
)
def test_other_control_sequences_go_and_the_rest_is_escaped(text: str, shown: str) -> None:
    assert render_ansi(text) == shown


def test_plain_text_loses_every_sequence() -> None:
    assert strip_controls("\x1b[31mFAIL\x1b[0m\r\n") == "FAIL\n"


@pytest.mark.parametrize(
    ("name", "given", "line"),
    [
        ("Edit", {"file_path": "/data/tasks/12/workspace/shop/prices.py"}, "Edit shop/prices.py"),
        ("Edit", {"file_path": "/data/sequences/3/workspace/shop/prices.py"}, "Edit shop/prices.py"),
        ("Bash", {"command": "python3 -m unittest"}, "$ python3 -m unittest"),
        ("Bash", {"command": "cd x\nmake"}, "$ cd x …"),
        ("Grep", {"pattern": "round", "path": "/data/tasks/1/workspace/"}, "Grep “round”"),
        ("Grep", {"pattern": "round", "path": "/data/tasks/1-526e4e4e44d19f2f/workspace"}, "Grep “round”"),
        ("Grep", {"pattern": "round", "path": "src"}, "Grep “round” in src"),
        ("WebFetch", {"url": "https://a.example"}, "WebFetch https://a.example"),
        ("TodoWrite", {"todos": [{"status": "completed"}, {"status": "in_progress", "content": "test"}]},
         "To do: 1 of 2 done, now: test"),
        ("Task", {"subagent": 1, "description": "look around"}, "Task look around"),
        ("AskUserQuestion", {"questions": [{"question": "Who?"}]}, "Question “Who?”"),
        ("AskUserQuestion", {"questions": "nonsense"}, "Question"),
        ("Odd", {}, "Odd"),
        ("ExitPlanMode", {"plan": "# Context", "planFilePath": "/d/tasks/1/home/p.md"}, "Shows its plan"),
        ("Write", {"file_path": "/data/tasks/2-a0/home/.claude/plans/odd-name.md"}, "Write its plan"),
        ("Bash", {"command": f"echo {'word ' * 40}"}, f"$ echo {'word ' * 29}word …"),
        ("TodoWrite", {"todos": "nonsense"}, "To do: 0 of 0 done"),
    ],
)  # fmt: skip
def test_a_tool_call_is_one_readable_line(name: str, given: dict[str, object], line: str) -> None:
    assert summarise(name, given) == line


def test_an_edit_shows_what_went_and_what_came() -> None:
    lines = edit_lines("Edit", {"old_string": "a\nb", "new_string": "c"})
    assert [(line.kind, line.text) for line in lines] == [("del", "a"), ("del", "b"), ("add", "c")]


DIFF = """diff --git a/prices.py b/prices.py
index 1..2 100644
--- a/prices.py
+++ b/prices.py
@@ -1,2 +1,2 @@
 def total():
-    return 1
+    return "<b>2</b>"
@@ -40,1 +40,2 @@ def shown():
 x
+-- y
\\ No newline at end of file
diff --git a/old name.py b/new name.py
similarity index 90%
rename from old name.py
rename to new name.py
diff --git a/logo.png b/logo.png
new file mode 100644
Binary files /dev/null and b/logo.png differ
[… the diff is longer than 2000000 bytes and cut here …]
"""


def test_a_diff_is_taken_apart_into_files_and_numbered_lines() -> None:
    prices, renamed, logo = parse_diff(DIFF)
    assert (prices.path, prices.added, prices.removed) == ("prices.py", 2, 1)
    assert [(line.kind, line.old, line.new) for line in prices.lines[:3]] == [
        ("same", 1, 1),
        ("del", 2, None),
        ("add", None, 2),
    ]
    assert [line.text for line in prices.lines if line.kind == "hunk"] == ["def shown():"]
    assert prices.lines[-1].text == "No newline at end of file"
    assert (renamed.path, renamed.status) == ("new name.py", "renamed from old name.py")
    assert logo.status == "new" and logo.is_binary
    assert "cut here" in logo.lines[-1].text


def test_a_diff_is_escaped_on_the_page() -> None:
    html = render_to_string("tasks/_lines.html", {"lines": parse_diff(DIFF)[0].lines})
    assert "&lt;b&gt;2&lt;/b&gt;" in html and "<b>" not in html


def big(name: str, lines: int) -> str:
    body = "".join(f"+{n}\n" for n in range(lines))
    return f"diff --git a/{name} b/{name}\n@@ -0,0 +1,{lines} @@\n{body}"


def test_a_huge_file_is_cut() -> None:
    (file,) = parse_diff(big("x", 7000))
    assert (len(file.lines), file.cut, file.added) == (5000, 2000, 7000)


def test_short_output_stands_open_and_long_output_is_folded() -> None:
    assert not Output.from_text("a\nb\n").folded
    assert Output.from_text("line\n" * 9).folded
    assert Output.from_text("x" * 70_000).cut == 10_000


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0, "0 s"), (8.4, "8 s"), (200, "3 min 20 s"), (7500, "2 h 5 min"), (None, "")]
)
def test_durations_have_two_units(seconds: float | None, shown: str) -> None:
    assert duration_in_words(seconds) == shown


@pytest.mark.parametrize(
    ("age", "shown"),
    [
        (timedelta(seconds=-5), "just now"),
        (timedelta(seconds=50), "1 min ago"),
        (timedelta(minutes=59), "59 min ago"),
        (timedelta(hours=5), "5 h ago"),
        (timedelta(days=3), "3 d ago"),
        (timedelta(days=30), "2026-01-01"),
    ],
)
def test_times_are_relative_until_they_are_old(age: timedelta, shown: str) -> None:
    now = datetime(2026, 1, 31, 12, tzinfo=UTC)
    assert words.ago(now - age, now=now) == shown


def test_counts_and_dollars_are_short() -> None:
    assert [words.count(n) for n in (940, 1000, 12_345, 2_500_000)] == ["940", "1k", "12.3k", "2.5M"]
    assert [dollars(x) for x in (0, 0.0001, 0.0731, 1250)] == ["$0.00", "<$0.01", "$0.07", "$1,250.00"]


def test_a_list_of_things_to_do_is_shown_as_one() -> None:
    todos = [
        {"content": "Plan it", "status": "completed"},
        {"content": "Do it", "status": "in_progress", "activeForm": "Doing it"},
        {"content": "Test it", "status": "pending"},
    ]
    assert shown_input("TodoWrite", {"todos": todos}) == "✓ Plan it\n→ Do it\n· Test it"
    malformed: list[dict[str, Any]] = [{"todos": "none"}, {"todos": [1]}, {"todos": []}, {}]
    for odd in malformed:
        assert "✓" not in shown_input("TodoWrite", odd)


def _hunk(*lines: str) -> FileDiff:
    head = "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1,9 +1,9 @@\n"
    return parse_diff(head + "\n".join(lines) + "\n")[0]


def test_changed_words_are_marked_where_a_line_replaces_one() -> None:
    file = _hunk(" a", "-total = price * 2", "-untouched(1)", "+total = cost * 2", "+untouched(2)", " b")
    _, old, old_too, new, new_too, _ = file.lines
    assert old.parts == (("total = ", False), ("price", True), (" * 2", False))
    assert new.parts == (("total = ", False), ("cost", True), (" * 2", False))
    assert (old_too.parts[1], new_too.parts[1]) == (("1", True), ("2", True))
    assert all("".join(text for text, _ in line.parts) == line.text for line in (old, new, old_too, new_too))


@pytest.mark.parametrize(
    "lines",
    [
        ("-one", "+something else entirely, it seems"),
        ("-a = 1", "+a = 2", "+b = 3"),
        ("-" + "x " * 300, "+" + "x " * 299 + "y"),
        ("+only(added)",),
        ("-only(removed)",),
    ],
)
def test_what_is_replaced_as_a_whole_is_not_marked(lines: tuple[str, ...]) -> None:
    assert [line.parts for line in _hunk(*lines).lines] == [()] * len(lines)


def test_comparing_words_costs_as_much_as_there_are() -> None:
    """R4: agents choose the lines, and a matcher of all words takes the cube of their number."""

    def cost(pairs: int) -> int:
        return steps(lambda: _hunk("-x" + "(," * pairs + "y", "+z" + ",(" * pairs + "w"))

    assert cost(190) < 2.2 * cost(95)


def test_of_a_line_with_many_changes_all_between_the_first_and_the_last_is_marked() -> None:
    old = [f"old_{number}" for number in range(25)]
    new = [*old[:1], *(f"new_{number}" for number in range(1, 24)), *old[24:]]
    same = "s " * 30
    _, added = _hunk(f"-{same}{' '.join(old)} {same}", f"+{same}{' '.join(new)} {same}").lines
    assert [text for text, changed in added.parts if changed] == [" ".join(new[1:24])]


def test_a_list_of_tasks_has_boxes() -> None:
    html = render_markdown("- [ ] one\n- [x] two\n\n1. [X] three\n\n[ ] four")
    assert "<li>☐ one</li>" in html and "<li>☑ two</li>" in html and "<li>☑ three</li>" in html
    assert "<p>[ ] four</p>" in html, "it is no list"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Keep **all** of it", "Keep <strong>all</strong> of it"),
        ("`**kwargs**` and 2**3**4", "<code>**kwargs**</code> and 2**3**4"),
        ("a ** b ** c", "a ** b ** c"),
        ("**<b>**", "<strong>&lt;b&gt;</strong>"),
    ],
)
def test_what_is_bold_in_one_line_is_no_raw_markdown(text: str, shown: str) -> None:
    assert render_inline(text) == shown
