"""M5: a new workspace is made ready by the project's commands, in the sandbox, before the first agent."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from django.db import connections
from django.test import Client
from django.urls import reverse

from tasks_app.agent.leftover_processes import marked_processes
from tasks_app.core.phases import Phase
from tasks_app.engine.stopping import StopReason
from tasks_app.engine.workspaces.setup import DEATHS
from tasks_app.models import Setup, Task, paths
from tasks_app.sandbox import SandboxMode, detect
from tasks_app.services.bulk import retry_from
from tasks_app.services.tasks import cancel_task, resume_task
from tests.addresses import text_of
from tests.browser import signed_in
from tests.crash.points import SETUP_POINTS
from tests.crash.test_sweep import bury, dies_at
from tests.fake_script import Act, End, Turn, say, write
from tests.people import acting
from tests.runner import Runner, diff_of, file_in, runs, step

PIPELINE = """\
pipelines:
  default:
    - {name: do, command: self, check: {type: shell, command: "CHECK"}}
"""
GUARDED = """\
pipelines:
  default:
    - {name: do, command: self, fileAccess: {allowWrite: ["work*"]}}
"""
SAME_COMMANDS = (
    "“Resume” runs the same commands, those that were committed when the task was created: what was corrected"
    " in cat-herder.yaml since then has no effect on it. “Duplicate” begins a new task with the new commands."
)
DONE = [Turn(calls=(write("work.txt", "done\n"),)), say("Done.")]


def configured(setup: str, *, check: str = "true") -> str:
    return f"setup: {setup}\n{PIPELINE.replace('CHECK', check)}"


@pytest.fixture
def sandboxed(runner: Runner) -> Runner:
    runner.sandbox = detect(SandboxMode.REQUIRE)
    return runner


def setups(task: Task) -> list[tuple[str, list[str]]]:
    return [(one.outcome, [report["command"] for report in one.reports]) for one in task.setups.all()]


@pytest.mark.bubblewrap
def test_m5_the_commands_run_before_the_first_agent(sandboxed: Runner) -> None:
    """In the sandbox, in the workspace; what they leave there and at home is there for the checks."""
    commands = "[mkdir node_modules, 'echo 1 >node_modules/dep; echo tool >~/tool; pwd; ls /']"
    check = "cat node_modules/dep work.txt $HOME/../setup-home/tool && ! touch $HOME/../setup-home/x"
    project = sandboxed.project(configured(commands, check=check), **{".gitignore": "node_modules\n"})
    task = sandboxed.task(DONE, project=project)
    assert sandboxed.advance(task).phase == Phase.DONE, task.failure
    setup = task.setups.get()
    assert (setup.outcome, setup.sandboxed, setup.problem, setup.current) == ("done", True, "", "")
    assert setup.ended_at and setup.ended_at <= runs(task)[0].started_at
    first, second = setup.reports
    assert (first["command"], first["exit_code"], first["output"]) == ("mkdir node_modules", 0, "")
    assert str(paths.workspace(task).path) in second["output"] and "home" not in second["output"].split()
    assert "node_modules" not in diff_of(task) and "work.txt" in diff_of(task)


@pytest.mark.bubblewrap
def test_programs_that_the_setup_installs_into_its_home_are_found(sandboxed: Runner) -> None:
    """As `uv tool install` and `pipx` do; by the setup's next command, and by checks and agents."""
    install = (
        'mkdir -p ~/.local/bin; printf "#!/bin/sh\\necho tool" >~/.local/bin/tool; chmod +x ~/.local/bin/tool'
    )
    task = sandboxed.task(DONE, config=configured(f"['{install}', tool]", check="tool"))
    assert sandboxed.advance(task).phase == Phase.DONE, task.failure
    assert sandboxed.fake.runs[0].variables["PATH"].startswith(f"{paths.setup_home(task)}/.local/bin:")


