"""M4: a task waits for a worker with the labels that it needs, and for a place under the limits."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.utils import timezone

from tasks_app import tasks
from tasks_app.config.faults import ConfigInvalid
from tasks_app.config.pipeline import load_project_config
from tasks_app.core.labels import Labels, labels_from_text
from tasks_app.core.phases import Phase
from tasks_app.engine import turns
from tasks_app.engine.advance import advance
from tasks_app.engine.lease import Lease
from tasks_app.engine.sweeper import sweep
from tasks_app.engine.turns import QueueNotifier, take_turns
from tasks_app.engine.workers.heartbeat import beat
from tasks_app.management.worker_options import labels_option
from tasks_app.models import Project, Run, Task, Transition, User, WorkerBeat
from tasks_app.services.workers.scheduling import next_turns, worker_with_labels_exists
from tests.factories import ProjectFactory, RunFactory, WorkerBeatFactory
from tests.fake_agent import FakeAgent
from tests.fake_script import Turn, ask, say
from tests.racing import ROUNDS, race
from tests.runner import Runner
from tests.without_git import Rows

pytestmark = pytest.mark.django_db(transaction=True)

ANY: Labels = frozenset()
GPU: Labels = frozenset({"gpu", "linux"})


@pytest.fixture
def rows(transactional_db: None, settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rows:
    settings.DATA_DIR = tmp_path / "data"
    made = Rows.of(tmp_path, monkeypatch)
    made.agent = FakeAgent(lambda prompt: [say("Done.")])
    return made


def due(rows: Rows, project: Project | None = None, *names: str, minutes: int = 0, **fields: Any) -> Task:
    """A task that was started so many minutes ago."""
    task = rows.rows(*names, project=project, queued_at=timezone.now() - timedelta(minutes=minutes))
    Task.objects.filter(pk=task.pk).update(**fields)
    return task


def needs(task: Task, labels: str, step: str = "do") -> Task:
    task.steps.filter(name=step).update(runs_on=labels)
    return task


class Queue:
    """The entries that slots put into the queue: how many, and which wait."""

    def __init__(self) -> None:
        self.notified: list[int] = []
        self.passed_on: list[int] = []
        self.waiting = 0

    @property
    def notifier(self) -> QueueNotifier:
        return QueueNotifier(self.notified.append, self.passed_on.append, lambda: self.waiting)


def work(rows: Rows, labels: Labels = ANY, queue: Queue | None = None) -> list[int]:
    """What a worker's slot does with one entry of the queue; the tasks that it worked on."""
    context = replace(rows.context, labels=labels)
    return take_turns(owner="worker", context=context, notifier=(queue or Queue()).notifier)


def phases(*tasks: Task) -> list[str]:
    return [Task.objects.get(pk=task.pk).phase for task in tasks]


# Labels


def test_m4_labels_are_of_the_step_or_of_the_project() -> None:
    config = load_project_config(
        "runsOn: [linux]\npipelines: {default: [{name: a, command: do}, "
        "{name: b, command: do, runsOn: [gpu, linux]}, {name: c, command: do, runsOn: []}]}\n"
    )
    steps = config.pipelines[0].steps
    assert [config.labels_of(step) for step in steps] == [("linux",), ("gpu", "linux"), ()]


@pytest.mark.parametrize("value", ["gpu", "[GPU]", "['a b']", "['']", "[1]", "[gpu, true]"])
def test_m4_what_is_no_list_of_labels_is_a_fault_of_the_file(value: str) -> None:
    with pytest.raises(ConfigInvalid, match="runsOn"):
        load_project_config(f"runsOn: {value}\n")


def test_m4_labels_are_entered_with_commas_or_blanks() -> None:
    assert labels_from_text(" gpu, linux gpu\n") == ("gpu", "linux")
    assert labels_from_text(" , ") == ()
    for text in ("GPU", "a/b", "x" * 41, ",".join(f"l{n}" for n in range(21))):
        with pytest.raises(ValueError, match="must be"):
            labels_from_text(text)


