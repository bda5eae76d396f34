"""A worker dies at each named point, on SQLite and on PostgreSQL; its successor reaches the very same end.

The worker is a fork of this process and its agent the quick one, so that both databases can be swept at
little cost; `test_crash_points.py` sweeps the same points with the real program, on SQLite.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connections
from django.utils import timezone

from tasks_app.core.phases import Phase
from tasks_app.engine import crashpoints
from tasks_app.models import Change, Event, Outcome, Question, SessionEntry, Task, Transition
from tests.crash.points import POINTS
from tests.fake_script import Turn, ask, say, write
from tests.runner import Runner, diff_of, file_in, runs

CHECKED = """\
pipelines:
  default:
    - {name: do, command: implement, check: {type: shell, command: test -e after.txt}}
    - {name: review, command: self-review}
"""
ANSWER = 'Blue ☃ "; rm -rf /'
STORY = {
    "do": [
        Turn("First a file.", (write("before.txt", "before\n"),)),
        Turn("Now a question.", (ask("Which colour?"),)),
        Turn(calls=(write("after.txt", "after\n"),)),
        say("Painted. {result}"),
    ],
    "review": [Turn("Looks good.", (write("review.txt", "good\n"),)), say("Reviewed.")],
}
BEFORE = ("claimed", "begun", "run-opened", "event-recorded", "ask-recorded", "transcript-stored",
          "asked", "agent-ended", "halted", "work-recorded")  # fmt: skip
AFTER = ("claimed", "begun", "run-opened", "event-recorded", "transcript-stored", "answer-recorded",
         "agent-ended", "result-stored", "work-recorded", "checked", "step-done", "task-done")  # fmt: skip


def dies_at(point: str, work: Callable[[], object]) -> int:
    """Do the work in a fork that dies at the point; its exit code, -9 for a point that was never reached."""
    connections.close_all()  # a connection cannot be shared with a fork
    child = os.fork()
    if child == 0:
        crashpoints._armed = point
        try:
            work()
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def bury(task: Task) -> None:
    """The dead worker's lease has run out."""
    past = timezone.now() - timedelta(seconds=1)
    Task.objects.filter(pk=task.pk).exclude(lease_expires=None).update(lease_expires=past)


def finish(runner: Runner, task: Task) -> None:
    """What happens anyway: workers look, and a human answers what is open, once."""
    for _ in range(3):
        runner.advance(task)
        runner.answer_all(task, ANSWER)


def times_told() -> int:
    """How often the answer stands in the step's session, as a result or in a prompt."""
    entries = SessionEntry.objects.filter(entry__type="user").values_list("entry", flat=True)
    asked = [entry for entry in entries if 'the step "review"' not in str(entry["message"]["content"])]
    return sum(_words(entry["message"]["content"]).count(ANSWER) for entry in asked)


def _words(content: Any) -> str:
    return (
        content
        if isinstance(content, str)
        else "".join(str(b.get("content", b.get("text"))) for b in content)
    )


def assert_the_end_is_the_same(task: Task) -> None:
    task.refresh_from_db()
    assert (task.phase, task.failure) == (Phase.DONE, "")
    (question,) = Question.objects.all()
    assert (question.state, question.delivered_at is not None) == ("answered", True)
    assert times_told() == 1
    for name in ("before", "after"):
        assert file_in(task, f"{name}.txt").read_text() == f"{name}\n"
        assert f"+{name}" in diff_of(task)
    assert all(run.outcome and run.ended_at for run in runs(task))
    assert Outcome.FAILED not in {run.outcome for run in runs(task)}
    places = list(Event.objects.values_list("run", "seq"))
    assert len(places) == len(set(places))
    moves = list(Transition.objects.filter(task=task, step=None).values_list("target", flat=True))
    assert moves.count(Phase.WAITING_FOR_INPUT) == 1 and moves.count(Phase.DONE) == 1
    assert Change.objects.filter(task=task).exists()


def test_every_point_is_swept() -> None:
    assert set(BEFORE) | set(AFTER) == set(POINTS)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("point", BEFORE)
def test_a_death_before_the_question(runner: Runner, point: str) -> None:
    """R1, R2."""
    task = runner.task(STORY, config=CHECKED)
    assert dies_at(point, lambda: runner.advance(task)) == 137
    bury(task)
    finish(runner, task)
    assert_the_end_is_the_same(task)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("point", AFTER)
def test_a_death_after_the_answer(runner: Runner, point: str) -> None:
    """R1, R2."""
    task = runner.task(STORY, config=CHECKED)
    runner.advance(task)
    runner.answer_all(task, ANSWER)
    assert dies_at(point, lambda: runner.advance(task)) == 137
    bury(task)
    finish(runner, task)
    assert_the_end_is_the_same(task)