def test_a_setup_that_fails_fails_the_task_in_plain_words_and_a_retry_runs_it_again(runner: Runner) -> None:
    """The command, its exit code and its last lines; no agent has run, and no attempt is counted."""
    marker = runner.folder / "mended"
    commands = f"['echo first', 'seq 100; test -e {marker} || exit 7', 'echo third']"
    task = runner.task(DONE, config=configured(commands))
    assert runner.advance(task).phase == Phase.FAILED
    assert runs(task) == [] and step(task).phase == Phase.FAILED
    line, _, rest = task.failure.partition("\n")
    assert line == (
        f"The setup of the workspace failed: `seq 100; test -e {marker} || exit 7` failed with exit 7."
    )
    advice, lines = rest.removeprefix("\n").split("\n\n")
    assert lines.split("\n") == ["The last lines of its output:", *map(str, range(91, 101))]
    assert advice == SAME_COMMANDS
    assert [len(commands) for _, commands in setups(task)] == [2]
    marker.touch()
    resume_task(task, by=acting(runner.user))
    assert runner.advance(task).phase == Phase.DONE
    assert [(outcome, len(commands)) for outcome, commands in setups(task)] == [("failed", 2), ("done", 3)]


def test_a_ready_workspace_is_not_set_up_again(runner: Runner) -> None:
    """Neither for a later step, nor after a failed check, nor for the next task of a sequence."""
    config = configured("echo ran >>../ran", check="test -e two.txt")
    acts: list[Act] = [say("Not yet."), End(), Turn(calls=(write("two.txt", "2"),)), say("Now.")]
    config = config.replace("}}", "}, retry: 1}\n    - {name: again, command: implement}")
    task = runner.task(
        {"do": acts, "again": DONE}, config=config.replace("command: self", "command: implement")
    )
    assert runner.advance(task).phase == Phase.DONE, task.failure
    assert len(runs(task)) == 3
    assert (paths.task_dir(task) / "ran").read_text() == "ran\n"


def test_a_workspace_that_is_made_anew_is_set_up_again(runner: Runner) -> None:
    """A retry that puts the files back, and one whose folder somebody has removed."""
    task = runner.task(DONE, config=configured("echo ran >ready", check="cat ready"))
    assert runner.advance(task).phase == Phase.DONE
    retry_from(task, step(task), by=acting(runner.user), put_back=True)
    assert runner.advance(task).phase == Phase.DONE
    paths.remove_folder(paths.workspace(task).path)
    retry_from(task, step(task), by=acting(runner.user))
    assert runner.advance(task).phase == Phase.DONE
    assert [outcome for outcome, _ in setups(task)] == ["done"] * 3


def test_an_agent_cannot_change_the_setup_of_its_task(runner: Runner) -> None:
    """The committed file counts, as it was when the task was created."""
    acts = [Turn(calls=(write("cat-herder.yaml", "setup: touch ../../broken-in\n"),)), say("Done.")]
    task = runner.task(acts, config=configured("echo honest"))
    assert runner.advance(task).phase == Phase.DONE
    paths.remove_folder(paths.workspace(task).path)
    retry_from(task, step(task), by=acting(runner.user))
    assert runner.advance(task).phase == Phase.DONE
    assert "touch" in file_in(task, "cat-herder.yaml").read_text()
    assert setups(task) == [("done", ["echo honest"])] * 2


@pytest.mark.parametrize("restored", [False, True])
def test_what_the_setup_makes_is_not_blamed_on_a_guarded_step(runner: Runner, restored: bool) -> None:
    config = f"setup: 'echo 1 >generated; echo 2 >>lock'\n{GUARDED}"
    project = runner.project(config, **{".gitignore": "generated\n", "lock": "1\n"})
    task = runner.task(DONE, project=project)
    assert runner.advance(task).phase == Phase.DONE, task.failure
    if restored:
        retry_from(task, step(task), by=acting(runner.user), put_back=True)
        assert runner.advance(task).phase == Phase.DONE, task.failure


def test_a_command_over_its_time_fails_the_setup(runner: Runner) -> None:
    task = runner.task(DONE, config=configured("{run: sleep 60, timeout: 1}"))
    assert runner.advance(task).phase == Phase.FAILED
    assert task.failure.startswith("The setup of the workspace failed: `sleep 60` did not end within 1 sec")
    assert "It printed nothing." in task.failure


