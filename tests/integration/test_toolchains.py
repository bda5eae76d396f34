"""M5: a project asks for toolchains of the machine by name; the installation says which there are."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tasks_app import tasks
from tasks_app.core.labels import Labels
from tasks_app.core.phases import Phase
from tasks_app.engine.advance import advance
from tasks_app.engine.workers import heartbeat
from tasks_app.engine.workers.machine import toolchains_here
from tasks_app.models import Task, Transition, WorkerBeat, paths
from tasks_app.operations.doctor import data, machine
from tasks_app.sandbox import SandboxMode, detect
from tasks_app.schemas.workers import WorkerOut
from tasks_app.services.tasks import resume_task
from tasks_app.services.workers.queue import Queue, queue_sentence
from tests.factories import WorkerBeatFactory
from tests.fake_script import Act, Turn, say, write
from tests.people import acting
from tests.runner import Runner, runs

DONE: Sequence[Act] = (Turn(calls=(write("work.txt", "done\n"),)), say("Done."))
#: What must not be readable, whatever toolchain is chosen.
SECRETS = (
    ".cargo/credentials.toml", ".cargo/config.toml", ".npmrc", ".ssh/id_ed25519", ".gem/credentials",
    ".nvm/versions/node/v20.11.0/etc/npmrc", ".pyenv/versions/3.12.1/pip.conf", ".sdkman/etc/config",
    ".sdkman/candidates/maven/current/conf/settings.xml", ".sdkman/candidates/java/21/conf/management/x",
    "secret",
)  # fmt: skip


def program(path: Path, says: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho {says}\n")
    path.chmod(0o755)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of the worker's user, with the version managers' folders and with secrets among them."""
    home = tmp_path / "home-of-worker"
    program(home / ".cargo/bin/cargo", "cargo of rustup")
    program(home / ".rustup/toolchains/stable/bin/rustc", "rustc")
    program(home / ".nvm/versions/node/v20.11.0/bin/node", "node 20")
    program(home / ".nvm/versions/node/v9.1.0/bin/node", "node 9")
    program(home / ".pyenv/shims/python", "shim")
    program(home / ".pyenv/versions/3.12.1/bin/python", "python")
    program(home / ".sdkman/candidates/java/21/bin/java", "java 21")
    (home / ".sdkman/candidates/java/current").symlink_to("21")
    for name in SECRETS:
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("s3cret")
    (home / ".rustup/toolchains/linked").symlink_to(home)
    monkeypatch.setenv("HOME", str(home))
    for variable in ("RUSTUP_HOME", "CARGO_HOME", "NVM_DIR", "PYENV_ROOT", "SDKMAN_DIR"):
        monkeypatch.delenv(variable, raising=False)
    return home


def config(toolchains: str, check: str, setup: str = "") -> str:
    first = f"toolchains: {toolchains}\n" + (f"setup: '{setup}'\n" if setup else "")
    step = f"{{name: do, command: self, check: {{type: shell, command: '{check}'}}}}"
    return f"{first}pipelines: {{default: [{step}]}}\n"


@pytest.mark.bubblewrap
def test_m5_chosen_toolchains_are_in_the_sandbox_of_setup_agent_and_checks(
    runner: Runner, home: Path
) -> None:
    """With PATH and their variables, read-only, and nothing else of the home."""
    runner.sandbox = detect(SandboxMode.REQUIRE)
    calls = 'cargo && node && python && java && test -n "$RUSTUP_HOME" && test -n "$JAVA_HOME"'
    hidden = " ".join(str(home / name) for name in (*SECRETS, ".rustup/toolchains/linked/secret"))
    check = f"{calls} && ! cat {hidden} 2>/dev/null | grep -q . && ! touch {home}/.cargo/bin/x"
    check += f" && test -d {home}/.nvm/versions/node/v9.1.0/bin"
    text = config("[rust, node, python, java]", "sh ./check.sh", setup="sh ./check.sh")
    project = runner.project(text, **{"check.sh": check + "\n"})
    task = runner.task(DONE, project=project)
    assert runner.advance(task).phase == Phase.DONE, task.failure
    (report,) = runs(task)[0].checks or []
    output = report["output"]
    assert output.splitlines()[:4] == ["cargo of rustup", "node 20", "shim", "java 21"]
    order, installed = runner.fake.runs[0], f"{paths.setup_home(task)}/.local/bin"
    assert (
        order.variables["PATH"].startswith(f"{installed}:{home}/.cargo/bin:")
        and home / ".cargo/bin" in order.paths.readable
    )
    assert home not in order.paths.readable and home / ".cargo" not in order.paths.readable


