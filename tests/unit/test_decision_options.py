"""How a typed answer says that it holds for later tasks (D2)."""

from __future__ import annotations

import pytest

from tasks_app.cli.decision_options import answer_and_scope
from tasks_app.services.decisions.answering import Remember


@pytest.mark.parametrize(
    ("typed", "answer", "remember"),
    [
        ("2", "2", Remember()),
        ("2 @project", "2", Remember("project")),
        ("Half up\nfor all. @project", "Half up\nfor all.", Remember("project")),
        ("1 @paths src/**, docs/*.md", "1", Remember("paths", paths=["src/**", "docs/*.md"])),
        ("@/etc/passwd", "@/etc/passwd", Remember()),
        ("@project", "@project", Remember()),
        ("mail me@project", "mail me@project", Remember()),
        ("Use @project for mails", "Use @project for mails", Remember()),
    ],
)
def test_the_end_of_an_answer_says_how_far_it_holds(typed: str, answer: str, remember: Remember) -> None:
    assert answer_and_scope(typed, Remember()) == (answer, remember)