@pytest.mark.parametrize("reason", [StopReason.SHUTDOWN, StopReason.INTERRUPTED])
def test_a_setup_is_stopped_with_its_worker_and_goes_on_with_the_next(
    runner: Runner, reason: StopReason
) -> None:
    """R2: nothing of it is left running; it counts as no failure and is run again."""
    task = runner.task(DONE, config=configured("'test -e ../go || sleep 60'"))
    runner.stop_signal = lambda: reason
    runner.advance(task)
    assert task.phase == (Phase.PENDING if reason is StopReason.SHUTDOWN else Phase.INTERRUPTED)
    assert setups(task)[0][0] == "stopped"
    assert marked_processes(paths.workspace(task).path) == []
    (paths.task_dir(task) / "go").touch()
    runner.stop_signal = lambda: None
    if reason is StopReason.INTERRUPTED:
        resume_task(task, by=acting(runner.user))
    assert runner.advance(task).phase == Phase.DONE
    assert [outcome for outcome, _ in setups(task)] == ["stopped", "done"]


@pytest.mark.both
def test_a_task_that_is_cancelled_during_its_setup_ends(runner: Runner) -> None:
    task = runner.task(DONE, config=configured("['echo first', 'sleep 60']"))

    def cancel() -> None:
        if Setup.objects.filter(current="sleep 60").exists() and not Task.objects.get(pk=task.pk).is_ended:
            cancel_task(task, by=acting(runner.user))

    runner.stop_signal = cancel
    assert runner.advance(task).phase == Phase.CANCELLED
    assert setups(task)[0][0] == "stopped"
    assert marked_processes(paths.workspace(task).path) == []
    assert "It was stopped: cancelled." in signed_in(runner.user).get(reverse("task", args=[task.pk])).text


@pytest.mark.parametrize("point", SETUP_POINTS)
@pytest.mark.both
def test_r2_a_worker_that_dies_during_the_setup_is_replaced(runner: Runner, point: str) -> None:
    task = runner.task(DONE, config=configured("['echo one', 'echo ready >ready']", check="cat ready"))
    assert dies_at(point, lambda: runner.advance(task)) == 137
    bury(task)
    assert runner.advance(task).phase == Phase.DONE, task.failure
    ends = {"setup-done": ["done"]}.get(point, ["crashed", "done"])
    assert [outcome for outcome, _ in setups(task)] == ends
    assert len(runs(task)) == 1


@pytest.mark.both
def test_r2_a_setup_in_which_every_worker_dies_fails_the_task(runner: Runner) -> None:
    task = runner.task(DONE, config=configured("echo one"))
    for _ in range(DEATHS):
        assert dies_at("setup-command-ended", lambda: runner.advance(task)) == 137
        bury(task)
    assert runner.advance(task).phase == Phase.FAILED
    assert task.failure.startswith(f"The worker died {DEATHS} times in a row during the setup")
    resume_task(task, by=acting(runner.user))
    assert runner.advance(task).phase == Phase.DONE


def test_the_processes_of_a_dead_workers_setup_are_killed_before_the_next(runner: Runner) -> None:
    task = runner.task(DONE, config=configured("'test -e ../go || exec sleep 1000'"))
    workspace = paths.workspace(task).path
    worker = _worker_in_a_fork(runner, task)
    while not marked_processes(workspace):
        assert os.waitpid(worker, os.WNOHANG) == (0, 0), "the worker ended before its setup ran"
    os.kill(worker, signal.SIGKILL)
    os.waitpid(worker, 0)
    (paths.task_dir(task) / "go").touch()
    bury(task)
    assert runner.advance(task).phase == Phase.DONE
    assert marked_processes(workspace) == []
    assert [outcome for outcome, _ in setups(task)] == ["crashed", "done"]


def _worker_in_a_fork(runner: Runner, task: Task) -> int:
    connections.close_all()  # a connection cannot be shared with a fork
    child = os.fork()
    if child == 0:
        try:
            runner.advance(task)
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
    return child


@pytest.mark.bubblewrap
@pytest.mark.parametrize(("network", "reached"), [("full", True), ("none", False)])
def test_the_network_of_a_setup_is_its_own(sandboxed: Runner, network: str, reached: bool) -> None:
    command = "'test $(ls /sys/class/net /proc/net/dev >/dev/null; grep -c : /proc/net/dev) -gt 1'"
    config = (
        f"setup: {{run: {command}, network: {network}}}\nnetwork: none\n{PIPELINE.replace('CHECK', 'true')}"
    )
    outside = sum(":" in line for line in Path("/proc/net/dev").read_text().splitlines())
    task = sandboxed.task(DONE, config=config)
    sandboxed.advance(task)
    assert (task.phase == Phase.DONE) == (reached and outside > 1), task.failure


