"""What was used and how long it took (P11, H11)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from tasks_app.core.phases import Phase
from tasks_app.core.types import Usage
from tasks_app.history.transitions import move, paused_until_now
from tasks_app.models import Outcome, Run, Step, Task, Transition
from tasks_app.services.usage import statistics as stats
from tasks_app.services.usage.usage import By, usage_of_all_time
from tasks_app.web.tasks.details import TaskDetails
from tests.factories import RunFactory, SequenceFactory, TaskFactory, UserFactory
from tests.people import acting

pytestmark = pytest.mark.django_db

HOUR = 3600.0


def ago(hours: float) -> datetime:
    return timezone.now() - timedelta(hours=hours)


def used(step: Step, number: int = 1, *, model: str = "opus", tokens: int = 1, cost: float = 0.5) -> Run:
    names = ("input_tokens", "output_tokens", "cache_write_tokens", "cache_read_tokens")
    return RunFactory.create(
        step=step, number=number, model=model, cost_usd=cost, **dict.fromkeys(names, tokens)
    )


def moved(thing: Task | Step, *moves: tuple[Phase, float]) -> None:
    """The thing's history: to which phase, and how many hours ago."""
    where: dict[str, Any] = (
        {"task": thing} if isinstance(thing, Task) else {"task": thing.task, "step": thing}
    )
    for target, hours in moves:
        row = Transition.objects.create(**where, source=Phase.PENDING, target=target)
        Transition.objects.filter(pk=row.pk).update(at=ago(hours))


def near(seconds: float) -> Any:
    return pytest.approx(seconds, abs=60)


class TestUsage:
    def test_usages_add_up(self) -> None:
        assert Usage(1, 2, 3, 4, 0.5) + Usage(10, 20, 30, 40, 0.25) == Usage(11, 22, 33, 44, 0.75)

    def test_cached_tokens_are_read_tokens_too(self) -> None:
        assert Usage(1, 2, 3, 4).read_tokens == 8
        assert Usage(cache_read_tokens=1).any and not Usage().any

    def test_usage_of_a_task_is_that_of_all_its_runs_by_model(self) -> None:
        task = TaskFactory.create()
        plan, implement = task.steps.all()
        used(plan, model="opus")
        used(implement, model="haiku", tokens=5)
        used(implement, 2, model="opus", tokens=10)
        used(TaskFactory.create().steps.get(name="plan"), tokens=1000)
        metrics = stats.of_task(task)
        assert metrics.usage == Usage(16, 16, 16, 16, 1.5)
        assert metrics.by_model == {"opus": Usage(11, 11, 11, 11, 1.0), "haiku": Usage(5, 5, 5, 5, 0.5)}
        steps = stats.of_steps([plan, implement])
        assert steps[plan.pk].usage == Usage(1, 1, 1, 1, 0.5)
        assert steps[implement.pk].usage == Usage(15, 15, 15, 15, 1.0)

    def test_of_a_sequence_is_that_of_all_its_tasks(self) -> None:
        sequence = SequenceFactory.create()
        for model in ("opus", "haiku", "opus"):
            used(
                TaskFactory.create(sequence=sequence, file=f"{model}-{Task.objects.count()}").steps.all()[0],
                model=model,
            )
        metrics = stats.of_sequence(sequence)
        assert metrics.usage == Usage(3, 3, 3, 3, 1.5)
        assert metrics.by_model["opus"] == Usage(2, 2, 2, 2, 1.0)

    def test_by_model_user_and_project(self) -> None:
        ann = UserFactory.create(username="ann")
        hers = TaskFactory.create(created_by=ann)
        used(hers.steps.all()[0], model="opus")
        used(TaskFactory.create(project=hers.project).steps.all()[0], model="")
        one, two = Usage(1, 1, 1, 1, 0.5), Usage(2, 2, 2, 2, 1.0)
        assert usage_of_all_time(By.MODEL) == {"opus": one, "": one}
        assert usage_of_all_time(By.USER) == {"ann": one, "": one}
        assert usage_of_all_time(By.PROJECT) == {hers.project.name: two}
        assert stats.usage_of(Run.objects.all()) == two
        assert stats.usage_of(Run.objects.none()) == Usage()

    def test_nothing_was_used_before_the_first_run(self) -> None:
        metrics = stats.of_task(TaskFactory.create())
        assert (metrics.usage, metrics.by_model, metrics.duration.total) == (Usage(), {}, None)
        assert metrics.duration.working is None