def test_m4_a_task_s_steps_keep_the_labels_that_they_need(runner: Runner) -> None:
    config = "runsOn: [linux]\npipelines: {default: [{name: do, command: self, runsOn: [gpu, big]}]}\n"
    task = runner.task([], config=config)
    assert task.steps.get().runs_on == "big,gpu"
    Project.objects.update(overrides={"runs_on": "arm"})
    other = runner.task([], config="pipelines: {default: [{name: do, command: self}]}\n")
    assert other.steps.get().runs_on == ""
    Project.objects.filter(pk=other.project_id).update(overrides={"runs_on": "arm, linux"})
    project = Project.objects.get(pk=other.project_id)
    assert runner.task([], project=project).steps.get().runs_on == "arm,linux"


def test_m4_a_worker_takes_only_tasks_whose_labels_it_has(rows: Rows) -> None:
    gpu, plain = needs(due(rows, minutes=9), "gpu,linux"), due(rows)
    assert work(rows, frozenset({"gpu"})) == [plain.pk]
    assert work(rows, GPU | {"more"}) == [gpu.pk]
    assert phases(gpu, plain) == [Phase.DONE, Phase.DONE]


def test_m4_an_advance_of_a_worker_without_the_labels_claims_nothing(rows: Rows) -> None:
    task = needs(due(rows), "gpu")
    assert not advance(task.pk, owner="worker", context=replace(rows.context, labels=ANY))
    task.refresh_from_db()
    assert task.lease_epoch == 0
    assert rows.advance(task).phase == Phase.DONE, "a person who works in a terminal chose that machine"


def test_m4_a_step_that_needs_another_worker_is_left_to_it(rows: Rows) -> None:
    task = needs(due(rows, None, "build", "train"), "gpu", "train")
    WorkerBeatFactory.create(labels=["gpu", "linux"])
    queue = Queue()
    assert work(rows, ANY, queue) == [task.pk]
    assert phases(task) == [Phase.PENDING]
    reason = Transition.objects.filter(task=task, step=None).latest("pk").reason
    assert reason == "step “train” needs a worker with gpu"
    assert queue.passed_on == [task.pk], "a worker that may go on is woken, once"
    assert work(rows, GPU) == [task.pk]
    assert phases(task) == [Phase.DONE]
    owners = (
        Run.objects.filter(step__task=task).order_by("step__position").values_list("lease_epoch", flat=True)
    )
    assert list(owners) == [1, 2]


def test_m4_an_answered_task_waits_for_a_worker_with_its_labels(rows: Rows) -> None:
    rows.agent = FakeAgent(lambda prompt: [Turn(calls=(ask("Red?"),)), say("Painted.")])
    task = needs(due(rows), "gpu")
    work(rows, GPU)
    rows.answer_all(task)
    Task.objects.update(undo_until=None)
    assert work(rows, ANY) == []
    assert work(rows, GPU) == [task.pk]
    assert phases(task) == [Phase.DONE]


def test_m4_others_are_woken_only_if_one_of_them_can_take_the_task(rows: Rows) -> None:
    task = needs(due(rows), "gpu")
    queue = Queue()
    beat = WorkerBeatFactory.create(labels=["gpu"], slots=2, busy=2)
    for change, expected in (
        ({}, []),
        ({"busy": 1, "problem": "No disk."}, []),
        ({"problem": "", "labels": ["linux"]}, []),
        ({"labels": ["gpu"]}, [task.pk]),
    ):
        type(beat).objects.filter(pk=beat.pk).update(**change)
        assert work(rows, ANY, queue) == []
        assert queue.passed_on == expected
    queue.waiting = 1
    work(rows, ANY, queue)
    assert queue.passed_on == [task.pk], "an entry waits already"


def test_m4_an_entry_does_not_go_round_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    notified: list[int] = []
    monkeypatch.setattr(tasks, "notify_worker", notified.append)
    monkeypatch.setattr(tasks, "PASS_ON_PAUSE", 0)
    passing_on = tasks.PassingOn()
    for _ in range(1000):
        passing_on(7)
    assert len(notified) == tasks.MOST_PASSED_ON
    passing_on.forget()
    passing_on(7)
    assert len(notified) == tasks.MOST_PASSED_ON + 1


