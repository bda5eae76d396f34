"""Creating a task: names, branches, and what is refused."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tasks_app.git.program import Git
from tasks_app.models import paths
from tasks_app.services.tasks import create_task
from tests.people import acting
from tests.runner import Runner

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_branch_with_other_work_is_left_alone(runner: Runner) -> None:
    """P9: the source has a branch of the name that the task would get."""
    project = runner.project()
    subprocess.run(["git", "branch", "cat-herder/paint-it"], cwd=project.source, check=True)
    task = create_task(project, "# Paint it\n\nBlue.\n", by=acting(runner.user), where="test")
    assert (task.slug, task.branch) == ("paint-it-2", "cat-herder/paint-it-2")


def test_a_folder_of_branches_has_taken_its_name(runner: Runner) -> None:
    """git cannot store a branch whose name is that of a folder of branches."""
    project = runner.project()
    for branch in ("cat-herder/paint-it/again", "cat-herder/paint-it-2/too", "cat-herder/paint-it-4"):
        subprocess.run(["git", "branch", branch], cwd=project.source, check=True)
    slugs = [
        create_task(project, "# Paint it\n\nBlue.\n", by=acting(runner.user), where="test").slug
        for _ in range(2)
    ]
    assert slugs == ["paint-it-3", "paint-it-5"]


def test_the_twentieth_task_of_a_title_does_not_ask_git_for_each_name(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = runner.project()
    for number in range(2, 20):
        subprocess.run(["git", "branch", f"cat-herder/paint-it-{number}"], cwd=project.source, check=True)
    processes: list[str] = []
    group = Git._group

    def counted(self: Git, command: list[str], stdin: Any) -> Any:
        processes.append(" ".join(command))
        return group(self, command, stdin)

    monkeypatch.setattr(Git, "_group", counted)
    started = []
    for slug in ("paint-it", "paint-it-20"):
        processes.clear()
        task = create_task(project, "# Paint it\n\nBlue.\n", by=acting(runner.user), where="test")
        started.append(len(processes))
        assert task.slug == slug
    assert started[1] <= started[0] + 1, processes  # git checks its own name, too


def test_a_dirty_source_gives_its_newest_commit(runner: Runner) -> None:
    """Only what is committed is worked on; the source itself is never touched."""
    project = runner.project()
    (Path(project.source) / "uncommitted.txt").write_text("not yet")
    task = create_task(project, "# Paint it\n\nBlue.\n", by=acting(runner.user), where="test")
    paths.workspace(task).create(base=task.base_commit)
    assert not (paths.workspace(task).path / "uncommitted.txt").exists()
    assert (Path(project.source) / "uncommitted.txt").exists()