def test_a_setup_without_network_fails_where_none_can_be_taken_away(runner: Runner) -> None:
    task = runner.task(DONE, config=configured("{run: 'true', network: none}"))
    assert runner.advance(task).phase == Phase.FAILED
    assert task.failure.startswith("The setup must run without the network, which is impossible here:")


def test_a_task_of_a_project_without_a_setup_has_none(runner: Runner) -> None:
    task = runner.task(DONE)
    assert runner.advance(task).phase == Phase.DONE
    assert (task.setup, task.setups.count()) == (None, 0)


def test_w2_the_page_shows_the_setup_and_gives_its_log(runner: Runner, client: Client) -> None:
    config = configured("['echo installed 3 packages', 'seq 30; echo no such package >&2; exit 4']")
    task = runner.task(DONE, config=config)
    runner.advance(task)
    client.force_login(runner.user)
    page = client.get(reverse("task", args=[task.pk])).content.decode()
    assert "<h2>Setup</h2>" in page and "echo installed 3 packages" in page
    assert "no such package" in page and "failed with exit 4" in page
    assert "The setup of the workspace failed." in page and "Failed in step" not in page
    why = client.get(reverse("task_result", args=[task.pk])).content.decode()
    assert SAME_COMMANDS in why
    assert "no such package\n" in why or "no such package<" in why
    url = reverse("setup_log", args=[task.pk])
    assert url in page
    log = text_of(client.get(url))
    assert "$ echo installed 3 packages\ninstalled 3 packages\nSucceeded in " in log
    assert "no such package\n`seq 30; echo no such package >&2; exit 4` failed with exit 4." in log
    found = client.get(f"/api/v1/tasks/{task.pk}").json()
    assert task.setup is not None and found["setup"] == {
        "run": task.setup["run"], "timeout": 1800, "network": "full", "cache": None,
    }  # fmt: skip
    (setup,) = found["setups"]
    assert (setup["outcome"], setup["reports"][1]["exit_code"]) == ("failed", 4)


def test_a_step_that_fails_after_its_setup_is_named(runner: Runner, client: Client) -> None:
    task = runner.task(DONE, config=configured("'echo fine'", check="false"))
    assert runner.advance(task).phase == Phase.FAILED
    client.force_login(runner.user)
    page = client.get(reverse("task", args=[task.pk])).content.decode()
    assert "Failed in step “do”." in page and "The setup of the workspace failed" not in page


def test_a_running_setup_is_shown_with_its_command(runner: Runner, client: Client) -> None:
    task = runner.task(DONE, config=configured("'echo now'"))
    Setup.objects.create(task=task, number=1, current="npm ci --verbose")
    client.force_login(runner.user)
    page = client.get(reverse("task_timeline", args=[task.pk])).content.decode()
    assert "npm ci --verbose" in page and "running" in page
    log = text_of(client.get(reverse("setup_log", args=[task.pk])))
    assert "$ npm ci --verbose\nNot ended yet." in log


def test_without_a_setup_its_log_says_so(runner: Runner, client: Client) -> None:
    task = runner.task(DONE)
    client.force_login(runner.user)
    assert "had no setup" in text_of(client.get(reverse("setup_log", args=[task.pk])))
    page = client.get(reverse("task", args=[task.pk])).content.decode()
    assert reverse("setup_log", args=[task.pk]) not in page


@pytest.mark.bubblewrap
def test_m5_the_real_agent_uses_what_the_setup_installed(real: Runner) -> None:
    """A link from the workspace to the setup's home leads there in its sandbox, and it can only read."""
    install = "mkdir -p bin ~/tools; echo echo installed >~/tools/tool; ln -s ~/tools/tool bin/tool"
    project = real.project(configured(f"'{install}'", check="cat seen.txt"), **{".gitignore": "bin\n"})
    task = real.advance(real.task(project=project, text="# Use it\n\nrehearsal: use-the-setup\n"))
    assert task.phase == Phase.DONE, task.failure
    assert setups(task) == [("done", [install])]
    assert file_in(task, "seen.txt").read_text() == "installed\n"
    assert (paths.setup_home(task) / "tools/tool").read_text() == "echo installed\n"
