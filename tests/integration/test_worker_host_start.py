"""M1, M2, M6: where a worker starts, what a worker host refuses, and when a workspace is outdated."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import Mock
from uuid import UUID, uuid4

import pytest
import requests
from django.utils import timezone
from huey.contrib.djhuey import HUEY

from catherder_site.queue import JobSerializer
from tasks_app.core.errors import TemporaryFault, WorkspaceError, WrongDataDirectory
from tasks_app.core.phases import Phase
from tasks_app.engine import advance
from tasks_app.engine.runs import judging, steps
from tasks_app.engine.workers import heartbeat
from tasks_app.engine.workers.heartbeat import host_name
from tasks_app.engine.workers.intake import Intake
from tasks_app.engine.workers.leaving import hosts_that_left
from tasks_app.engine.workspaces.cleaning import clean_workspaces
from tasks_app.engine.workspaces.recording import record_after_checks
from tasks_app.git import Workspace, mirror
from tasks_app.git.mirror import Mirror, Portal
from tasks_app.management.commands import worker
from tasks_app.models import Event, Installation, Run, Step, Task, WorkerBeat, paths
from tasks_app.models.worker import ALIVE_PERIOD
from tasks_app.operations import fitness, local_sandbox
from tasks_app.operations.doctor import Level, data
from tasks_app.sandbox import Sandbox
from tasks_app.services.bulk import retry_from
from tasks_app.services.data_directory import require_own_data_dir, require_shared_data_dir
from tasks_app.services.sequences import create_sequence, start_sequence, upcoming_files
from tasks_app.services.tasks import cancel_task
from tasks_app.services.workers.hosts import follow_portal, network_of
from tasks_app.services.workers.scheduling import tasks_worked_on
from tasks_app.tasks import look_at
from tasks_app.worker_api.application import portal_description
from tests.factories import ProjectFactory, WorkerBeatFactory
from tests.fake_agent import FakeAgent
from tests.fake_script import End, Turn, ask, say, write
from tests.forkserver import PATIENCE
from tests.installation import Installation as Portals
from tests.integration.conftest import Manage
from tests.people import acting
from tests.runner import Runner, diff_of, file_in, runs, script

TOKEN = f"cathw_build-2.{43 * 'A'}"


@pytest.fixture
def on_worker_host(settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, db: None) -> Iterator[Any]:
    """This process is on the worker host `build-2` now."""
    values = {"worker_token": TOKEN, "url": "https://herder.example.org", "data_dir": tmp_path / "data"}
    settings.ENVIRONMENT = settings.ENVIRONMENT.model_copy(update=values)
    settings.DATA_DIR = tmp_path / "data"
    settings.DATA_DIR.mkdir()
    monkeypatch.setattr(paths, "_portals_data_dir", None)
    monkeypatch.setattr(fitness, "_portal_uses_redis", None)
    monkeypatch.setattr(fitness, "_logged_difference", "")
    yield settings
    follow_portal({})


@pytest.mark.django_db
class TestDataDirectory:
    def test_the_first_worker_of_a_new_installation_starts(self, settings: Any, tmp_path: Path) -> None:
        settings.DATA_DIR = tmp_path
        require_shared_data_dir()
        require_shared_data_dir()

    def test_an_empty_directory_of_another_host_is_not_adopted(self, settings: Any, tmp_path: Path) -> None:
        settings.DATA_DIR = tmp_path / "portal"
        require_own_data_dir()
        settings.DATA_DIR = tmp_path / "elsewhere"
        with pytest.raises(WrongDataDirectory, match="CATHERDER_WORKER_TOKEN"):
            require_shared_data_dir()
        assert not settings.DATA_DIR.exists()

    def test_commands_of_the_portal_do_not_run_on_a_worker_host(self, on_worker_host: Any) -> None:
        with pytest.raises(WrongDataDirectory, match="this is a worker host"):
            require_own_data_dir()
        assert Installation.objects.count() == 0


class TestCommands:
    def test_a_worker_without_its_portals_files_does_not_start(
        self, installation: Portals, tmp_path: Path
    ) -> None:
        installation.manage("status")  # notes that both belong together
        url = f"sqlite:///{installation.data_dir / 'catherder.sqlite3'}"
        elsewhere = Portals(tmp_path / "elsewhere", DATABASE_URL=url)
        done = elsewhere.manage("worker")
        assert done.returncode == 2 and "is empty, and the repositories of this installation" in done.stderr
        assert "Traceback" not in done.stderr

    def test_a_worker_that_starts_before_the_database_was_prepared_says_so(self, tmp_path: Path) -> None:
        """As at the first start of services, which start at the same time."""
        done = Portals(tmp_path).manage("worker")
        assert done.returncode == 2 and "has no tables yet" in done.stderr
        assert "Traceback" not in done.stderr

    def test_a_worker_host_does_not_take_a_portals_directory(self, installation: Portals) -> None:
        installation.manage("status")
        url = f"sqlite:///{installation.data_dir / 'catherder.sqlite3'}"
        there = Portals(
            installation.data_dir, DATABASE_URL=url, CATHERDER_URL="http://x", CATHERDER_WORKER_TOKEN=TOKEN
        )
        done = there.manage("worker")
        assert done.returncode == 2 and "is the data directory of a portal" in done.stderr

    def test_m6_a_worker_host_that_takes_nothing_does_not_say_that_it_works(
        self, installation: Portals, tmp_path: Path
    ) -> None:
        installation.manage("status")
        url = f"sqlite:///{installation.data_dir / 'catherder.sqlite3'}"
        away = {"CATHERDER_URL": "http://127.0.0.1:1", "CATHERDER_WORKER_TOKEN": TOKEN}
        lines = []
        with Portals(tmp_path / "there", DATABASE_URL=url, **away).popen("worker") as process:
            assert process.stdout is not None
            watch = threading.Timer(PATIENCE, process.kill)
            watch.start()
            for line in process.stdout:
                lines.append(line)
                if "takes no tasks" in line:
                    process.terminate()
            watch.cancel()
        assert process.returncode == 0
        assert "cannot be reached (ConnectionError)" in "".join(lines)
        assert "works on tasks" not in "".join(lines)

    def test_a_token_is_printed_once_listed_by_name_and_revoked(self, installation: Portals) -> None:
        made = installation.manage("worker_token", "build-2")
        token = made.stdout.strip()
        assert made.returncode == 0 and token.startswith("cathw_build-2.")
        again = installation.manage("worker_token", "build-2")
        assert again.returncode == 2 and "has a token already" in again.stderr
        listed = installation.manage("worker_token")
        assert "build-2" in listed.stdout and token not in listed.stdout + listed.stderr
        assert installation.manage("worker_token", "--revoke").returncode == 2
        assert installation.manage("worker_token", "--revoke", "build-2").returncode == 0
        assert installation.manage("worker_token", "--revoke", "build-2").returncode == 2
        assert "No worker host" in installation.manage("worker_token").stderr
        assert installation.manage("worker_token", "build-3", "--as", "bob").returncode == 2


@pytest.mark.both
def test_a_worker_host_has_its_name_in_leases(on_worker_host: Any) -> None:
    assert heartbeat.host_name().startswith("build-2@")
    assert heartbeat.process_name().startswith("build-2@")


def facts(settings: Any, **others: Any) -> dict[str, Any]:
    return {**portal_description(), "data_dir": str(settings.ENVIRONMENT.data_dir), **others}


@pytest.mark.parametrize(
    ("others", "said"),
    [
        ({"rehearsal": False}, "no ANTHROPIC_API_KEY"),
        ({"git_filters": ["lfs"]}, "Git filters"),
        ({"installation": "0b8f7a3e-0000-4000-8000-000000000000"}, "another database than DATABASE_URL"),
    ],
)
def test_a_worker_host_that_does_not_go_with_its_portal_takes_nothing(
    on_worker_host: Any, monkeypatch: pytest.MonkeyPatch, others: dict[str, Any], said: str
) -> None:
    Installation.objects.get_or_create()
    monkeypatch.setattr(Portal, "hello", lambda self: facts(on_worker_host, **others))
    assert said in fitness.portal_problem()
    (finding,) = data.installation()
    assert finding.level is Level.PROBLEM and said in finding.text


REDIS = "redis://127.0.0.1:6379/0"


@pytest.mark.parametrize(
    ("own", "portals", "said"),
    [
        (None, True, "The portal uses Redis, but this host has no REDIS_URL"),
        (REDIS, False, "This host has a REDIS_URL, but the portal uses no Redis"),
    ],
)
def test_a_worker_host_whose_portal_differs_in_redis_works_on_and_says_so_once(
    on_worker_host: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    own: str | None,
    portals: bool,
    said: str,
) -> None:
    """Nothing is lost: jobs and notices are hints. What they hint at is only found later."""
    changed = on_worker_host.ENVIRONMENT.model_copy(update={"redis_url": own})
    on_worker_host.ENVIRONMENT = changed
    told = facts(on_worker_host, redis=portals)
    monkeypatch.setattr(Portal, "hello", lambda self: told)
    assert [fitness.worker_problem() for _ in range(3)] == ["", "", ""]
    assert len(caplog.messages) == 1 and caplog.messages[0].startswith(said)
    belongs, warned = data.installation()
    assert belongs.level is Level.OK
    assert warned.level is Level.WARNING and warned.text.startswith(said)
    told["redis"] = not portals
    assert fitness.worker_problem() == "" and len(caplog.messages) == 1
    assert len(list(data.installation())) == 1


@pytest.mark.parametrize("own", [None, REDIS])
def test_an_older_portal_does_not_say_whether_it_uses_redis(
    on_worker_host: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, own: str | None
) -> None:
    changed = on_worker_host.ENVIRONMENT.model_copy(update={"redis_url": own})
    on_worker_host.ENVIRONMENT = changed
    told = facts(on_worker_host)
    del told["redis"]
    monkeypatch.setattr(Portal, "hello", lambda self: told)
    assert fitness.worker_problem() == "" and caplog.messages == []


def test_a_portal_says_whether_it_uses_redis(on_worker_host: Any) -> None:
    for url in (None, REDIS):
        changed = on_worker_host.ENVIRONMENT.model_copy(update={"redis_url": url})
        on_worker_host.ENVIRONMENT = changed
        assert portal_description()["redis"] is (url is not None)


PORTALS = Path("/srv/cat-herder/data")


@pytest.mark.bubblewrap
def test_sandboxes_of_a_worker_host_show_its_data_directory_at_the_portals_path(
    on_worker_host: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Portal, "hello", lambda self: facts(on_worker_host, data_dir=str(PORTALS)))
    assert fitness.portal_problem() == ""
    assert paths.placement().inside(paths.data_dir() / "tasks/7") == PORTALS / "tasks/7"
    assert fitness.portal_problem() == ""
    monkeypatch.setattr(Portal, "hello", lambda self: facts(on_worker_host, data_dir="/srv/moved"))
    assert "was moved to /srv/moved; restart this worker" in fitness.portal_problem()


@pytest.mark.bubblewrap
def test_a_portals_path_that_no_sandbox_here_can_show_is_said(
    on_worker_host: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It is in a folder of the system, which sandboxes show as it is, or behind a link."""
    monkeypatch.setattr(Portal, "hello", lambda self: facts(on_worker_host, data_dir="/usr/cat-herder"))
    assert "Create an empty folder /usr/cat-herder here" in fitness.portal_problem()
    (tmp_path / "link").symlink_to(tmp_path)
    monkeypatch.setattr(
        Portal, "hello", lambda self: facts(on_worker_host, data_dir=str(tmp_path / "link" / "data"))
    )
    assert "Remove the link" in fitness.portal_problem()
    assert not paths.placement().moves


