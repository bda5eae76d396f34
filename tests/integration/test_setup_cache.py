"""M5: what one task's setup has made, other tasks with the same lock files begin with."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from django.db import connections

from tasks_app.core.phases import Phase
from tasks_app.engine.workspaces.setup import evict, locked_entry
from tasks_app.models import Project, Setup, Task, paths
from tasks_app.sandbox import SandboxMode, detect
from tasks_app.services.bulk import retry_from
from tasks_app.services.projects.projects import remove_project
from tests.crash.points import SETUP_CACHE_POINTS
from tests.crash.test_sweep import bury, dies_at
from tests.fake_script import Turn, say, write
from tests.integration.git_repository import GitRepository
from tests.people import acting
from tests.runner import Runner, step

CONFIG = """\
setup:
  run: RUN
  cache: {key: [lock, missing.lock], paths: [~/.tool, made, a/b]}
pipelines:
  default:
    - {name: do, command: self, check: {type: shell, command: "cat made"}}
"""
#: Downloads unless the cache has it, and counts that in a file that all tasks share.
DOWNLOAD = (
    "'test -e ~/.tool/data || { echo built >>COUNT; mkdir -p ~/.tool a/b; echo 1 >~/.tool/data;"
    " ln -s /etc/shadow ~/.tool/link; }; date +%N >>made; echo hit=$CAT_HERDER_CACHE_HIT'"
)
DONE = [Turn(calls=(write("work.txt", "done\n"),)), say("Done.")]


def project_with(runner: Runner, run: str = DOWNLOAD, **files: str) -> Project:
    config = CONFIG.replace("RUN", run).replace("COUNT", str(runner.folder / "count"))
    return runner.project(config, **{"lock": "1\n", ".gitignore": "made\n", **files})


def built(runner: Runner) -> int:
    count = runner.folder / "count"
    return len(count.read_text().splitlines()) if count.exists() else 0


def caches(task: Task) -> list[str]:
    return [setup.cache for setup in task.setups.all()]


def entries() -> list[Path]:
    return [path for path in paths.setup_caches().glob("*/*") if path.suffix != ".lock"]


def finished(runner: Runner, project: Project) -> Task:
    task = runner.task(DONE, project=project)
    assert runner.advance(task).phase == Phase.DONE, task.failure
    return task


@pytest.mark.bubblewrap
def test_m5_a_later_task_begins_with_what_the_first_one_made(runner: Runner) -> None:
    """Links stay links, and the entry itself does not change when a task changes its copy."""
    runner.sandbox = detect(SandboxMode.REQUIRE)
    project = project_with(runner, DOWNLOAD.replace("COUNT", "$HOME/count"))
    first, second = finished(runner, project), finished(runner, project)
    assert (caches(first), caches(second)) == (["filled"], ["used"])
    outputs = [task.setups.get().reports[0]["output"] for task in (first, second)]
    assert outputs == ["hit=false\n", "hit=true\n"]
    (entry,) = entries()
    assert (entry / "home/.tool/link").readlink() == Path("/etc/shadow")
    assert (paths.setup_home(second) / ".tool/link").readlink() == Path("/etc/shadow")
    made = [(paths.workspace(task).path / "made").read_text().splitlines() for task in (first, second)]
    assert made[1][0] == made[0][0] and len(made[1]) == 2
    assert (entry / "workspace/made").read_text().splitlines() == made[0]


def test_another_lock_file_another_cache(runner: Runner) -> None:
    project = project_with(runner)
    finished(runner, project)
    source = Path(project.source)
    GitRepository(source).commit(lock="2\n")
    assert caches(finished(runner, project)) == ["filled"]
    GitRepository(source).commit(**{"other.txt": "no part of the key"})
    assert caches(finished(runner, project)) == ["used"]
    assert (built(runner), len(entries())) == (2, 2)


def test_m5_another_version_of_a_toolchain_another_cache(runner: Runner, settings: Any) -> None:
    tool = runner.folder / "tool"
    (tool / "bin").mkdir(parents=True)
    settings.ENVIRONMENT = settings.ENVIRONMENT.model_copy(update={"toolchains": (("tool", str(tool)),)})
    project = project_with(runner)
    without = finished(runner, project)
    config = (Path(project.source) / "cat-herder.yaml").read_text()
    GitRepository(Path(project.source)).commit(**{"cat-herder.yaml": f"toolchains: tool\n{config}"})
    tasks = [without, finished(runner, project), finished(runner, project)]
    (tool / "bin/tool-2").touch()
    os.utime(tool / "bin", (1, 1))
    tasks += [finished(runner, project), finished(runner, project)]
    found = [caches(task) for task in tasks]
    assert found == [["filled"], ["filled"], ["used"], ["filled"], ["used"]]
    assert (built(runner), len(entries())) == (3, 3)


def test_projects_share_nothing(runner: Runner) -> None:
    assert caches(finished(runner, project_with(runner))) == ["filled"]
    assert caches(finished(runner, project_with(runner))) == ["filled"]


def worker_in_a_fork(runner: Runner, task: Task) -> int:
    connections.close_all()  # a connection cannot be shared with a fork
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if runner.advance(task).phase == Phase.DONE else 1
        finally:
            os._exit(code)
    return child


def await_setups(number: int, **states: str) -> None:
    deadline = time.monotonic() + 60
    while Setup.objects.filter(**states).count() < number:
        assert time.monotonic() < deadline, list(Setup.objects.values("cache", "current", "outcome"))
        time.sleep(0.05)


@pytest.mark.both
def test_m5_two_tasks_at_the_same_moment_fill_the_cache_once(runner: Runner) -> None:
    """The second waits for the first, which works until somebody lets it go on."""
    go = runner.folder / "go"
    slow = DOWNLOAD.replace("mkdir -p", f"while ! test -e {go}; do sleep 0.05; done; mkdir -p")
    project = project_with(runner, slow)
    tasks = [runner.task(DONE, project=project) for _ in range(3)]
    workers = [worker_in_a_fork(runner, task) for task in tasks]
    await_setups(2, cache="waits")
    go.touch()
    ends = [os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1]) for worker in workers]
    assert (ends, built(runner)) == ([0, 0, 0], 1)
    assert sorted(caches(task)[0] for task in tasks) == ["filled", "used", "used"]


@pytest.mark.both
def test_a_waiting_task_takes_over_from_a_worker_that_is_killed(runner: Runner) -> None:
    project = project_with(
        runner,
        "'echo built >>COUNT; test -e GO || sleep 1000; mkdir -p ~/.tool; touch made'".replace(
            "GO", str(runner.folder / "go")
        ),
    )
    first, second = (runner.task(DONE, project=project) for _ in range(2))
    killed = worker_in_a_fork(runner, first)
    await_setups(1, cache="unused")
    waiting = worker_in_a_fork(runner, second)
    await_setups(1, cache="waits")
    (runner.folder / "go").touch()
    os.kill(killed, signal.SIGKILL)
    os.waitpid(killed, 0)
    assert os.waitstatus_to_exitcode(os.waitpid(waiting, 0)[1]) == 0
    assert caches(second) == ["filled"]
    bury(first)
    assert runner.advance(first).phase == Phase.DONE
    assert caches(first) == ["unused", "used"]


@pytest.mark.parametrize("point", SETUP_CACHE_POINTS)
def test_r2_a_worker_that_dies_leaves_no_half_made_cache(runner: Runner, point: str) -> None:
    project = project_with(runner)
    task = runner.task(DONE, project=project)
    assert dies_at(point, lambda: runner.advance(task)) == 137
    assert [path.suffix for path in entries()] == [".new"]
    assert caches(finished(runner, project)) == ["filled"]
    assert [path.suffix for path in entries()] == [""]


def test_a_setup_that_fails_fills_no_cache(runner: Runner) -> None:
    task = runner.task(DONE, project=project_with(runner, "'mkdir -p ~/.tool; exit 3'"))
    assert runner.advance(task).phase == Phase.FAILED
    assert entries() == []


def test_r4_a_workspace_in_which_an_agent_has_worked_fills_no_cache(runner: Runner) -> None:
    """What it wrote would be what other tasks begin with."""
    project = project_with(runner)
    task = finished(runner, project)
    paths.remove_folder(paths.setup_caches())
    paths.remove_folder(paths.workspace(task).path)
    retry_from(task, step(task), by=acting(runner.user))
    assert runner.advance(task).phase == Phase.DONE
    assert (caches(task), entries()) == (["filled", "unused"], [])


def test_caches_are_removed_by_size_but_not_while_they_are_used(tmp_path: Path, settings: Any) -> None:
    """The one that was not used for the longest time first."""
    settings.DATA_DIR = tmp_path
    for age, name in enumerate("abcd"):
        entry = tmp_path / "project" / name
        entry.mkdir(parents=True)
        (entry / "size").write_text("100")
        (entry / "file").touch()
        entry.joinpath("read-only").mkdir(mode=0o500)
        os.utime(entry, (1000 + age, 1000 + age))
    with locked_entry(tmp_path / "project" / "a", may_fill=True, wait=lambda: pytest.fail("waits")) as used:
        assert used.hit
        assert evict(tmp_path, limit=250) == 2
        assert sorted(path.name for path in (tmp_path / "project").iterdir() if path.is_dir()) == ["a", "d"]
    assert evict(tmp_path, limit=100) == 1
    assert [path.name for path in (tmp_path / "project").iterdir() if path.is_dir()] == ["d"]


def test_a_cache_larger_than_all_may_be_is_not_kept(runner: Runner, settings: Any) -> None:
    settings.ENVIRONMENT = settings.ENVIRONMENT.model_copy(update={"setup_caches": 1000})
    assert caches(finished(runner, project_with(runner, "'head -c 100000 /dev/urandom >made'"))) == ["unused"]
    assert entries() == []


def test_without_room_for_caches_there_are_none(runner: Runner, settings: Any) -> None:
    settings.ENVIRONMENT = settings.ENVIRONMENT.model_copy(update={"setup_caches": 0})
    assert caches(finished(runner, project_with(runner))) == [""]
    assert not paths.setup_caches().exists()


def test_the_caches_of_a_project_are_removed_with_it(runner: Runner) -> None:
    project = project_with(runner)
    finished(runner, project)
    folder = paths.setup_caches_of(project)
    assert folder.is_dir()
    remove_project(project, by=acting(runner.user))
    assert not folder.exists()