@pytest.mark.bubblewrap
def test_a_project_that_names_none_sees_none(runner: Runner, home: Path) -> None:
    runner.sandbox = detect(SandboxMode.REQUIRE)
    task = runner.task(DONE, config=config("[]", f'! test -e {home}/.cargo && test -z "$RUSTUP_HOME"'))
    assert runner.advance(task).phase == Phase.DONE, runs(task)[-1].checks


def test_m5_a_toolchain_that_is_missing_fails_the_task_before_anything_is_spent(
    runner: Runner, home: Path
) -> None:
    """And the task goes on once it was installed."""
    (home / ".nvm").rename(home / "away")
    task = runner.advance(runner.task(DONE, config=config("node", "true", setup="true")))
    assert task.phase == Phase.FAILED and runs(task) == [] and task.setups.count() == 0
    assert task.failure.startswith(
        "The project needs the toolchain node (toolchains in cat-herder.yaml), which this worker does not"
        f" have: there is no folder {home}/.nvm, and NVM_DIR names no other."
    )
    (home / "away").rename(home / ".nvm")
    resume_task(task, by=acting(runner.user))
    assert runner.advance(task).phase == Phase.DONE, task.failure


def test_a_toolchain_that_nobody_listed_fails_the_task(runner: Runner, home: Path) -> None:
    task = runner.advance(runner.task(DONE, config=config("[etc]", "true")))
    assert task.phase == Phase.FAILED and "CATHERDER_TOOLCHAINS lists others" in task.failure


@pytest.mark.bubblewrap
def test_m5_a_listed_toolchain_is_chosen_by_name(runner: Runner, home: Path, settings: Any) -> None:
    runner.sandbox = detect(SandboxMode.REQUIRE)
    folder = home.parent / "go"
    program(folder / "bin/go", "go of the installation")
    values = {"toolchains": (("go", str(folder)),)}
    settings.ENVIRONMENT = settings.ENVIRONMENT.model_copy(update=values)
    task = runner.task(DONE, config=config("go", f"go && test $GO_HOME = {folder}"))
    assert runner.advance(task).phase == Phase.DONE, task.failure


def test_what_an_agent_writes_chooses_no_toolchain(runner: Runner, home: Path) -> None:
    acts: Sequence[Act] = (Turn(calls=(write("cat-herder.yaml", "toolchains: [rust]\n"),)), say("Done."))
    task = runner.advance(runner.task(acts, config=config("[]", "true")))
    assert task.phase == Phase.DONE and task.toolchains == ""
    assert dict(runner.fake.runs[0].variables) == {}


@pytest.mark.bubblewrap
def test_m5_the_real_agent_uses_a_toolchain(real: Runner, home: Path, settings: Any) -> None:
    """The scenario runs `bin/tool`, which is a script that calls the program on PATH."""
    program(home.parent / "go/bin/go", "go of the installation")
    values = {"toolchains": (("go", str(home.parent / "go")),)}
    settings.ENVIRONMENT = settings.ENVIRONMENT.model_copy(update=values)
    install = "mkdir bin; cp call-go bin/tool; chmod +x bin/tool"
    files = {".gitignore": "bin\n", "call-go": "#!/bin/sh\nexec go\n"}
    project = real.project(config("go", "grep of.the.installation seen.txt", setup=install), **files)
    task = real.advance(real.task(project=project, text="# Use it\n\nrehearsal: use-the-setup\n"))
    assert task.phase == Phase.DONE, task.failure


@pytest.mark.django_db
def test_m5_doctor_says_which_there_are_and_what_tasks_lack(
    runner: Runner, home: Path, settings: Any
) -> None:
    (shown,) = machine.toolchains()
    assert shown.text == "projects may ask for: java, node, python, rust"
    values = {"toolchains": (("go", "/absent/go"),)}
    settings.ENVIRONMENT = settings.ENVIRONMENT.model_copy(update=values)
    _, listed = machine.toolchains()
    assert "go: /absent/go" in listed.text and os.linesep not in listed.text
    project = runner.project(config("[go, rust]", "true"))
    assert list(data.missing_toolchains()) == []
    runner.task(DONE, project=project)
    (lacking,) = data.missing_toolchains()
    assert f"tasks of {project.name} need go, which is not here" in lacking.text


def advance_on_worker(runner: Runner, task: Task, labels: Labels | None = None) -> Task:
    """Work on the task as a worker that has `labels`, by default those of its toolchains."""
    own = toolchains_here() if labels is None else labels
    advance(task.pk, owner="worker", context=replace(runner.context, labels=own))
    task.refresh_from_db()
    return task


