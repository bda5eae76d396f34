"""Creating a task: names, branches, and what is refused."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

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


def test_a_dirty_source_gives_its_newest_commit(runner: Runner) -> None:
    """Only what is committed is worked on; the source itself is never touched."""
    project = runner.project()
    (Path(project.source) / "uncommitted.txt").write_text("not yet")
    task = create_task(project, "# Paint it\n\nBlue.\n", by=acting(runner.user), where="test")
    paths.workspace(task).create(base=task.base_commit)
    assert not (paths.workspace(task).path / "uncommitted.txt").exists()
    assert (Path(project.source) / "uncommitted.txt").exists()