class TestDurations:
    """H11."""

    def test_a_task_that_waits_counts_up_to_now(self) -> None:
        task = TaskFactory.create(started_at=ago(10), phase=Phase.WAITING_FOR_INPUT, paused_seconds=HOUR)
        moved(task, (Phase.RUNNING, 10), (Phase.WAITING_FOR_INPUT, 9), (Phase.RUNNING, 8))
        moved(task, (Phase.WAITING_FOR_INPUT, 3))
        duration = stats.of_task(task).duration
        assert duration.total == near(10 * HOUR)
        assert duration.paused == near(4 * HOUR)
        assert duration.working == near(6 * HOUR)

    @pytest.mark.parametrize("phase", [Phase.WAITING_FOR_RESET, Phase.INTERRUPTED])
    def test_limits_and_interruptions_are_pauses(self, phase: Phase) -> None:
        task = TaskFactory.create(started_at=ago(5), phase=phase)
        moved(task, (phase, 2))
        assert stats.of_task(task).duration.paused == near(2 * HOUR)
        assert paused_until_now(task) == near(2 * HOUR)

    def test_a_task_that_is_queued_again_does_not_work(self) -> None:
        """Nor while it then runs is that time counted as work."""
        task = TaskFactory.create(started_at=ago(5), phase=Phase.PENDING, paused_seconds=HOUR)
        moved(task, (Phase.RUNNING, 5), (Phase.WAITING_FOR_INPUT, 4), (Phase.PENDING, 3))
        assert stats.of_task(task).duration.working == near(HOUR)
        move(task, Phase.RUNNING)
        task.refresh_from_db()
        assert task.paused_seconds == near(4 * HOUR)
        assert stats.of_task(task).duration.working == near(HOUR)

    def test_a_running_task_does_not_wait(self) -> None:
        task = TaskFactory.create(started_at=ago(5), phase=Phase.RUNNING, paused_seconds=HOUR)
        moved(task, (Phase.RUNNING, 5))
        assert paused_until_now(task) == HOUR
        assert stats.of_task(task).duration.working == near(4 * HOUR)

    def test_an_ended_task_does_not_move_until_it_is_resumed(self) -> None:
        """What lies between its end and the word to go on is neither work nor waiting for people."""
        task = TaskFactory.create(started_at=ago(5), ended_at=ago(4), phase=Phase.FAILED)
        moved(task, (Phase.RUNNING, 5), (Phase.FAILED, 4))
        assert stats.of_task(task).duration == stats.Duration(near(HOUR), 0.0)
        move(task, Phase.PENDING)
        move(task, Phase.RUNNING)
        task.refresh_from_db()
        assert (task.paused_seconds, task.idle_seconds) == (near(0), near(4 * HOUR))
        assert stats.of_task(task).duration == stats.Duration(near(HOUR), near(0))
        assert task.worked_seconds == near(HOUR)

    def test_a_task_that_was_never_started_has_not_waited(self) -> None:
        task = TaskFactory.create(phase=Phase.CANCELLED, ended_at=ago(1))
        moved(task, (Phase.CANCELLED, 1))
        assert paused_until_now(task) == 0.0

    def test_the_pauses_of_a_step_come_from_its_history(self) -> None:
        task = TaskFactory.create(started_at=ago(10), phase=Phase.WAITING_FOR_INPUT)
        plan, implement = task.steps.all()
        Step.objects.filter(pk=plan.pk).update(started_at=ago(10), ended_at=ago(6), phase=Phase.DONE)
        Step.objects.filter(pk=implement.pk).update(started_at=ago(6), phase=Phase.WAITING_FOR_INPUT)
        moved(plan, (Phase.RUNNING, 10), (Phase.FAILED, 9), (Phase.PENDING, 8), (Phase.RUNNING, 8))
        moved(plan, (Phase.DONE, 6))
        moved(implement, (Phase.RUNNING, 6), (Phase.WAITING_FOR_INPUT, 2))
        steps = list(task.steps.all())
        metrics = stats.of_steps(steps)
        assert [metrics[step.pk].duration for step in steps] == [
            stats.Duration(near(3 * HOUR), near(0)),
            stats.Duration(near(6 * HOUR), near(2 * HOUR)),
        ]

    def test_a_step_that_is_pending_again_stands_still(self) -> None:
        """Put back by a worker that stopped, or to be done again: nothing works on it."""
        task = TaskFactory.create(started_at=ago(10), phase=Phase.PENDING)
        step = task.steps.all()[0]
        Step.objects.filter(pk=step.pk).update(started_at=ago(10), phase=Phase.PENDING)
        moved(step, (Phase.RUNNING, 10), (Phase.PENDING, 9), (Phase.RUNNING, 8), (Phase.PENDING, 6))
        step.refresh_from_db()
        metrics = stats.of_steps([step])[step.pk]
        assert metrics.duration == stats.Duration(near(4 * HOUR), near(HOUR))
        assert metrics.duration.working == near(3 * HOUR)

    def test_a_sequence_waited_when_its_tasks_did(self) -> None:
        sequence = SequenceFactory.create(started_at=ago(10), phase=Phase.WAITING_FOR_INPUT)
        TaskFactory.create(
            sequence=sequence, file="01.md", phase=Phase.DONE, paused_seconds=HOUR,
            started_at=ago(10), ended_at=ago(5),
        )  # fmt: skip
        second = TaskFactory.create(
            sequence=sequence, file="02.md", phase=Phase.WAITING_FOR_INPUT, started_at=ago(5)
        )
        moved(second, (Phase.WAITING_FOR_INPUT, 3))
        assert stats.of_sequence(sequence).duration == stats.Duration(near(10 * HOUR), near(4 * HOUR))
        assert stats.tasks_done([sequence]) == {sequence.pk: (1, 2)}