def test_m6_a_worker_that_lacks_a_toolchain_leaves_the_task_to_another(runner: Runner, home: Path) -> None:
    """The queue says what it waits for; no worker fails it."""
    (home / ".nvm").rename(home / "away")
    task = advance_on_worker(runner, runner.task(DONE, config=config("[node, rust]", "true")))
    assert task.phase == Phase.PENDING and task.lease_epoch == 0, "nobody claimed it"
    words = "Next in line: waits for a worker with the toolchain node and the toolchain rust"
    assert queue_sentence(task) == f"{words}, and no worker is running."
    beat = WorkerBeatFactory.create(labels=sorted(toolchains_here()), slots=2, busy=0)
    assert queue_sentence(task) == f"{words}, and none is running."
    (entry,) = Queue().seen_by(acting(runner.user))
    assert entry.waits_for == "labels"
    (home / "away").rename(home / ".nvm")
    type(beat).objects.filter(pk=beat.pk).update(labels=sorted(toolchains_here()))
    assert queue_sentence(task) == f"{words}, which will take it within seconds."
    assert advance_on_worker(runner, task).phase == Phase.DONE, task.failure


def test_m6_a_toolchain_that_was_just_removed_fails_no_task(runner: Runner, home: Path) -> None:
    """The worker leaves the task to others, once: it does not claim it again and again."""
    task, before = runner.task(DONE, config=config("node", "true")), toolchains_here()
    context = replace(runner.context, labels=before)
    removed = partial(os.rename, home / ".nvm", home / "away")
    advance(task.pk, owner="worker", context=context, when_claimed=removed)
    task.refresh_from_db()
    assert (task.phase, task.lease_epoch) == (Phase.PENDING, 1)
    reason = Transition.objects.filter(task=task, step=None).latest("pk").reason
    assert reason == "step “do” needs a worker with the toolchain node"
    assert advance_on_worker(runner, task, before).lease_epoch == 1, "nobody claimed it"
    (home / "away").rename(home / ".nvm")
    assert advance_on_worker(runner, task).phase == Phase.DONE, task.failure


def test_m6_workers_tell_which_toolchains_they_have(
    home: Path, db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeat, "close_old_connections", lambda: None)  # it is the test's own
    monkeypatch.setattr(tasks, "labels", frozenset({"gpu"}))
    (home / ".nvm").rename(home / "away")
    beating = heartbeat.Heartbeat(slots=1, find_labels=tasks.labels_here)
    beating._try_beat()
    shown = WorkerOut.from_row(WorkerBeat.objects.get())
    assert (shown.labels, shown.toolchains) == (["gpu"], ["java", "python", "rust"])


def readable_config(folder: Path | str, check: str) -> str:
    step = f"{{name: do, command: self, check: {{type: shell, command: '{check}'}}}}"
    return f"readable: ['{folder}']\npipelines: {{default: [{step}]}}\n"


@pytest.mark.bubblewrap
@pytest.mark.django_db(transaction=True)
def test_r4_only_listed_folders_can_be_read(
    runner: Runner, home: Path, settings: Any, tmp_path: Path
) -> None:
    """M5: read-only, and nothing beside it."""
    folder = tmp_path / "datasets"
    folder.mkdir()
    (folder / "numbers.csv").write_text("1,2\n")
    (tmp_path / "beside").write_text("s3cret")
    settings.ENVIRONMENT = settings.ENVIRONMENT.model_copy(update={"readable": (str(folder),)})
    check = f"grep -q 1,2 {folder}/numbers.csv && ! touch {folder}/x && ! test -e {tmp_path}/beside"
    runner.sandbox = detect(SandboxMode.REQUIRE, hidden=(Path(settings.DATA_DIR),))
    task = runner.advance(runner.task(DONE, config=readable_config(folder, check)))
    assert task.phase == Phase.DONE, task.failure


def test_m6_a_worker_that_does_not_show_a_folder_leaves_the_task_to_another(
    runner: Runner, home: Path, settings: Any, tmp_path: Path
) -> None:
    folder = tmp_path / "datasets"
    folder.mkdir()
    task = advance_on_worker(runner, runner.task(DONE, config=readable_config(folder, "true")))
    assert task.phase == Phase.PENDING and task.lease_epoch == 0
    assert f"a worker with the folder {folder}" in queue_sentence(task)
    settings.ENVIRONMENT = settings.ENVIRONMENT.model_copy(update={"readable": (str(folder),)})
    assert advance_on_worker(runner, task).phase == Phase.DONE, task.failure