def test_m4_the_sweeper_leaves_a_task_to_workers_that_have_its_labels(rows: Rows) -> None:
    gpu, plain = needs(due(rows, minutes=5), "gpu"), due(rows)
    for labels, expected in ((ANY, [plain.pk]), (GPU, [gpu.pk, plain.pk])):
        found: list[int] = []
        sweep(found.append, pending=lambda: 0, labels=partial(frozenset, labels))
        assert found == expected


def test_m4_a_worker_reads_its_labels_from_its_option_or_variable(settings: Any) -> None:
    settings.ENVIRONMENT = settings.ENVIRONMENT.model_copy(update={"worker_labels": ("arm",)})
    assert labels_option(None) == {"arm"}
    assert labels_option("gpu,linux") == {"gpu", "linux"} and labels_option("") == frozenset()
    with pytest.raises(CommandError, match="--labels: must be small letters"):
        labels_option("GPU!")
    for command in ("worker", "up"):
        with pytest.raises(CommandError, match="--labels"):
            call_command(command, "--labels", "GPU!")


def test_a_worker_that_is_refused_leaves_the_priority_of_its_process_alone() -> None:
    """Processes of these tests would stand back behind all others from then on."""
    before = os.nice(0)
    with pytest.raises(CommandError, match="--labels"):
        call_command("worker", "--labels", "GPU!")
    assert os.nice(0) == before


def test_m4_a_worker_s_heartbeat_says_its_labels() -> None:
    beat(slots=1, labels=GPU)
    assert WorkerBeat.objects.get().labels == ["gpu", "linux"]
    assert worker_with_labels_exists(frozenset({"gpu"})) and not worker_with_labels_exists(frozenset({"arm"}))


# Limits


def limit(project: Project, number: int | None) -> Project:
    Project.objects.filter(pk=project.pk).update(overrides={"max_running_tasks": number})
    return project


def run_elsewhere(tasks: Iterable[Task]) -> None:
    """Another worker works on these."""
    for task in tasks:
        soon = timezone.now() + timedelta(seconds=20)
        held = {"lease_owner": "elsewhere", "lease_expires": soon}
        Task.objects.filter(pk=task.pk).update(phase=Phase.RUNNING, **held)


def turn_ids() -> list[int]:
    return [task.task_id for task in next_turns()]


def test_m4_no_more_tasks_of_a_project_run_than_it_allows(rows: Rows) -> None:
    project = limit(ProjectFactory.create(), 2)
    first, second, third, fourth = (due(rows, project, minutes=9 - n) for n in range(4))
    assert turn_ids() == [first.pk, second.pk]
    run_elsewhere([first])
    assert turn_ids() == [second.pk]
    run_elsewhere([second])
    assert turn_ids() == [] and work(rows) == []
    assert sweep(lambda task_id: None, pending=lambda: 0) == 0
    assert Lease.claim_place(third.pk, owner="worker") is None
    limit(project, None)
    assert turn_ids() == [third.pk, fourth.pk]


def test_m4_no_more_tasks_of_a_person_run_than_the_portal_allows(rows: Rows, settings: Any) -> None:
    settings.ENVIRONMENT = settings.ENVIRONMENT.model_copy(update={"tasks_per_person": 1})
    first, second = due(rows, minutes=2), due(rows, minutes=1)
    bob = due(rows, created_by=User.objects.create_user("bob"))
    nobody = [due(rows, created_by=None) for _ in range(2)]
    assert sorted(turn_ids()) == sorted([first.pk, bob.pk, *(task.pk for task in nobody)])
    run_elsewhere([first])
    assert Lease.claim_place(second.pk, owner="worker") is None
    assert Lease.claim_place(bob.pk, owner="worker") is not None


def test_m4_a_free_place_is_taken_at_once_by_the_slot_that_freed_it(rows: Rows) -> None:
    """One entry in the queue is enough for all tasks of a project with a limit, and none is added."""
    project = limit(ProjectFactory.create(), 1)
    tasks = [due(rows, project, minutes=9 - n) for n in range(5)]
    queue = Queue()
    assert work(rows, ANY, queue) == [task.pk for task in tasks]
    assert queue.notified == queue.passed_on == []


def test_m4_a_free_place_for_another_worker_wakes_that_one_once(rows: Rows) -> None:
    project = limit(ProjectFactory.create(), 1)
    plain, gpu = due(rows, project, minutes=5), needs(due(rows, project), "gpu")
    WorkerBeatFactory.create(labels=["gpu"])
    queue = Queue()
    assert work(rows, ANY, queue) == [plain.pk]
    assert queue.passed_on == [gpu.pk]


