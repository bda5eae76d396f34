"""A running task looks alive: how long it works, its last output, its command, its steps (W2, W3)."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from django.utils.html import strip_tags

from tasks_app.core.phases import Phase
from tasks_app.models import Event, EventKind, Outcome, Run, Sequence, Task
from tasks_app.web.rendering.activity import last_lines
from tests.browser import signed_in
from tests.factories import RunFactory, SequenceFactory, TaskFactory, UserFactory

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def stopped_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    now = timezone.now()
    monkeypatch.setattr(timezone, "now", lambda: now)


@pytest.fixture
def browser() -> Client:
    return signed_in(UserFactory.create(is_superuser=True, is_staff=True))


@pytest.fixture
def sequence() -> Sequence:
    return SequenceFactory.create()


@pytest.fixture
def run(sequence: Sequence) -> Run:
    """A run that began 2 min ago, in a task that has worked for 4 min and waited for 6 min."""
    task = TaskFactory.create(
        phase=Phase.RUNNING,
        project=sequence.project,
        sequence=sequence,
        started_at=timezone.now() - timedelta(minutes=10, seconds=5),
        paused_seconds=360,
        steps=("plan", "implement", "review"),
    )
    task.steps.filter(position=1).update(phase=Phase.DONE)
    task.steps.filter(position=2).update(phase=Phase.RUNNING)
    made = RunFactory.create(task=task, step=task.steps.get(position=2))
    made.started_at = timezone.now() - timedelta(minutes=2, seconds=5)
    made.save()
    return made


def say(run: Run, kind: EventKind, seconds_ago: int, **payload: Any) -> None:
    at = timezone.now() - timedelta(seconds=seconds_ago)
    Event.objects.create(run=run, seq=run.next_seq(), kind=kind, at=at, payload=payload)


def call(run: Run, name: str, command: str, *, seconds_ago: int) -> None:
    say(run, EventKind.TOOL_USE, seconds_ago, id=name, name="Bash", input={"command": command})


def words(client: Client, address: str) -> str:
    return " ".join(strip_tags(client.get(address).text).split())


def activity(client: Client, task: Task) -> str:
    return words(client, reverse("task_activity", args=[task.pk]))


def places(task: Task) -> dict[str, str]:
    """Return the pages that show the task."""
    return {
        "header": reverse("task_header", args=[task.pk]),
        "now": reverse("tasks"),
        "all": reverse("tasks_all"),
        "sequence": reverse("sequence", args=[task.sequence_id]),
    }


def test_every_list_and_the_header_say_what_runs_since_when(
    browser: Client, run: Run, subtests: pytest.Subtests
) -> None:
    call(run, "one", "make lint", seconds_ago=90)
    say(run, EventKind.TOOL_RESULT, 80, tool_use_id="one", text="fine")
    call(run, "two", "make test", seconds_ago=12)
    for name, address in places(run.step.task).items():
        with subtests.test(name):
            said = words(browser, address)
            assert "for 2 min 5 s · last output 12 s ago" in said
            assert "$ make test 12 s" in said
            assert "$ make lint" not in said


def test_durations_that_grow_carry_their_start_and_the_page_its_time(browser: Client, run: Run) -> None:
    page = browser.get(reverse("task", args=[run.step.task_id])).text
    made = re.search(r'<html [^>]*data-now="([^"]+)"', page)
    assert made and abs(datetime.fromisoformat(made[1]) - timezone.now()) < timedelta(minutes=1)
    assert 'data-since="' in page.split('id="timeline"')[1]


def test_of_several_calls_the_last_one_without_a_result_is_shown(browser: Client, run: Run) -> None:
    call(run, "one", "make slow", seconds_ago=30)
    call(run, "two", "make quick", seconds_ago=29)
    say(run, EventKind.TOOL_RESULT, 20, tool_use_id="two", text="fine")
    assert "$ make slow 30 s" in activity(browser, run.step.task)
    say(run, EventKind.TOOL_RESULT, 3, tool_use_id="one", text="fine")
    assert activity(browser, run.step.task) == "for 2 min 5 s · last output 3 s ago"


def test_after_a_run_no_command_is_shown_but_its_checks_are(browser: Client, run: Run) -> None:
    call(run, "one", "make test", seconds_ago=30)
    run.outcome, run.ended_at = Outcome.FINISHED, timezone.now()
    run.save()
    assert activity(browser, run.step.task).endswith("last output 30 s ago · checks are running")
    run.checks = [{"check": "make test", "passed": True}]
    run.save()
    assert activity(browser, run.step.task) == "", "the next run has not begun"


def test_a_task_that_does_not_run_says_nothing(browser: Client, run: Run) -> None:
    task = run.step.task
    Task.objects.filter(pk=task.pk).update(phase=Phase.FAILED)
    assert activity(browser, task) == ""
    Task.objects.filter(pk=task.pk).update(phase=Phase.RUNNING)
    Run.objects.all().delete()
    assert activity(browser, task) == "for 4 min 5 s"


def test_the_end_of_a_run_is_no_line_of_its_agent(run: Run) -> None:
    say(run, EventKind.TEXT, 3, text="Painted.")
    say(run, EventKind.RESULT, 2, subtype="success", is_error=False)
    assert [line for _, line in last_lines(run)] == ["Painted."]
    say(run, EventKind.RESULT, 1, subtype="error_max_turns", is_error=True, text="No turn is left.")
    assert [line for _, line in last_lines(run)] == ["Painted.", "No turn is left."]


def test_what_came_before_a_question_ends_with_its_call(run: Run) -> None:
    """The question itself stood there, and calls of the same message that were made after it."""
    say(run, EventKind.TEXT, 3, text="I look first.")
    say(run, EventKind.TOOL_USE, 2, id="asks", name="AskUserQuestion", input={})
    say(run, EventKind.TOOL_USE, 1, id="looks", name="Bash", input={"command": "ls"})
    assert [line for _, line in last_lines(run, before_call="asks")] == ["I look first."]


def test_the_steps_of_a_task_stand_in_every_row(browser: Client, run: Run, subtests: pytest.Subtests) -> None:
    task = run.step.task
    shown = [("done", "plan"), ("running", "implement"), ("not started", "review")]
    for name, address in {**places(task), "project": reverse("project", args=[task.project_id])}.items():
        with subtests.test(name):
            strip = re.search(r'<ol class="progress"[^>]*>(.*?)</ol>', browser.get(address).text)
            assert strip
            assert re.findall(r'aria-label="([^"]+)".*?<span>([^<]+)</span>', strip[1]) == shown


def test_what_the_last_run_said_is_not_about_now(browser: Client, run: Run) -> None:
    """After Request changes the header said “last output 14 min ago” of a run that had ended."""
    say(run, EventKind.TEXT, 840, text="Done.")
    assert "last output" in activity(browser, run.step.task)
    Run.objects.filter(pk=run.pk).update(ended_at=timezone.now(), outcome="finished", checks=[])
    assert activity(browser, run.step.task) == ""
