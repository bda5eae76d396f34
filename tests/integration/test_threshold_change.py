"""Changing how readily a task's agent asks, while it exists (H1, H7, H13)."""

from __future__ import annotations

import pytest

from tasks_app.core.errors import BadInput, NotAllowed
from tasks_app.core.phases import Phase
from tasks_app.models import Action, AuditEntry, Change, ChangeKind, Role, Run, Task
from tasks_app.services.tasks import change_threshold
from tests.factories import MembershipFactory, TaskFactory
from tests.fake_script import Turn, ask, say
from tests.people import acting
from tests.runner import Runner, results, run_after, runs, step

ASKS = [Turn("I ask.", (ask("Red?"),)), say("Painted. {result}")]


def test_a_waiting_agent_gets_the_new_threshold_with_the_answer(runner: Runner) -> None:
    """H7: the same session goes on; what the human wrote stays as it was written."""
    task = runner.task(ASKS, threshold=5)
    runner.advance(task)
    change_threshold(task, 1, by=acting(runner.user))
    question = task.questions.get()
    runner.answer(question, "Blue")
    assert runner.advance(task).phase == Phase.DONE
    first, second = runs(task)
    assert first.session_id == second.session_id and (first.threshold, second.threshold) == (5, 1)
    told = results(task)[-1]
    assert "Blue" in told and "the interaction threshold is now 1" in told and "last resort" in told
    question.refresh_from_db()
    assert question.answer_text == "Blue"


def test_an_answer_still_arrives_when_nobody_may_be_asked_any_more(runner: Runner) -> None:
    """R1"""
    task = runner.task(ASKS, threshold=5)
    runner.advance(task)
    change_threshold(task, 0, by=acting(runner.user))
    runner.answer(task.questions.get(), "Blue")
    assert runner.advance(task).phase == Phase.DONE
    assert "Blue" in results(task)[-1] and "nobody can be asked" in results(task)[-1]


def test_a_new_session_knows_only_the_new_threshold(runner: Runner) -> None:
    """H13: of 0 its prompt has no word."""
    task = runner.task([say("Done.")], threshold=3)
    change_threshold(task, 0, by=acting(runner.user))
    runner.advance(task)
    (run,) = runs(task)
    assert run.threshold == 0 and "threshold" not in run.prompt and "cat-herder ask" not in run.prompt


def test_a_session_that_resumes_by_prompt_gets_the_answer_once(runner: Runner) -> None:
    checked = (
        "pipelines:\n  default:\n    - name: do\n      command: self\n"
        '      check: {type: shell, command: "test -e never"}\n      retry: 2\n'
    )
    task = runner.task([say("Done.")], config=checked, threshold=0)
    seen: list[int] = []

    def looked(prompt: str) -> list[Turn]:
        if not seen:  # during the first run
            change_threshold(Task.objects.get(pk=task.pk), 4, by=acting(runner.user))
        seen.append(len(prompt))
        return [say("Done.")]

    runner.agent = type(runner.fake)(looked)
    runner.advance(task)
    first, second, third = runs(task)
    assert (first.threshold, second.threshold, third.threshold) == (0, 4, 4)
    assert "threshold" not in first.prompt and "threshold" not in third.prompt
    assert "the interaction threshold is now 4" in second.prompt and "cat-herder ask" in second.prompt


def test_an_agent_that_died_before_it_got_the_new_threshold_gets_it_again(runner: Runner) -> None:
    task = runner.task(ASKS, threshold=5)
    runner.advance(task)
    change_threshold(task, 2, by=acting(runner.user))
    runner.answer(task.questions.get(), "Blue")
    task.refresh_from_db()
    planned = run_after(step(task))
    (permission,) = planned.permissions.values()
    assert "threshold is now 2" in permission.context
    run = runs(task)[0]
    type(run).objects.create(
        step=run.step, number=2, reason="answer", session_id=run.session_id, threshold=2, outcome="crashed"
    )
    (permission,) = run_after(step(task)).permissions.values()
    assert "threshold is now 2" in permission.context


def test_a_question_of_a_run_that_died_is_found_although_nobody_may_be_asked_now(runner: Runner) -> None:
    """R1: what the agent asked, it asked under the threshold of its run."""
    task = runner.task(ASKS, threshold=5)
    runner.advance(task)
    task.questions.all().delete()
    Run.objects.update(outcome="", ended_at=None)
    Task.objects.update(phase=Phase.RUNNING)
    task.steps.update(phase=Phase.RUNNING)
    task.refresh_from_db()
    change_threshold(task, 0, by=acting(runner.user))
    assert runner.advance(task).phase == Phase.WAITING_FOR_INPUT
    assert task.questions.get().headline == "Red?"


# ---- the action ----


@pytest.mark.django_db
@pytest.mark.parametrize("phase", list(Phase))
def test_it_can_be_changed_in_every_phase_and_is_recorded(phase: Phase) -> None:
    task = TaskFactory.create(phase=phase, threshold=3)
    member = MembershipFactory.create(project=task.project).user
    change_threshold(task, 0, by=acting(member))
    change_threshold(task, 0, by=acting(member))
    task.refresh_from_db()
    assert task.threshold == 0
    entry = AuditEntry.objects.get()
    assert (entry.action, entry.actor, entry.detail) == (Action.TASK_CHANGED, member, {"threshold": [3, 0]})
    assert [change.kind for change in Change.objects.all()] == [ChangeKind.TASK]


@pytest.mark.django_db
@pytest.mark.parametrize("value", [-1, 6, "high", 2.5, True, None])
def test_anything_but_a_level_is_refused_by_name(value: object) -> None:
    task = TaskFactory.create(threshold=3)
    member = MembershipFactory.create(project=task.project).user
    with pytest.raises(BadInput, match="threshold: the threshold must be a whole number from 0 to 5"):
        change_threshold(task, value, by=acting(member))  # type: ignore[arg-type]


@pytest.mark.django_db
def test_a_viewer_changes_nothing() -> None:
    task = TaskFactory.create(threshold=3)
    viewer = MembershipFactory.create(project=task.project, role=Role.VIEWER).user
    with pytest.raises(NotAllowed):
        change_threshold(task, 0, by=acting(viewer))
