"""What a terminal prints of a task's events."""

from __future__ import annotations

import io
from datetime import timedelta
from typing import Any
from unittest import mock

import pytest
from django.utils import timezone

from tasks_app.cli import event_printer
from tasks_app.cli.event_printer import EventPrinter
from tasks_app.cli.task_session import TaskSession
from tasks_app.cli.terminal import Screen
from tasks_app.core.phases import Phase
from tasks_app.history.events.blocks import NewEvent, append
from tasks_app.models import EventKind, Reason, Run, Setup, SetupOutcome
from tests.factories import RunFactory, UserFactory
from tests.people import acting

pytestmark = pytest.mark.django_db

DENIED = "PreToolUse:Bash hook error: It was not made."


def printed(run: Run, *events: tuple[EventKind, dict[str, Any]]) -> tuple[list[str], EventPrinter]:
    out = io.StringIO()
    append(run, [NewEvent(kind, payload, raw=payload) for kind, payload in events], seq=run.next_seq())
    printer = EventPrinter(run.step.task, Screen(out), from_start=True)
    printer.print_new()
    return out.getvalue().splitlines(), printer


def call(name: str) -> tuple[EventKind, dict[str, Any]]:
    return EventKind.TOOL_USE, {"id": name, "name": "Bash", "input": {"command": name}}


def test_a_failure_names_its_call_if_another_one_stands_above_it() -> None:
    failures = [(EventKind.TOOL_RESULT, {"tool_use_id": of, "text": DENIED, "is_error": True}) for of in "ba"]
    lines, _ = printed(RunFactory.create(), call("a"), call("b"), *failures)
    assert lines[2:] == ["  › $ a", "  › $ b", "    It was not made.", "    $ a:", "    It was not made."]


def test_an_answer_begins_no_run_and_what_people_do_not_see_is_no_action() -> None:
    run = RunFactory.create(number=2, reason=Reason.ANSWER)
    answer = {"number": 1, "question": "Which?", "text": "Red", "by": "Ann", "via": "web"}
    lines, printer = printed(run, (EventKind.ANSWER, answer), call("make"), (EventKind.SYSTEM, {}))
    assert lines[0].strip() == "? Which?" and printer.last_action == "$ make"


def test_the_line_below_does_not_repeat_what_was_asked_and_answered() -> None:
    asking = {"id": "q", "name": "AskUserQuestion", "input": {"questions": [{"question": "Which?"}]}}
    question = (EventKind.QUESTION, {"number": 1, "question": "Which?"})
    answer = (EventKind.ANSWER, {"number": 1, "question": "Which?", "text": "Which?: Red", "by": "Ann"})
    for last in ((EventKind.TOOL_USE, asking), question, answer):
        assert printed(RunFactory.create(), call("make"), last)[1].last_action == ""


def test_a_wait_for_a_limit_is_said_once_although_its_end_comes_nearer() -> None:
    task, out, ann = RunFactory.create().step.task, io.StringIO(), acting(UserFactory.create())
    session = TaskSession(task, ann, Screen(out), may_prompt=False)
    task.resets_at = timezone.now() + timedelta(hours=1)
    for minutes in (0, 5):
        with mock.patch(
            "django.utils.timezone.now", return_value=timezone.now() + timedelta(minutes=minutes)
        ):
            session._note_state(Phase.WAITING_FOR_RESET)
    assert out.getvalue().count("Usage limit reached.") == 1


def test_a_setup_is_printed_while_it_runs_and_how_it_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    run, out = RunFactory.create(), io.StringIO()
    task = run.step.task
    task.setup = {"run": ["make deps", "make build"]}
    task.save()
    Setup.objects.create(task=task, number=1, outcome=SetupOutcome.CRASHED, ended_at=timezone.now())
    printer = EventPrinter(task, Screen(out))

    def news() -> list[str]:
        out.seek(0)
        out.truncate()
        printer.print_new()
        return out.getvalue().splitlines()

    assert news() == []
    setup = Setup.objects.create(task=task, number=2, current="make deps")
    assert news() == ["  · Setup: $ make deps"] and printer.step == "setup is running (0 s): $ make deps"
    Setup.objects.filter(pk=setup.pk).update(started_at=timezone.now() - timedelta(seconds=12))
    assert news() == [] and printer.step == "setup is running (12 s): $ make deps"
    monkeypatch.setattr(event_printer, "_SILENT_SECONDS", 0)
    assert news() == ["  · Setup: is running (12 s)"], "a pipe is not silent for minutes"
    monkeypatch.undo()
    setup.reports, setup.current = [{"command": "make deps"}], ""
    setup.outcome, setup.ended_at = SetupOutcome.FAILED, setup.started_at + timedelta(seconds=80)
    setup.save()
    assert news() == ["  ✗ Setup: failed (1 min 20 s)"]
    reports = [{"command": "make deps"}, {"command": "make build"}]
    done = {"outcome": SetupOutcome.DONE, "ended_at": timezone.now(), "reports": reports}
    Setup.objects.create(task=task, number=3, **done)
    append(run, [NewEvent(EventKind.TEXT, {"text": "Hello."})], seq=run.next_seq())
    lines = news()
    assert lines[:3] == ["  · Setup: $ make deps", "  · Setup: $ make build", "  ✓ Setup: done (0 s)"]
    assert lines[4].startswith(run.step.name) and printer.step.startswith(run.step.name)
