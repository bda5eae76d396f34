"""What a line of shell runs, told by looking (SPEC P5)."""

from __future__ import annotations

import pytest

from tasks_app.config.validation.runnable import ScriptCall, make_targets, script_called, simple_commands


@pytest.mark.parametrize(
    ("line", "programs"),
    [
        ("npm test", ["npm"]),
        ("a; b & c | d |& e || f && g\nh", list("abcdefgh")),
        ("X=1 Y='a b' run", ["run"]),
        ("( cd a && b )", ["cd", "b"]),
        ("! if a; then b; elif c; then d; fi", ["a", "b", "c", "d", "fi"]),
        ("for x in a b; do c $x; done", ["c", "done"]),
        ("env A=b exec run", ["run"]),
        ("a >out 2>&1 <in &>all b", ["a"]),
        ("a \\\n  b", ["a"]),
        ("a # b; c", ["a"]),
        ("a#b", ["a#b"]),
        ("'a b' c", ["a b"]),
        ("$x y", [None]),
        ("`x` y; z", [None, "z"]),
        ("*.sh", [None]),
        ("", []),
        ("a 'b", []),
        ("f() { a; }; f", []),
        ("case x in a) b;; esac", []),
        ("a <<X\nb\nX", []),
    ],
)
def test_the_programs_of_a_line(line: str, programs: list[str | None]) -> None:
    assert [words[0] for words in simple_commands(line)] == programs


@pytest.mark.parametrize(
    ("raw", "word"),
    [("a'b c'd", "ab cd"), ('"a b"', "a b"), ("a\\ b", "a b"), ("'$x'", "$x"), ('"$x"', None), ("~/x", None)],
)
def test_a_word_without_its_quotes(raw: str, word: str | None) -> None:
    assert simple_commands(f"run {raw}") == [("run", word)]


@pytest.mark.parametrize(
    "line", ["a" * 200_000, "'" * 100_001, "$(" * 50_000, "\\" * 100_001, '"$(' * 30_000]
)
def test_r5_a_long_line_comes_to_an_end(line: str) -> None:
    """A pattern that tries again and again would take hours for these."""
    assert all(simple_commands(line))


@pytest.mark.parametrize(
    ("line", "call"),
    [
        ("npm install", None),
        ("npm run", None),
        ("npm run a b", ScriptCall("a")),
        ("npm -C web run a", ScriptCall("a", "web")),
        ("yarn", None),
        ("yarn install", None),
        ("yarn a", ScriptCall("a", or_program=True)),
        ("yarn --cwd web a", ScriptCall("a", "web", or_program=True)),
        ("pnpm -r test", None),
        ("npm run a --if-present", None),
    ],
)
def test_the_script_that_a_package_manager_runs(line: str, call: ScriptCall | None) -> None:
    assert script_called(line.split()) == call


@pytest.mark.parametrize(
    ("makefile", "targets"),
    [
        ("a b: c\n\td: e\nf::\ng := h\ni = j: k\n# l: m\n", {"a", "b", "f"}),
        ("a \\\n b: c\n", {"a", "b"}),
        ("%.o: %.c\n", None),
        ("$(ALL): x\n", None),
        ("-include x\n", None),
    ],
)
def test_the_targets_of_a_makefile(makefile: str, targets: set[str] | None) -> None:
    assert make_targets(makefile) == targets
