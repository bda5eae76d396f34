"""Which words of a text may be paths: decisions cite them, and similar questions differ by them (D4, D6)."""

from __future__ import annotations

import time

import pytest

from tasks_app.core.named_paths import paths_named_in
from tasks_app.core.similar_questions import paths_in


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("Change src/api/orders.py, then docs/x.md.", ["src/api/orders.py", "docs/x.md"]),
        ("All of src/** and lib/*.py?", ["src/**", "lib/*.py"]),
        ("Cargo.lock or `.github/workflows/ci.yml`", ["Cargo.lock", ".github/workflows/ci.yml"]),
        ("café/menü.txt, café/menü.txt", ["café/menü.txt"]),
        ("May I index orders.customer_id?", []),
        ("Wait... then go on.", []),
        ("Is ./src/a.py or src/./a.py meant?", ["src/a.py"]),
        ("Read ../secret.txt, a/../../b.py and docs/.. first, or /etc/passwd.", ["etc/passwd"]),
        (f"Then {'x' * 1_000}.py.", []),
        (
            "Is app/[id]/page.tsx (or `app/[[...slug]]/page.tsx`) meant?",
            ["app/[id]/page.tsx", "app/[[...slug]]/page.tsx"],
        ),
        ("See (group)/layout.tsx and (src/a.py).", ["(group)/layout.tsx", "src/a.py"]),
        ("src/{x}/y.py, {{cookiecutter.name}}/setup.py", ["src/{x}/y.py", "{{cookiecutter.name}}/setup.py"]),
        ("Change !important.md, wow!.md and routes/$id.tsx!", ["!important.md", "wow!.md", "routes/$id.tsx"]),
        ("It is in `docs/my file (new).md`.", ["docs/my", "docs/my file (new).md"]),
        ("The guide is [here](docs/x.md).", ["docs/x.md"]),
    ],
    ids=[
        "files",
        "globs",
        "endings",
        "letters",
        "attribute",
        "sentence",
        "here",
        "leading out",
        "long",
        "brackets",
        "parentheses",
        "braces",
        "signs",
        "blanks",
        "link",
    ],
)
def test_words_that_may_be_paths(text: str, paths: list[str]) -> None:
    assert paths_named_in([text]) == paths
    assert paths_in([text]) == {path.casefold().strip("./") for path in paths}, "one meaning for both"


@pytest.mark.parametrize(
    "text",
    [
        "a" * 20_000,
        "." * 20_000,
        "-" * 19_999 + ".",
        "a/" * 10_000,
        "[" * 20_000,
        "[a]" * 7_000,
        "[a" * 10_000,
        "(a)(" * 5_000,
        "`a/" * 7_000,
    ],
)
def test_long_words_take_no_time(text: str) -> None:
    began = time.process_time()
    paths_named_in([text] * 10)
    assert time.process_time() - began < 2
