"""A worker that is drained, or cannot work, takes nothing, says why, and keeps what it holds (M3, M6)."""

from __future__ import annotations

import socket
import threading
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db.models import QuerySet
from huey import MemoryHuey

from tasks_app.core.phases import Phase
from tasks_app.engine.publishing import publisher
from tasks_app.engine.publishing.publisher import Publisher
from tasks_app.engine.workers import heartbeat, intake
from tasks_app.engine.workers.heartbeat import Heartbeat, beat
from tasks_app.engine.workers.intake import DRAINED, STARTING, Found, Intake, TakingConsumer
from tasks_app.models import Task, WorkerBeat
from tasks_app.operations import fitness, health
from tasks_app.operations.fitness import worker_problem
from tests.browser import signed_in
from tests.factories import TaskFactory, UserFactory, WorkerBeatFactory
from tests.installation import Installation
from tests.integration.test_worker_without_queue import START, worker
from tests.waiting import wait_until

HERE = socket.gethostname()


def test_m6_a_closed_intake_leaves_the_queue_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "LOOK_AGAIN_SECONDS", 0.01)
    queue, worker_intake, done = MemoryHuey(immediate=False), Intake(), threading.Event()
    looked: list[int] = []
    queue.task()(done.set)()
    found = Found(looked.append)
    found.put(7)
    consumer = TakingConsumer(queue, intake=worker_intake, found=found, workers=1, periodic=False)
    thread, _ = consumer.worker_threads[0]
    worker_intake.set_problem("No disk.")
    thread.loop()
    assert (queue.pending_count(), looked, done.is_set()) == (1, [], False)
    worker_intake.set_problem("")
    thread.loop()
    assert (queue.pending_count(), looked, done.is_set()) == (1, [7], False)
    thread.loop()
    assert queue.pending_count() == 0 and done.is_set()


def test_a_task_that_cannot_be_looked_at_does_not_end_the_thread(caplog: pytest.LogCaptureFixture) -> None:
    def broken(task_id: int) -> None:
        raise RuntimeError("broken")

    found = Found(broken)
    found.put(7)
    assert found.work() and not found.work()
    assert "task 7" in caplog.text


@pytest.fixture
def quick_beats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeat, "BEAT_SECONDS", 0.01)


@pytest.mark.django_db(transaction=True)
def test_m3_an_order_to_drain_closes_the_intake_until_it_is_taken_back(quick_beats: None) -> None:
    worker_intake = Intake()
    beating = Heartbeat(slots=2, intake=worker_intake)
    beating.start()
    try:
        wait_until(WorkerBeat.objects.exists)
        assert worker_intake.is_open
        WorkerBeat.objects.update(draining=True)
        wait_until(lambda: WorkerBeat.objects.get().problem == DRAINED)
        assert not worker_intake.is_open
        WorkerBeat.objects.update(draining=False)
        wait_until(lambda: not WorkerBeat.objects.get().problem)
        assert worker_intake.is_open
    finally:
        beating.stop()
        beating.join(30)


@pytest.mark.django_db(transaction=True)
def test_m6_a_worker_that_cannot_work_says_why_from_its_first_beat(quick_beats: None) -> None:
    worker_intake, problems = Intake(), ["The disk is full."]
    beating = Heartbeat(slots=2, intake=worker_intake, find_problem=lambda: problems[0])
    beating.start()
    try:
        wait_until(WorkerBeat.objects.exists)
        assert WorkerBeat.objects.get().problem == worker_intake.problem == "The disk is full."
        problems[0] = ""
        wait_until(lambda: worker_intake.is_open)
    finally:
        beating.stop()
        beating.join(30)


@pytest.mark.django_db(transaction=True)
def test_m6_a_worker_takes_nothing_until_it_has_looked(quick_beats: None) -> None:
    worker_intake, looked = Intake(STARTING), threading.Event()

    def find_problem() -> str:
        looked.wait(60)
        return ""

    beating = Heartbeat(slots=2, intake=worker_intake, find_problem=find_problem)
    beating.start()
    try:
        assert worker_intake.problem == STARTING
        looked.set()
        wait_until(lambda: worker_intake.is_open)
    finally:
        beating.stop()
        beating.join(30)


