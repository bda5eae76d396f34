"""`cat-herder inbox` and `open`, `review --diff` and `status` on a narrow terminal (P12, H5)."""

from __future__ import annotations

import io
import os
import webbrowser
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from django.utils import timezone

from tasks_app.cli import tables
from tasks_app.cli.terminal import Screen
from tasks_app.core.phases import Phase
from tasks_app.core.text import strip_controls
from tasks_app.models import Question
from tests.factories import MembershipFactory, QuestionFactory, TaskFactory, UserFactory
from tests.integration.conftest import Manage

pytestmark = pytest.mark.django_db

Type = Callable[[str], None]


@pytest.fixture
def typed() -> Iterator[Type]:
    """Sets what stdin has."""
    before, (out, into) = os.dup(0), os.pipe()
    os.dup2(out, 0)

    def type_in(text: str) -> None:
        os.write(into, text.encode())
        os.close(into)

    yield type_in
    os.dup2(before, 0)
    for descriptor in (before, out):
        os.close(descriptor)


def asked(minutes: int, **facts: object) -> Question:
    now = timezone.now()
    question: Question = QuestionFactory.create(asked_at=now - timedelta(minutes=minutes), **facts)
    MembershipFactory.create(
        project=question.task.project, user=UserFactory.create(username=f"m{minutes}"), role="member"
    )
    return question


@pytest.fixture
def ann() -> None:
    UserFactory.create(username="ann", is_superuser=True)


def test_the_inbox_walks_all_questions_from_the_oldest_and_an_empty_line_leaves_one(
    manage: Manage, typed: Type, ann: None
) -> None:
    newest, oldest, middle = asked(1), asked(30), asked(20)
    typed("2\n\nBankers\n")
    code, out, _ = manage("inbox", "--as", "ann")
    states = [(one.pk, one.state, one.answer_text) for one in Question.objects.order_by("asked_at")]
    assert states == [
        (oldest.pk, "answered", "Half up"),
        (middle.pk, "open", ""),
        (newest.pk, "answered", "Bankers"),
    ]
    assert code == 3 and "3 open questions" in out and "2 answered, 1 still open." in out


def test_the_end_of_the_input_leaves_the_rest_open(manage: Manage, typed: Type, ann: None) -> None:
    asked(1), asked(2)
    typed("1\n")
    code, out, _ = manage("inbox", "--as", "ann")
    assert code == 3 and "1 answered, 1 still open." in out


def test_the_inbox_has_what_the_user_may_answer(manage: Manage, ann: None) -> None:
    mine, other = asked(1), asked(2)
    code, out, _ = manage("inbox", "--no-input", "--as", "m1")
    shown = [one.pk for one in (mine, other) if f"cat-herder answer {one.pk} " in out]
    assert (code, shown) == (3, [mine.pk])
    UserFactory.create(username="eve")
    assert manage("inbox", "--as", "eve")[:2] == (0, "No open questions.\n")


def test_open_prints_the_address_and_opens_it_only_where_there_is_a_display(
    manage: Manage, ann: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    question = asked(1)
    task = question.task
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    page = f"http://127.0.0.1:8000/tasks/{task.pk}/"
    for words in (("open", task.pk), ("status", task.pk, "--web")):
        assert manage(*words, *(["--as", "ann"] if words[0] == "open" else []))[1] == f"{page}\n"
    assert opened == []
    monkeypatch.setenv("DISPLAY", ":0")
    assert manage("open", f"question:{question.pk}", "--as", "ann")[0] == 0
    assert manage("inbox", "--web")[1] == "http://127.0.0.1:8000/inbox/\n"
    assert [url.rpartition("8000")[2] for url in opened] == [f"/questions/{question.pk}/", "/inbox/"]


class Narrow(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_each_task_is_one_line_and_only_its_title_is_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "70")
    monkeypatch.setenv("TERM", "xterm")
    long = TaskFactory.create(title="Round " * 30, phase=Phase.WAITING_FOR_INPUT, project__name="billing")
    question = QuestionFactory.create(task=long)
    out = Narrow()
    tables.show_tasks([long, TaskFactory.create()], Screen(out, no_color=True))
    _, row, second = out.getvalue().splitlines()
    row = strip_controls(row)
    assert len(row) <= 70 and "…  billing " in row and f" {question.pk} " in row
    assert "not started" in second


def test_markdown_is_rendered_on_a_terminal_only_and_without_links_that_hide_where_they_lead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    text = "**Done**, see [here](https://example.org/x)."
    for out, expected in ((Narrow(), "Done, see here (https://example.org/x)."), (io.StringIO(), text)):
        Screen(out, no_color=True).say_markdown(text, indent=2)
        assert strip_controls(out.getvalue()).strip() == expected


def test_review_prints_the_diff(manage: Manage, ann: None, tmp_path: Path) -> None:
    task = TaskFactory.create(phase=Phase.DONE)
    code, out, _ = manage("review", task.pk, "--diff", "--as", "ann")
    assert (code, out) == (0, f"Task {task.pk} has changed no file.\n")
