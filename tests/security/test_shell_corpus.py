"""Lines of shell before which `askBefore` must ask, and everyday ones before which it must not (R4).

The table is `tables/shell_lines.txt`. What no reader of a line can see, because it is in a script, an alias
or a program, is not in it: `docs/security.md` says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tasks_app.agent.gate.patterns import command_matches
from tasks_app.agent.gate.shell_words import plain_commands

TABLE = Path(__file__).parent / "tables" / "shell_lines.txt"
_HEADING = re.compile(r"\[(asks|quiet)\] Bash\((.+)\)  # .+")
_WRITTEN = {"\\n": "\n", "\\t": "\t", "\\\\": "\\"}


def table() -> Iterator[tuple[bool, str, str]]:
    """Whether it must ask, the pattern, and the line."""
    asks, pattern = False, ""
    for row in TABLE.read_text(encoding="utf-8").split("\n"):
        if heading := _HEADING.fullmatch(row):
            asks, pattern = heading[1] == "asks", heading[2]
        elif row and pattern:
            yield asks, pattern, re.sub(r"\\[nt\\]", lambda found: _WRITTEN[found[0]], row)


def test_the_corpus_is_large_enough_and_has_no_line_twice() -> None:
    rows = list(table())
    assert len(rows) == len(set(rows))
    assert sum(asks for asks, _, _ in rows) >= 300
    assert sum(not asks for asks, _, _ in rows) >= 80


def test_no_line_that_may_run_a_listed_command_passes_unasked() -> None:
    missed = [line for asks, pattern, line in table() if asks and not command_matches(line, pattern)]
    assert missed == []


def test_no_everyday_line_is_asked_about() -> None:
    held_up = [line for asks, pattern, line in table() if not asks and command_matches(line, pattern)]
    assert held_up == []


def test_a_reader_of_plain_words_alone_would_ask_far_too_often() -> None:
    """Why there is a reader of bash: agents pipe, redirect and use variables all the time."""
    everyday = [line for asks, pattern, line in table() if not asks and pattern == "git push*"]
    asked = {
        "now": sum(command_matches(line, "git push*") for line in everyday),
        "with a reader of plain words alone": sum(plain_commands(line) is None for line in everyday),
    }
    print(f"asked needlessly before {len(everyday)} everyday lines: {asked}")  # noqa: T201
    assert asked["now"] == 0
    assert asked["with a reader of plain words alone"] > len(everyday) / 4