def test_without_a_sandbox_the_data_directory_needs_the_portals_path(
    on_worker_host: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    off = Sandbox(None, "The sandbox is switched off (CATHERDER_SANDBOX=off).")
    monkeypatch.setattr(local_sandbox, "sandbox", lambda: off)
    monkeypatch.setattr(Portal, "hello", lambda self: facts(on_worker_host, data_dir=str(PORTALS)))
    problem = fitness.portal_problem()
    assert str(PORTALS) in problem and "CATHERDER_SANDBOX=off" in problem
    assert "CATHERDER_DATA_DIR" in problem
    (finding,) = data.installation()
    assert finding.level is Level.PROBLEM
    monkeypatch.setattr(Portal, "hello", lambda self: facts(on_worker_host))
    assert fitness.portal_problem() == ""


def test_m6_a_worker_host_without_the_sandbox_that_its_portal_requires_takes_nothing(
    on_worker_host: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    none = Sandbox(None, "bubblewrap is not installed.")
    monkeypatch.setattr(local_sandbox, "sandbox", lambda: none)
    monkeypatch.setattr(Portal, "hello", lambda self: facts(on_worker_host, sandbox="require"))
    problem = fitness.portal_problem()
    assert "CATHERDER_SANDBOX=require, but this host has no sandbox: bubblewrap is not" in problem
    (finding,) = data.installation()
    assert finding.level is Level.PROBLEM and finding.text in problem
    monkeypatch.setattr(Portal, "hello", lambda self: facts(on_worker_host, sandbox="auto"))
    assert fitness.portal_problem() == ""


@pytest.mark.bubblewrap
def test_m6_a_worker_host_with_a_sandbox_goes_with_a_portal_that_requires_one(
    on_worker_host: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Portal, "hello", lambda self: facts(on_worker_host, sandbox="require"))
    assert fitness.portal_problem() == ""


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("portals", "own", "holds"), [(2, 9, 2), (9, 2, 2), (0, 3, 3), (3, 0, 3), (0, 0, None)]
)
def test_m6_on_a_worker_host_the_stricter_number_of_tasks_per_person_holds(
    on_worker_host: Any, monkeypatch: pytest.MonkeyPatch, portals: int, own: int, holds: int | None
) -> None:
    told = facts(on_worker_host, tasks_per_person=portals)
    monkeypatch.setattr(Portal, "hello", lambda self: told)
    changed = {"tasks_per_person": own}
    on_worker_host.ENVIRONMENT = on_worker_host.ENVIRONMENT.model_copy(update=changed)
    assert fitness.portal_problem() == ""
    assert tasks_worked_on().per_person == holds


@pytest.mark.django_db
def test_m6_on_a_worker_host_the_stricter_network_holds(
    on_worker_host: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: dict[str, Any] = {}
    monkeypatch.setattr(Portal, "hello", lambda self: facts(on_worker_host, **told))
    step = Step(config={"name": "do", "command": "do"})
    for portals, own, holds in (
        ("model", "full", "model"),
        ("full", "none", "none"),
        ("full", "full", "full"),
        ("of-a-newer-version", "full", "none"),
    ):
        changed = {"network": own}
        on_worker_host.ENVIRONMENT = on_worker_host.ENVIRONMENT.model_copy(update=changed)
        told.update(network=portals)
        assert fitness.portal_problem() == ""
        assert network_of(step) == holds


@pytest.mark.django_db
def test_m6_an_older_portal_that_tells_no_limits_leaves_those_of_the_host(
    on_worker_host: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While an installation is updated, hosts and portal have different versions."""
    older = {
        name: value
        for name, value in facts(on_worker_host).items()
        if name not in ("installation", "sandbox", "network", "tasks_per_person", "redis")
    }
    changed = {"network": "model", "tasks_per_person": 9}
    on_worker_host.ENVIRONMENT = on_worker_host.ENVIRONMENT.model_copy(update=changed)
    monkeypatch.setattr(Portal, "hello", lambda self: older)
    assert fitness.portal_problem() == ""
    assert (network_of(Step(config={"name": "do", "command": "do"})), tasks_worked_on().per_person) == (
        "model",
        9,
    )


def test_a_worker_host_with_a_real_model_does_not_join_a_rehearsal(
    on_worker_host: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Portal, "hello", lambda self: facts(on_worker_host, rehearsal=True))
    keyed = on_worker_host.ENVIRONMENT.model_copy(update={"anthropic_api_key": "sk-1"})
    on_worker_host.ENVIRONMENT = keyed
    assert "is in rehearsal" in fitness.portal_problem()


def test_a_worker_host_without_a_route_to_its_portal_takes_nothing(
    on_worker_host: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(self: Portal) -> dict[str, Any]:
        raise TemporaryFault("The portal at https://herder.example.org cannot be reached (ConnectTimeout)")

    monkeypatch.setattr(Portal, "hello", unreachable)
    assert fitness.portal_problem().endswith("cannot be reached (ConnectTimeout).")


@pytest.mark.parametrize("body", [b"<html>Log in</html>", b"[]", b'{"data_dir": "/srv"}'])
def test_a_worker_host_whose_url_leads_elsewhere_takes_nothing(
    on_worker_host: Any, monkeypatch: pytest.MonkeyPatch, body: bytes
) -> None:
    """A login page in front of the portal, or a portal of another version."""
    answer = requests.Response()
    answer.status_code, answer._content = 200, body
    monkeypatch.setattr(requests, "request", lambda *args, **values: answer)
    assert fitness.portal_problem().endswith("does not answer like a portal of this version.")
    (finding,) = data.installation()
    assert finding.level is Level.PROBLEM


def test_a_worker_host_reads_and_writes_the_jobs_of_its_portal(
    on_worker_host: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although its own secret key is another one."""
    monkeypatch.setattr(HUEY, "serializer", JobSerializer(secret="k" * 32))
    told = facts(on_worker_host)
    by_portal = JobSerializer(secret=told["queue_secret"])
    job = HUEY._registry.create_message(look_at.s(7))
    with pytest.raises(ValueError):
        HUEY.serializer.deserialize(by_portal.serialize(job))
    monkeypatch.setattr(Portal, "hello", lambda self: told)
    assert fitness.portal_problem() == ""
    assert HUEY.serializer.deserialize(by_portal.serialize(job)) == job
    assert by_portal.deserialize(HUEY.serializer.serialize(job)) == job
    (finding,) = data.installation()
    assert finding.level is Level.OK


def test_the_portals_own_host_asks_nobody() -> None:
    assert fitness.portal_problem() == "" and paths.portal_of_worker_host() is None
    assert paths.worker_data_dir_id() is None


def test_a_data_directory_keeps_its_id_and_a_new_one_has_another(on_worker_host: Any, tmp_path: Path) -> None:
    first = paths.worker_data_dir_id()
    assert isinstance(first, UUID) and paths.worker_data_dir_id() == first
    on_worker_host.DATA_DIR = tmp_path
    assert paths.worker_data_dir_id() != first


def test_a_host_waits_until_it_may_take_tasks() -> None:
    intake, opened = Intake("It has just started."), threading.Event()

    def wait() -> None:
        intake.wait_until_opened()
        opened.set()

    thread = threading.Thread(target=wait)
    thread.start()
    intake.set_problem("No route.")
    assert not opened.is_set()
    intake.set_problem("")
    thread.join()
    intake.set_problem("The disk is full.")
    Intake().wait_until_opened()
    assert opened.is_set()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_host_that_waits_for_its_portal_ends_with_a_signal(number: signal.Signals) -> None:
    class Interrupted(Intake):
        def wait_until_opened(self) -> None:
            os.kill(os.getpid(), number)
            super().wait_until_opened()

    former = signal.getsignal(signal.SIGTERM)
    assert not worker.has_opened(Interrupted("The portal cannot be reached."))
    assert worker.has_opened(Intake()) and signal.getsignal(signal.SIGTERM) is former


@pytest.mark.django_db
def test_repositories_of_a_worker_host_are_mirrors(on_worker_host: Any) -> None:
    repository = paths.repository(ProjectFactory.create())
    assert isinstance(repository, Mirror) and repository.portal.url == "https://herder.example.org"
    with pytest.raises(WorkspaceError, match="on the portal's host"):
        repository.fetch()


PLAY = [
    Turn(calls=(write("paint.txt", "blue"), write("cache.log", "kept"), write(".gitignore", "*.log"))),
    Turn(calls=(ask("Which colour?"),)),
    say("Painted."),
]


def asked(runner: Runner) -> Any:
    """A task that has asked, with a recorded file and one that git ignores."""
    task = runner.advance(runner.task(PLAY))
    assert task.phase == Phase.WAITING_FOR_INPUT and file_in(task, "cache.log").exists()
    return task


def test_a_workspace_of_the_host_that_made_the_last_run_is_used_as_it_is(runner: Runner) -> None:
    task = asked(runner)
    runner.answer_all(task)
    assert runner.advance(task).phase == Phase.DONE and file_in(task, "cache.log").exists()


def test_a_workspace_that_another_host_has_gone_on_from_is_made_anew(runner: Runner) -> None:
    task = asked(runner)
    Run.objects.update(data_dir=uuid4())
    file_in(task, "paint.txt").write_text("older than what that host has recorded")
    runner.answer_all(task)
    assert runner.advance(task).phase == Phase.DONE
    assert file_in(task, "paint.txt").read_text() == "blue" and not file_in(task, "cache.log").exists()
    assert [run.data_dir for run in runs(task)][1:] == [None]


def test_the_log_says_that_a_lost_host_left_work_unrecorded(runner: Runner) -> None:
    task = asked(runner)
    Run.objects.update(data_dir=uuid4(), head_commit="")
    runner.answer_all(task)
    runner.advance(task)
    notes = Event.objects.filter(kind="note").values_list("payload__text", flat=True)
    assert any("on another host" in note and "was not recorded" in note for note in notes)


def test_cleaning_does_not_make_an_outdated_workspace_the_result(runner: Runner) -> None:
    task = asked(runner)
    cancel_task(task, by=acting(runner.user))
    Task.objects.update(ended_at=timezone.now() - timedelta(days=30))
    Run.objects.update(data_dir=uuid4())
    file_in(task, "paint.txt").write_text("older than what that host has recorded")
    recorded = task.head_commit
    (one,) = clean_workspaces(older_than=timedelta(days=14), sandbox=Sandbox(None))
    task.refresh_from_db()
    assert not one.kept and not one.late and not paths.workspace(task).path.exists()
    assert recorded and task.head_commit == recorded


def test_the_next_file_of_a_sequence_is_not_read_from_an_outdated_workspace(runner: Runner) -> None:
    files = {"work/01-one.md": "# One\n\nrehearsal: x\n", "work/02-two.md": "# Two\n"}
    sequence = create_sequence(runner.project(**files), "work", by=acting(runner.user), threshold=3)
    start_sequence(sequence, by=acting(runner.user))
    runner.agent = FakeAgent(script(PLAY))
    task = runner.advance(sequence.tasks.get())
    Run.objects.update(data_dir=uuid4())
    file_in(task, "work/02-two.md").rename(file_in(task, "work/02-older.md"))
    assert upcoming_files(sequence) == (["02-two.md"], "")


def test_files_of_checks_that_stayed_on_another_host_are_not_blamed_on_the_next_step(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = """\
pipelines:
  default:
    clarify: false
    steps:
    - name: plan
      command: plan-task
      check: {type: shell, command: "echo checked > by-check.txt"}
    - name: implement
      command: implement
      fileAccess: {allowWrite: ["paint.txt"]}
"""

    def then_lost(run: Run, *others: Any) -> str:
        problem = record_after_checks(run, *others)
        if run.step.name == "plan":
            Run.objects.update(data_dir=uuid4())
        return problem

    monkeypatch.setattr(judging, "record_after_checks", then_lost)
    play = {"plan": [say("Planned.")], "implement": [Turn(calls=(write("paint.txt", "blue"),)), say("Done.")]}
    task = runner.advance(runner.task(play, config=config))
    assert task.phase == Phase.DONE, task.failure
    assert runs(task)[0].checked_commit != runs(task)[0].head_commit


def test_files_that_one_host_has_put_back_are_put_back_for_all(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host that made the last run has a workspace from before, and goes on if the other one dies now."""
    task = runner.advance(runner.task([Turn(calls=(write("paint.txt", "blue"),)), say("Painted.")]))
    former = uuid4()
    Run.objects.update(data_dir=former)
    retry_from(task, task.steps.get(), by=acting(runner.user), put_back=True, notify=False)
    with monkeypatch.context() as dying:
        dying.setattr(steps, "begin_plan", Mock(side_effect=TemporaryFault("The worker dies")))
        task = runner.advance(task)
    assert task.retry_at is not None and not task.reset_to
    file_in(task, "older.txt").write_text("as on the host that made the last run")
    Task.objects.update(retry_at=None)
    monkeypatch.setattr(paths, "worker_data_dir_id", lambda: former)
    assert runner.advance(task).phase == Phase.DONE
    assert not file_in(task, "older.txt").exists()


def test_long_answers_of_earlier_runs_are_written_on_the_next_host_too(runner: Runner) -> None:
    """The session names the files."""
    play = [Turn(calls=(ask("What?"),)), Turn(calls=(ask("Which colour?"),)), say("Painted.")]
    task = runner.advance(runner.task(play))
    runner.answer_all(task, "long " * 10_000)
    runner.advance(task)
    (file,) = paths.answers_dir(task).iterdir()
    file.unlink()
    Run.objects.filter(number=1).update(data_dir=uuid4())
    runner.answer_all(task)
    assert runner.advance(task).phase == Phase.DONE
    assert file.read_text() == "long " * 10_000


@pytest.mark.django_db
def test_a_worker_host_frees_its_disk_without_recording(
    runner: Runner, settings: Any, manage: Manage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its workspaces are copies of what is recorded."""
    task = asked(runner)
    cancel_task(task, by=acting(runner.user))
    Task.objects.update(ended_at=timezone.now() - timedelta(days=30))
    monkeypatch.setattr(Workspace, "snapshot", None)
    values = {"worker_token": TOKEN, "url": "https://herder.example.org"}
    settings.ENVIRONMENT = settings.ENVIRONMENT.model_copy(update=values)
    code, out, _ = manage("clean_up", "workspaces")
    assert code == 0 and f"removed  task {task.pk}" in out
    assert not paths.workspace(task).path.exists()


def test_m6_a_worker_host_that_loses_its_portal_fails_no_task(
    runner: Runner, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is postponed, and its page says why."""
    task = runner.task(PLAY)
    monkeypatch.setattr(mirror, "_FETCH_PAUSES", ())
    values = {"worker_token": TOKEN, "url": "http://127.0.0.1:1"}
    settings.ENVIRONMENT = settings.ENVIRONMENT.model_copy(update=values)
    task = runner.advance(task)
    assert task.phase == Phase.PENDING and task.retry_at is not None and not runs(task)
    assert task.fault.startswith("The portal at http://127.0.0.1:1 cannot be reached")


def test_the_log_gives_the_reason_of_a_postponed_task_once(
    runner: Runner, settings: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    task = runner.task(PLAY)
    monkeypatch.setattr(mirror, "_FETCH_PAUSES", ())
    values = {"worker_token": TOKEN, "url": "http://127.0.0.1:1"}
    settings.ENVIRONMENT = settings.ENVIRONMENT.model_copy(update=values)
    runner.advance(task)
    reason = "The portal at http://127.0.0.1:1 cannot be reached (ConnectionError)"
    assert f"task {task.pk} is postponed: {reason}" in caplog.messages


def test_a_task_that_is_removed_before_its_files_are_fetched_is_left_alone(
    runner: Runner, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = runner.task(PLAY)

    def removed(name: str) -> None:
        if name == "claimed":
            Task.objects.filter(pk=task.pk).delete()

    monkeypatch.setattr("tasks_app.engine.advance.crash_point", removed)
    assert advance.advance(task.pk, owner="tester", context=runner.context)
    assert "bug in the portal" not in caplog.text and "taken over" in caplog.text


def unrecorded(runner: Runner, monkeypatch: pytest.MonkeyPatch, lost: str) -> Task:
    """A task whose agent has finished, and whose host was lost before it had pushed what it recorded."""
    work = [Turn(calls=(write("paint.txt", "blue"),)), say("Painted.")]
    task = runner.task([*work, End(), *work])
    with monkeypatch.context() as patch:
        patch.setattr(judging, "record_work", Mock(side_effect=KeyboardInterrupt))  # as if it were killed
        with pytest.raises(KeyboardInterrupt):
            runner.advance(task)
    if lost == "its host":
        Run.objects.update(data_dir=uuid4())
    else:
        paths.remove_folder(paths.workspace(task).path)
    Task.objects.update(lease_expires=None, lease_owner="elsewhere:7:Worker-1")
    return task


@pytest.mark.parametrize("lost", ["its host", "its workspace"])
def test_r1_work_that_was_lost_before_it_was_recorded_is_not_judged_but_done_again(
    runner: Runner, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    task = unrecorded(runner, monkeypatch, lost)
    assert runner.advance(task).phase == Phase.DONE
    assert [run.outcome for run in runs(task)] == ["crashed", "finished"]
    assert "paint.txt" in diff_of(task)
    assert ("machine on which you worked was lost" in runs(task)[1].prompt) == (lost == "its host")


@pytest.mark.parametrize("returns", [True, False])
def test_m1_a_host_that_has_unrecorded_work_is_awaited_so_that_no_agent_is_paid_twice(
    runner: Runner, monkeypatch: pytest.MonkeyPatch, returns: bool
) -> None:
    """Its worker was restarted while it tried to push. Others take the task of a host that is lost (M3)."""
    task = unrecorded(runner, monkeypatch, "its host")
    WorkerBeatFactory.create(host="elsewhere", ended=True)
    here = replace(runner.context, labels=frozenset())
    assert not advance.advance(task.pk, owner="here:1:W", context=here)
    assert hosts_that_left(task.pk) == [host_name()]
    if returns:
        Run.objects.update(data_dir=None)  # this is the host
    else:
        WorkerBeat.objects.update(seen_at=timezone.now() - ALIVE_PERIOD - timedelta(seconds=1))
    assert advance.advance(task.pk, owner="here:1:W", context=here)
    task.refresh_from_db()
    assert task.phase == Phase.DONE and len(runs(task)) == (1 if returns else 2)
