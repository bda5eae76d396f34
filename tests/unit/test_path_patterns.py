"""The language of patterns of files, one table for all who use it (P7, R5)."""

from __future__ import annotations

import pytest

from tasks_app.agent.gate.path_patterns import allowed, matches, may_match_within, path_pattern_fault
from tasks_app.config.faults import ConfigInvalid
from tasks_app.config.pipeline import load_project_config
from tasks_app.core.errors import BadInput
from tasks_app.services.decisions.content import DecisionContent

#: Names as frameworks and people give them.
ODD_NAMES = [
    "app/[id]/page.tsx",
    "app/[...slug]/page.tsx",
    "app/[[...slug]]/page.tsx",
    "app/(group)/page.tsx",
    "app/(.)photo/[id]/page.tsx",
    "app/@modal/page.tsx",
    "src/routes/[id=int]/+page.svelte",
    "app/routes/users.$id.tsx",
    "{{cookiecutter.name}}/setup.py",
    "src/{x}/y.py",
    "docs/my file.md",
    " begins and ends ",
    "wow!.md",
    "a[b",
    "a]b",
    "[",
    "[]",
    "[]abc[]",
    "[!x].md",
    "what?.md",
    "a*b.md",
    "**",
    "back\\slash",
    "a,b;c.md",
    "#1.md",
    "~x",
    "it's “so”.md",
    "c:d.md",
    "-x",
    "é/ü.md",
]


@pytest.mark.parametrize("name", [*ODD_NAMES, "!important.md"])
def test_a_pattern_that_equals_a_name_matches_it(name: str) -> None:
    assert matches(name, name)
    assert matches(name, f"./{name}")
    assert matches(f"{name}/below/it", f"{name}/**")
    assert matches(f"{name}/below/it", f"{name}/")
    assert may_match_within(name, f"{name}/**") and may_match_within("", f"{name}/**")


@pytest.mark.parametrize("name", ODD_NAMES)
def test_such_a_name_can_be_listed_wherever_patterns_are(name: str) -> None:
    assert path_pattern_fault(name) is None
    written = "'" + name.replace("'", "''") + "'"
    text = (
        "pipelines:\n  default:\n    - name: do\n      command: implement\n"
        f"      fileAccess: {{allowWrite: [{written}]}}\n"
    )
    (step,) = load_project_config(text).pipelines[0].steps
    assert step.allow_write == (name,)
    if name == name.strip():
        assert DecisionContent("Yes.", scope="paths", paths=[name]).checked().paths == (name,)


def test_a_name_with_an_exclamation_mark_first_is_written_with_its_folder() -> None:
    """`!x` is an exception elsewhere: the message says how to write the name."""
    assert "./!" in str(path_pattern_fault("!important.md"))
    assert path_pattern_fault("./!important.md") is None
    assert matches("!important.md", "./!important.md")
    with pytest.raises(ConfigInvalid):
        load_project_config(
            "pipelines: {a: [{name: b, command: implement, fileAccess: {allowWrite: ['!x']}}]}"
        )
    with pytest.raises(BadInput):
        DecisionContent("Yes.", scope="paths", paths=["!x"]).checked()


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("docs/*.md", "docs/a.md", True),
        ("docs/*.md", "docs/a/b.md", False),
        ("docs/**", "docs/a/b.md", True),
        ("docs/", "docs/a/b.md", True),
        ("docs", "docs/a", False),
        ("**/*.md", "a.md", True),
        ("**/*.md", "a/b/c.md", True),
        ("?.md", "a.md", True),
        ("?.md", "ab.md", False),
        ("v[0-9].md", "v7.md", True),
        ("v[0-9].md", "v[0-9].md", True),
        ("v[!0-9].md", "vx.md", True),
        ("v[!0-9].md", "v7.md", False),
        ("[*].md", "*.md", True),
        ("[*].md", "a.md", False),
        ("[?].md", "?.md", True),
        ("app/[id]/*.tsx", "app/[id]/page.tsx", True),
        ("app/[id]/*.tsx", "app/i/page.tsx", True),
        ("app/[id]/*.tsx", "app/[di]/page.tsx", False),
        ("app/[[]id]/*.tsx", "app/[id]/page.tsx", True),
        ("app/[[]id]/*.tsx", "app/i/page.tsx", False),
        ("app/[...slug]/**", "app/[...slug]/a/b.ts", True),
        ("app/[[...slug]]/**", "app/[[...slug]]/a/b.ts", True),
        ("app/[[...slug]]/**", "app/[...slug]/a/b.ts", False),
        ("app/(group)/*", "app/(group)/a.ts", True),
        ("app/(group)/*", "app/group/a.ts", False),
        ("src/{a,b}.ts", "src/a.ts", False),
        ("src/{a,b}.ts", "src/{a,b}.ts", True),
        ("a b/*.md", "a b/c d.md", True),
        ("x/**/y", "x/y", True),
        ("x/**/y", "x/a/b/y", True),
    ],
)
def test_what_patterns_mean(pattern: str, path: str, expected: bool) -> None:
    assert matches(path, pattern) is expected
    assert allowed(path, ["nothing", pattern]) is expected
    if expected:
        folder = path.rpartition("/")[0]
        assert may_match_within(folder, pattern) and may_match_within("", pattern)


@pytest.mark.parametrize(
    ("folder", "pattern", "expected"),
    [
        ("secret", "secret/**", True),
        ("secret/a", "secret/**", True),
        ("secret/a", "secret/*", False),
        ("secre", "secret/**", False),
        ("src", "secret/**", False),
        ("src", "src/secret/*", True),
        ("src/a", "**/*.key", True),
        ("src/a", "src/*/key", True),
        ("src/a/b", "src/*/key", False),
        ("src", "key", False),
    ],
)
def test_which_folders_may_have_a_matching_file(folder: str, pattern: str, expected: bool) -> None:
    assert may_match_within(folder, pattern) is expected


@pytest.mark.parametrize(
    "pattern", ["/etc/passwd", "~/x", "../x", "a/../b", "", " ", "a\nb", "a\0b", "C:\\x"]
)
def test_what_is_no_pattern_of_the_repository(pattern: str) -> None:
    assert path_pattern_fault(pattern)