@pytest.mark.django_db(transaction=True)
def test_m3_a_first_beat_that_fails_does_not_keep_the_drain_of_an_earlier_process(
    quick_beats: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    beat(slots=1, started=True)
    WorkerBeat.objects.update(draining=True)
    beats: list[bool] = []

    def failing_once(**values: Any) -> bool:
        beats.append(values["started"])
        if len(beats) == 1:
            raise OSError("the database is away")
        return beat(**values)

    monkeypatch.setattr(heartbeat, "beat", failing_once)
    worker_intake = Intake()
    beating = Heartbeat(slots=2, intake=worker_intake)
    beating.start()
    try:
        wait_until(lambda: len(beats) > 4)
        assert beats[:4] == [True, True, False, False] and worker_intake.is_open
    finally:
        beating.stop()
        beating.join(30)


def test_m6_the_log_says_once_why_no_tasks_are_taken(caplog: pytest.LogCaptureFixture) -> None:
    """Whoever starts a worker with a token that is not accepted looks at its terminal first."""
    worker_intake = Intake(STARTING)
    for problem in ("", "No disk.", "No disk.", "", ""):
        worker_intake.set_problem(problem)
    assert caplog.messages == ["This worker takes no tasks: No disk.", "This worker takes tasks again."]


def test_a_disk_with_a_little_less_space_each_time_is_one_line_of_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    worker_intake = Intake()
    for free in ("1.2", "1.1", "0.9"):
        worker_intake.set_problem(f"Only {free} GiB are free.")
    assert worker_intake.problem == "Only 0.9 GiB are free."
    assert caplog.messages == ["This worker takes no tasks: Only 1.2 GiB are free."]


@pytest.mark.django_db
def test_m6_a_worker_that_takes_nothing_publishes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def none_asked_for() -> QuerySet[Task]:
        asked.append(1)
        return Task.objects.none()

    TaskFactory.create(phase=Phase.DONE, publish_due=True)
    monkeypatch.setattr(publisher, "tasks_to_publish", none_asked_for)
    worker_intake = Intake("No disk.")
    Publisher(worker_intake)._run_once()
    assert not asked
    worker_intake.set_problem("")
    Publisher(worker_intake)._run_once()
    assert asked


@pytest.mark.django_db
def test_m3_a_new_process_with_an_old_number_is_not_drained() -> None:
    beat(slots=1, started=True)
    WorkerBeat.objects.update(draining=True)
    assert beat(slots=1) is True
    assert beat(slots=1, started=True) is False


@pytest.mark.django_db
class TestProblems:
    def test_m6_a_sound_worker_has_none(self) -> None:
        assert worker_problem() == ""

    def test_m6_the_agents_program_is_missing(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setattr(fitness, "bundled_cli", lambda: tmp_path / "claude")
        assert "program" in worker_problem() and str(tmp_path) in worker_problem()

    def test_m6_the_disk_is_full(self, settings: Any) -> None:
        much = settings.ENVIRONMENT.model_copy(update={"keep_free_disk": 10**18})
        settings.ENVIRONMENT = much
        assert "CATHERDER_KEEP_FREE_DISK" in worker_problem()

    def test_m6_the_data_directory_is_gone(self, settings: Any, tmp_path: Path) -> None:
        settings.DATA_DIR = tmp_path / "gone"
        assert "cannot be read" in worker_problem()

    @pytest.mark.parametrize(
        ("applied", "needed", "words"),
        [({"a", "b"}, {"a"}, "newer version"), ({"a"}, {"a", "b"}, "not prepared"), ({"a"}, {"a"}, "")],
    )
    def test_m6_another_version(
        self, monkeypatch: pytest.MonkeyPatch, applied: set[str], needed: set[str], words: str
    ) -> None:
        monkeypatch.setattr(fitness, "applied_migrations", lambda: {("tasks_app", one) for one in applied})
        monkeypatch.setattr(fitness, "needed_migrations", lambda: {("tasks_app", one) for one in needed})
        assert (words in worker_problem()) if words else (worker_problem() == "")
        assert health.needed_migrations()


@pytest.mark.django_db
class TestCommand:
    def test_m3_it_waits_until_the_workers_are_empty(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        mine = WorkerBeatFactory.create(host=HERE, pid=7, busy=2)
        other = WorkerBeatFactory.create(host="elsewhere")
        stages: list[dict[str, Any]] = [{"problem": DRAINED}, {"busy": 1}, {"busy": 0}]
        looked: list[int] = []

        def pause(seconds: float) -> None:
            looked.append(1)
            WorkerBeat.objects.filter(pk=mine.pk).update(**stages[len(looked) - 1])

        monkeypatch.setattr("tasks_app.management.worker_options.time.sleep", pause)
        call_command("worker", "--drain")
        lines = capsys.readouterr().out.splitlines()
        assert [line.removeprefix(f"{HERE}:7: ") for line in lines] == [
            "is being told.", "works on 2 more tasks.", "works on 1 more task.", "is empty.",
        ]  # fmt: skip
        mine.refresh_from_db()
        other.refresh_from_db()
        assert mine.draining and not other.draining and len(looked) == 3

    def test_m3_one_that_ends_meanwhile_is_empty_too(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        WorkerBeatFactory.create(host=HERE, busy=2)
        monkeypatch.setattr(
            "tasks_app.management.worker_options.time.sleep", lambda _: WorkerBeat.objects.update(ended=True)
        )
        call_command("worker", "--drain")
        assert "has ended." in capsys.readouterr().out

    def test_m3_a_single_process_of_another_host_is_named(self, capsys: pytest.CaptureFixture[str]) -> None:
        one, two = (WorkerBeatFactory.create(host="far", pid=pid) for pid in (1, 2))
        call_command("worker", "--drain", "far:2", "--no-wait")
        one.refresh_from_db()
        two.refresh_from_db()
        assert (one.draining, two.draining) == (False, True)
        assert capsys.readouterr().out == "far:2 takes no more tasks.\n"
        call_command("worker", "--take-again", "far")
        two.refresh_from_db()
        assert not two.draining

    def test_m3_a_worker_host_is_named_by_its_token(self, capsys: pytest.CaptureFixture[str]) -> None:
        mine = WorkerBeatFactory.create(host="build-2@vm", pid=1)
        for host in ("build-20@vm", "vm", "other@build-2"):
            WorkerBeatFactory.create(host=host)
        call_command("worker", "--drain", "build-2", "--no-wait")
        assert capsys.readouterr().out == "build-2@vm:1 takes no more tasks.\n"
        assert list(WorkerBeat.objects.filter(draining=True)) == [mine]

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            (["--drain"], "No worker of this host"),
            (["--drain", "far:9"], "far:1"),
            (["--no-wait"], "--drain"),
        ],
    )
    def test_m3_wrong_use_says_what_runs(self, options: list[str], words: str) -> None:
        WorkerBeatFactory.create(host="far", pid=1)
        with pytest.raises(CommandError, match=words):
            call_command("worker", *options)
        assert not WorkerBeat.objects.filter(draining=True).exists()


@pytest.mark.django_db
def test_m6_every_page_says_why_no_worker_takes_tasks() -> None:
    WorkerBeatFactory.create(host="here", pid=5, problem="Only 3 MB <b> is free.")
    browser = signed_in(UserFactory.create())
    page = browser.get("/workers/").text
    assert "No worker takes tasks." in page and "here:5: Only 3 MB &lt;b&gt; is free." in page
    WorkerBeatFactory.create()
    assert "No worker" not in browser.get("/workers/").text


@pytest.mark.bubblewrap
@pytest.mark.once(on="sqlite")
def test_m3_a_drained_worker_leaves_new_tasks_to_others(installation: Installation, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with worker(installation, log):
        drained = installation.manage("worker", "--drain")
        assert drained.returncode == 0 and drained.stdout.endswith("is empty.\n"), drained.stderr
        installation.python(START)
        assert "takes no tasks" in installation.manage("status").stdout
        assert installation.phase() == "pending"
        assert installation.manage("worker", "--take-again").returncode == 0
        wait_until(lambda: installation.phase() == "done", log=log)
