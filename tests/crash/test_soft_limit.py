"""A worker dies around the question at a soft cost limit: it is asked once, and answered once (M8)."""

from __future__ import annotations

from typing import Any

import pytest

from tasks_app.core.phases import Phase
from tasks_app.models import Question, Task, Transition
from tasks_app.services.usage.cost_limits import END, FINISH
from tests.crash.points import SOFT_LIMIT_POINTS
from tests.crash.test_sweep import bury, dies_at
from tests.fake_script import Turn, ask, say
from tests.runner import Runner, runs
from tests.soft_limits import two_steps, without_undo

NOTES = 'Be brief ☃ "; rm -rf /'
ASKING, ENDING, EARLY = SOFT_LIMIT_POINTS
BEFORE = ("claimed", "begun", "run-opened", "agent-ended", "result-stored", "step-done", ASKING)
AFTER = ("claimed", "begun", "run-opened", "event-recorded", "transcript-stored", "agent-ended",
         "result-stored", "step-done", "task-done")  # fmt: skip

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _no_undo(settings: Any) -> None:
    without_undo(settings)


def dies(runner: Runner, task: Task, point: str) -> None:
    assert dies_at(point, lambda: runner.advance(task)) == 137
    bury(task)


def finish(runner: Runner, task: Task, answer: str) -> None:
    """What happens anyway: workers look, and a human answers what is open."""
    for _ in range(3):
        runner.advance(task)
        for question in task.questions.open():
            runner.answer(question, answer, notes=NOTES)


def assert_asked_once(task: Task, end: Phase) -> None:
    task.refresh_from_db()
    question = Question.objects.get()
    assert (task.phase, question.state, question.delivered_at is not None) == (end, "answered", True)
    moves = list(Transition.objects.filter(task=task, step=None).values_list("target", flat=True))
    assert (moves.count(Phase.WAITING_FOR_INPUT), moves.count(end)) == (1, 1)
    assert all(run.outcome and run.ended_at for run in runs(task))


@pytest.mark.parametrize("answer", ["5", END])
@pytest.mark.parametrize("point", BEFORE)
def test_a_death_before_the_question(runner: Runner, point: str, answer: str) -> None:
    task = runner.task([say("Done.")], config=two_steps())
    dies(runner, task, point)
    finish(runner, task, answer)
    assert_asked_once(task, Phase.CANCELLED if answer == END else Phase.DONE)


@pytest.mark.parametrize("point", AFTER)
def test_a_death_after_the_answer(runner: Runner, point: str) -> None:
    task = runner.task([say("Done.")], config=two_steps())
    runner.advance(task)
    runner.answer(task.questions.get(), "5", notes=NOTES)
    dies(runner, task, point)
    finish(runner, task, "5")
    assert_asked_once(task, Phase.DONE)


@pytest.mark.parametrize("point", ["claimed", ENDING])
def test_a_death_while_the_task_is_ended(runner: Runner, point: str) -> None:
    task = runner.task([say("Done.")], config=two_steps())
    runner.advance(task)
    runner.answer(task.questions.get(), END)
    dies(runner, task, point)
    finish(runner, task, END)
    assert_asked_once(task, Phase.CANCELLED)
    assert len(runs(task)) == 1


@pytest.mark.parametrize("point", ["claimed", EARLY])
def test_a_death_while_the_task_is_finished_early(runner: Runner, point: str) -> None:
    task = runner.task([say("Done.")], config=two_steps())
    runner.advance(task)
    runner.answer(task.questions.get(), FINISH)
    dies(runner, task, point)
    finish(runner, task, FINISH)
    assert_asked_once(task, Phase.DONE)
    assert task.finished_early and len(runs(task)) == 1


@pytest.mark.parametrize(
    "point", ["run-opened", "agent-ended", "result-stored", "checked", "step-done", EARLY]
)
def test_a_death_while_the_present_step_is_finished(runner: Runner, point: str) -> None:
    task = runner.task([Turn(calls=(ask("Which?"),)), say("Done.")], config=two_steps())
    runner.advance(task)
    runner.answer(task.questions.get(), "Blue")
    runner.advance(task)
    runner.answer(task.questions.get(kind="cost"), FINISH)
    dies(runner, task, point)
    finish(runner, task, FINISH)
    task.refresh_from_db()
    assert task.finished_early and task.questions.filter(delivered_at=None).count() == 0
    assert [step.phase for step in task.steps.all()] == [Phase.DONE, Phase.PENDING]