def test_m4_a_task_that_lost_its_worker_keeps_its_place(rows: Rows) -> None:
    project = limit(ProjectFactory.create(), 1)
    lost, other = due(rows, project, minutes=5), due(rows, project, minutes=9)
    run_elsewhere([lost])
    Task.objects.filter(pk=lost.pk).update(lease_expires=timezone.now() - timedelta(seconds=1))
    assert turn_ids() == [lost.pk]
    assert Lease.claim_place(other.pk, owner="worker") is None
    assert Lease.claim_place(lost.pk, owner="worker") is not None


def test_m4_a_task_that_waits_for_a_person_frees_its_place(rows: Rows) -> None:
    project = limit(ProjectFactory.create(), 1)
    rows.agent = FakeAgent(lambda prompt: [Turn(calls=(ask("Red?"),)), say("Painted.")])
    tasks = [due(rows, project, minutes=9 - n) for n in range(3)]
    assert work(rows) == [task.pk for task in tasks]
    assert set(phases(*tasks)) == {Phase.WAITING_FOR_INPUT}


def test_m4_a_lower_limit_stops_nothing_and_a_terminal_needs_no_place(rows: Rows) -> None:
    project = limit(ProjectFactory.create(), 1)
    running, other = due(rows, project), due(rows, project)
    run_elsewhere([running])
    assert rows.advance(other).phase == Phase.DONE
    assert phases(running) == [Phase.RUNNING]


def test_m4_a_task_that_no_worker_may_take_keeps_no_place_from_others(rows: Rows) -> None:
    project = limit(ProjectFactory.create(), 1)
    gpu, plain = needs(due(rows, project, minutes=9), "gpu"), due(rows, project)
    WorkerBeatFactory.create(labels=["linux"])
    WorkerBeatFactory.create(labels=["gpu"], problem="No disk.")
    assert work(rows) == [plain.pk]
    assert phases(gpu) == [Phase.PENDING]
    assert work(rows, frozenset({"gpu"})) == [gpu.pk], (
        "whoever asks takes tasks, before its heartbeat says so"
    )


def test_m4_a_task_that_no_worker_may_take_keeps_no_place_of_its_person(rows: Rows, settings: Any) -> None:
    settings.ENVIRONMENT = settings.ENVIRONMENT.model_copy(update={"tasks_per_person": 1})
    needs(due(rows, minutes=9), "gpu")
    plain = due(rows)
    assert turn_ids() == [plain.pk]
    shared: list[int] = []
    assert sweep(shared.append, pending=lambda: 0) == 1 and shared == [plain.pk]


def test_m4_a_task_keeps_the_last_place_while_the_worker_that_may_take_it_is_busy(rows: Rows) -> None:
    """Otherwise others would take the place each time that it is free, and the task would starve."""
    project = limit(ProjectFactory.create(), 1)
    gpu, plain = needs(due(rows, project, minutes=9), "gpu"), due(rows, project)
    WorkerBeatFactory.create(labels=["gpu"], slots=1, busy=1)
    assert work(rows) == []
    assert work(rows, frozenset({"gpu"})) == [gpu.pk, plain.pk]


def test_m4_what_cannot_be_taken_costs_its_person_no_turn(rows: Rows) -> None:
    """Neither tasks that no worker may take nor those for which a limit leaves no place."""
    bob = User.objects.create_user("bob")
    full = limit(ProjectFactory.create(), 1)
    run_elsewhere([due(rows, full, created_by=None)])
    for n in range(5):
        needs(due(rows, minutes=50 - n), "gpu")
        due(rows, full, minutes=40 - n, priority=1)
    mine = due(rows, minutes=9)
    his = [due(rows, created_by=bob, minutes=8 - n) for n in range(3)]
    assert turn_ids() == [mine.pk, *(task.pk for task in his)]


