"""How a typed answer says that it holds for later tasks (D2)."""

from __future__ import annotations

import pytest

from tasks_app.cli.decisions import Marked, marked
from tasks_app.services.decisions.answering import Remember

PROJECT, PATHS = Remember("project"), Remember("paths", paths=["src/**", "docs/*.md"])


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("2", None),
        ("2 @project", Marked("2", "@project", PROJECT, is_apart=False)),
        ("use npm scope @project", Marked("use npm scope", "@project", PROJECT, is_apart=False)),
        ("Half up\nfor all. @project", Marked("Half up\nfor all.", "@project", PROJECT, is_apart=False)),
        ("Half up\nfor all.\n@project\n", Marked("Half up\nfor all.", "@project", PROJECT, is_apart=True)),
        (
            "1 @paths src/**, docs/*.md",
            Marked("1", "@paths src/**, docs/*.md", PATHS, is_apart=False),
        ),
        ("1 @paths", None),
        ("@/etc/passwd", None),
        ("@project", None),
        ("mail me@project", None),
        ("Use @project for mails", None),
    ],
)
def test_d2_the_end_of_an_answer_says_how_far_it_holds(typed: str, found: Marked | None) -> None:
    assert marked(typed) == found
