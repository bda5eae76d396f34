"""M5: setups with the real npm and the real uv, in the sandbox, against a package registry on loopback."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tasks_app.core.phases import Phase
from tasks_app.models import Project, Task, paths
from tests import machine
from tests.fake_script import Turn, say, write
from tests.integration.git_repository import GitRepository
from tests.integration.test_setup_cache import await_setups, caches, worker_in_a_fork
from tests.package_registry import TARBALL, WHEEL, PackageRegistry, package_registry
from tests.runner import Runner, file_in, runs

pytestmark = [pytest.mark.bubblewrap, pytest.mark.npm]
UV = Path(sys.prefix) / "bin/uv"
CONFIG = """\
setup:
  run: [npm ci --prefer-offline, uv sync]
  cache:
    key: [package-lock.json, uv.lock]
    paths: [~/.npm, ~/.cache/uv]
toolchains: [uv]
pipelines:
  default:
    - {name: do, command: self, check: {type: shell, command: "sh bin/tool"}}
"""
#: What the setup has installed must work in the sandboxes of checks and agents.
TOOL = "set -e; node_modules/.bin/greet; .venv/bin/greet; uv run --offline greet\n"
GREETINGS = "hello from npm\nhello from uv\nhello from uv\n"
DONE = [Turn(calls=(write("work.txt", "done\n"),)), say("Done.")]


@pytest.fixture
def registry() -> Iterator[PackageRegistry]:
    with package_registry() as registry:
        yield registry


@pytest.fixture
def uv_here(runner: Runner, settings: Any) -> None:
    """The installation lists the real uv as the toolchain `uv`."""
    programs = runner.folder / "tools/uv/bin"
    programs.mkdir(parents=True)
    shutil.copy(UV, programs)
    listed = (("uv", str(programs.parent)),)
    settings.ENVIRONMENT = settings.ENVIRONMENT.model_copy(update={"toolchains": listed})


def files_of(registry: PackageRegistry, folder: Path) -> dict[str, str]:
    """Return the files of a project with a dependency of each kind, for which uv has made the lock file."""
    files = {**registry.npm_project(), **registry.uv_project()}
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text)
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), "UV_CACHE_DIR": str(folder / "cache")}
    subprocess.run([UV, "lock", "--quiet"], cwd=folder, env=env, check=True)
    registry.requested.clear()
    return {
        **files,
        "uv.lock": (folder / "uv.lock").read_text(),
        "bin/tool": TOOL,
        ".gitignore": "node_modules\n.venv\n",
    }


@pytest.fixture
def project(runner: Runner, registry: PackageRegistry) -> Project:
    runner.sandbox = machine.sandbox(runner.folder / "data")
    return runner.project(CONFIG, **files_of(registry, runner.folder / "locking"))


def finished(runner: Runner, project: Project) -> Task:
    task = runner.task(DONE, project=project)
    assert runner.advance(task).phase == Phase.DONE, task.failure
    return task


def checked(task: Task) -> str:
    """Return what the check printed."""
    (report,) = runs(task)[-1].checks or []
    return str(report["output"])


def outputs(task: Task) -> str:
    return "".join(report["output"] for report in task.setups.get().reports)


@pytest.mark.usefixtures("uv_here")
def test_m5_npm_and_uv_download_once_for_all_tasks_with_the_same_lock_files(
    runner: Runner, project: Project, registry: PackageRegistry
) -> None:
    """What they installed works in the sandbox of the check, and a changed lock file downloads again."""
    tasks, downloads = [], []
    for _ in range(3):
        tasks.append(finished(runner, project))
        downloads.append(registry.downloads)
        registry.requested.clear()
        if len(tasks) == 2:
            lock = (Path(project.source) / "package-lock.json").read_text()
            GitRepository(Path(project.source)).commit(**{"package-lock.json": f"{lock}\n"})
    assert [caches(task) for task in tasks] == [["filled"], ["used"], ["filled"]]
    assert downloads == [[TARBALL, WHEEL], [], [TARBALL, WHEEL]]
    for task in tasks:
        assert checked(task) == GREETINGS
        assert "added 1 package" in outputs(task) and "+ greeting==1.0" in outputs(task)
        assert "warn" not in outputs(task).lower()


@pytest.mark.usefixtures("uv_here")
def test_m5_npm_and_uv_download_once_for_tasks_that_begin_at_the_same_moment(
    runner: Runner, project: Project, registry: PackageRegistry
) -> None:
    tasks = [runner.task(DONE, project=project) for _ in range(2)]
    with registry.held():
        workers = [worker_in_a_fork(runner, task) for task in tasks]
        await_setups(1, cache="waits")
    assert [os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1]) for worker in workers] == [0, 0]
    assert sorted(caches(task)[0] for task in tasks) == ["filled", "used"]
    assert registry.downloads == [TARBALL, WHEEL]


@pytest.mark.usefixtures("uv_here")
def test_m5_installed_folders_are_there_in_another_workspace_without_another_installation(
    runner: Runner, registry: PackageRegistry
) -> None:
    """`.venv` too, if it is relocatable: its programs name no path of the first workspace."""
    config = CONFIG.replace("[~/.npm, ~/.cache/uv]", "[node_modules, .venv]").replace(
        "[npm ci --prefer-offline, uv sync]",
        "$CAT_HERDER_CACHE_HIT || { npm ci && uv venv --relocatable && uv sync; }",
    )
    files = files_of(registry, runner.folder / "locking")
    runner.sandbox = machine.sandbox(runner.folder / "data")
    project = runner.project(config, **files)
    first = finished(runner, project)
    paths.remove_folder(paths.task_dir(first))
    registry.requested.clear()
    second = finished(runner, project)
    assert (caches(second), outputs(second), registry.requested) == (["used"], "", [])
    assert checked(second) == GREETINGS


@pytest.mark.usefixtures("uv_here", "real")
def test_m5_the_real_agent_uses_what_npm_and_uv_installed(runner: Runner, project: Project) -> None:
    """In its sandbox, which has another home than the setup's."""
    task = runner.task(project=project, text="# Use it\n\nrehearsal: use-the-setup\n")
    assert runner.advance(task).phase == Phase.DONE, task.failure
    assert file_in(task, "seen.txt").read_text() == GREETINGS


def test_a_program_that_the_machine_lacks_is_named_with_what_to_do(
    runner: Runner, project: Project, registry: PackageRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = CONFIG.replace("toolchains: [uv]\n", "")
    GitRepository(Path(project.source)).commit(**{"cat-herder.yaml": config})
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    task = runner.task(DONE, project=project)
    assert runner.advance(task).phase == Phase.FAILED
    assert "`uv sync` failed with exit 127." in task.failure and "uv: command not found" in task.failure
    assert "the toolchains that cat-herder.yaml names" in task.failure
    assert registry.downloads == [TARBALL]