def test_m4_what_only_other_workers_may_take_costs_no_turn_at_this_one(rows: Rows) -> None:
    bob = User.objects.create_user("bob")
    WorkerBeatFactory.create(labels=["gpu"])
    for n in range(5):
        needs(due(rows, minutes=50 - n), "gpu")
    mine = due(rows, minutes=9)
    his = [due(rows, created_by=bob, minutes=8 - n).pk for n in range(3)]
    assert work(rows) == [mine.pk, *his]


@pytest.mark.parametrize("of", ["project", "person"])
def test_m4_of_two_workers_one_gets_the_last_place(rows: Rows, settings: Any, of: str) -> None:
    """Two different tasks: no row of theirs is common to the two claims."""
    if of == "person":
        settings.ENVIRONMENT = settings.ENVIRONMENT.model_copy(update={"tasks_per_person": 2})
    for number in range(ROUNDS):
        project = limit(ProjectFactory.create(), 2 if of == "project" else None)
        running, *wanted = (due(rows, project) for _ in range(3))
        run_elsewhere([running])
        claims = [lambda task=task: Lease.claim_place(task.pk, owner="w") is not None for task in wanted]
        outcomes = race(number, *claims)
        assert sorted(outcome.said for outcome in outcomes) == ["False", "True"], outcomes
        assert Task.objects.worked_on().filter(project=project).count() == 2
        Task.objects.all().delete()


# Wake-ups and turns


def test_m4_one_entry_wakes_a_slot_for_each_task_and_no_more(rows: Rows) -> None:
    for _ in range(6):
        due(rows)
    queue = Queue()
    worked = work(rows, ANY, queue)
    assert len(worked) == 6 and len(queue.notified) == 5, "one less than claims"
    queue = Queue()
    assert work(rows, ANY, queue) == [] and queue.notified == []


def test_m4_tasks_that_cannot_be_claimed_wake_nobody(rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    """As while the database can be read and not be written: each entry must not make others."""
    for _ in range(6):
        due(rows)
    monkeypatch.setattr(turns, "advance", lambda *args, **more: False)
    queue = Queue()
    assert work(rows, ANY, queue) == []
    assert queue.notified == []


def test_m4_a_task_is_tried_once_for_each_entry(rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    task, tried = due(rows), []

    def fruitless(task_id: int, **more: object) -> bool:
        tried.append(task_id)
        return True

    monkeypatch.setattr(turns, "advance", fruitless)
    work(rows)
    assert tried == [task.pk]


def test_m4_a_worker_that_takes_no_more_tasks_ends_its_turns_and_wakes_another(rows: Rows) -> None:
    """The place that it frees is for others, who have not heard of it."""
    project = limit(ProjectFactory.create(), 1)
    first, second = due(rows, project, minutes=9), due(rows, project)
    answers = iter([True, False])
    context, queue = replace(rows.context, labels=ANY), Queue()
    assert take_turns(owner="w", context=context, notifier=queue.notifier, goes_on=lambda: next(answers)) == [
        first.pk
    ]
    assert queue.notified == [second.pk]
    assert take_turns(owner="w", context=context, notifier=queue.notifier, goes_on=lambda: False) == []
    assert queue.notified == [second.pk]


def test_m4_turns_go_to_whoever_has_used_less(rows: Rows) -> None:
    """Of the last hour; a run that is under way counts, too."""
    bob = User.objects.create_user("bob")
    done = due(rows, phase=Phase.DONE)
    run = RunFactory.create(step=done.steps.get(), task=None)
    now = timezone.now()
    Run.objects.filter(pk=run.pk).update(started_at=now - timedelta(minutes=20), ended_at=now)
    mine = [due(rows, minutes=9 - n) for n in range(3)]
    his = [due(rows, created_by=bob, minutes=1) for _ in range(3)]
    assert turn_ids() == [task.pk for task in (*his, *mine)]
    Run.objects.filter(pk=run.pk).update(started_at=now - timedelta(hours=2))
    assert turn_ids()[:2] == [mine[0].pk, his[0].pk]
    run_elsewhere([mine[0]])
    assert turn_ids()[0] == his[0].pk


def test_m4_what_is_asked_of_the_database_does_not_grow_with_the_tasks(
    rows: Rows, django_assert_max_num_queries: Any
) -> None:
    for n in range(30):
        due(rows, created_by=User.objects.create_user(f"user{n}"))
    with django_assert_max_num_queries(4):
        assert len(next_turns()) == 30