@pytest.fixture
def queries() -> Callable[[Callable[[], object]], int]:
    def count(work: Callable[[], object]) -> int:
        with CaptureQueriesContext(connection) as captured:
            work()
        return len(captured)

    return count


def test_many_cost_as_many_queries_as_one(queries: Callable[[Callable[[], object]], int]) -> None:
    for n in range(10):
        sequence = SequenceFactory.create(phase=Phase.WAITING_FOR_INPUT, started_at=ago(1))
        task = TaskFactory.create(
            sequence=sequence, file=f"{n}.md", phase=Phase.WAITING_FOR_INPUT, started_at=ago(1)
        )
        used(task.steps.all()[0])
        moved(task, (Phase.WAITING_FOR_INPUT, 1))
    tasks = list(Task.objects.exclude(sequence=None))
    sequences = [task.sequence for task in tasks if task.sequence]
    Step.objects.update(started_at=ago(1))
    steps = list(Step.objects.all())
    assert queries(lambda: stats.of_tasks(tasks)) == queries(lambda: stats.of_tasks(tasks[:1])) == 2
    assert queries(lambda: stats.of_steps(steps)) == queries(lambda: stats.of_steps(steps[:1])) == 2
    assert queries(lambda: stats.of_sequences(sequences)) == 3
    assert queries(lambda: stats.of_sequences(sequences[:1])) == 3


def test_what_a_run_waited_ends_with_the_task() -> None:
    """A question, the cancellation an hour later, and four hours later a resume."""
    task = TaskFactory.create(started_at=ago(9), phase=Phase.RUNNING, idle_seconds=4 * HOUR)
    step = task.steps.all()[0]
    asked = RunFactory.create(step=step, outcome=Outcome.INTERRUPTED)
    Run.objects.filter(pk=asked.pk).update(started_at=ago(9), ended_at=ago(8))
    after = RunFactory.create(step=step, number=2)
    Run.objects.filter(pk=after.pk).update(started_at=ago(3))
    asks, ends = (Phase.WAITING_FOR_INPUT, 8), (Phase.CANCELLED, 7)
    moved(task, (Phase.RUNNING, 9), asks, ends, (Phase.PENDING, 3), (Phase.RUNNING, 3))
    details = TaskDetails(task, acting(UserFactory.create()))
    assert details.steps[0].runs[0].waited == near(HOUR)
