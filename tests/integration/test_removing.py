"""Removing projects and the workspaces of old tasks: all of it goes, and nothing else."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from django.utils import timezone

from tasks_app.core.errors import IllegalMove, WorkspaceError
from tasks_app.core.phases import Phase
from tasks_app.engine.lease import Lease
from tasks_app.engine.workspaces.cleaning import clean_workspaces
from tasks_app.models import Project, SessionEntry, Task, paths
from tasks_app.services.projects.projects import remove_project
from tests.fake_script import Turn, say, write
from tests.people import acting
from tests.runner import Runner, runs

PAINTS = [Turn(calls=(write("red.txt", "red"),)), say("Done.")]


def done_task(runner: Runner) -> Task:
    return runner.advance(runner.task(PAINTS))


def leave_read_only(folder: Path) -> None:
    """As Go's module cache is."""
    deep = folder / "outer" / "inner"
    deep.mkdir(parents=True)
    (deep / "file").write_text("kept")
    for place in (deep, deep.parent):
        place.chmod(0o500)


class TestProject:
    def test_it_stays_while_a_worker_holds_a_task_that_is_cancelled(self, runner: Runner) -> None:
        task = runner.task(PAINTS)
        assert Lease.claim(task.pk, owner="somebody")
        Task.objects.filter(pk=task.pk).update(phase=Phase.CANCELLED)
        with pytest.raises(IllegalMove, match="its agent is just ending; try again in a moment"):
            remove_project(task.project, by=acting(runner.user))
        assert Project.objects.exists()

    def test_transcripts_of_its_sessions_go_and_others_stay(self, runner: Runner) -> None:
        task = done_task(runner)
        mine, other = str(runs(task)[0].session_id), "12345678-1234-4234-8234-123456789012"
        for session in (mine, other):
            SessionEntry.objects.append({"project_key": "p", "session_id": session}, [{"said": "secret"}])
        remove_project(task.project, by=acting(runner.user))
        assert set(SessionEntry.objects.values_list("session_id", flat=True)) == {other}

    def test_nothing_of_it_is_left_in_the_data_directory(self, runner: Runner) -> None:
        task = done_task(runner)
        leave_read_only(paths.home(task))
        remove_project(task.project, by=acting(runner.user))
        assert list(paths.data_dir().glob("*/*")) == []


def test_a_folder_outside_of_the_data_directory_is_left_alone(runner: Runner, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    paths.data_dir().mkdir(exist_ok=True)
    link = paths.data_dir() / "link"
    link.symlink_to(tmp_path / "elsewhere")
    for folder in (tmp_path / "elsewhere", link, paths.data_dir()):
        with pytest.raises(WorkspaceError, match="is not a folder of the data directory"):
            paths.remove_folder(folder)
    assert (tmp_path / "elsewhere").is_dir()


def test_an_old_workspace_goes_with_its_read_only_folders(runner: Runner) -> None:
    task = done_task(runner)
    leave_read_only(paths.home(task))
    Task.objects.update(ended_at=timezone.now() - timedelta(days=30))
    (cleaned,) = clean_workspaces(older_than=timedelta(days=14), sandbox=runner.sandbox)
    assert cleaned.freed and not cleaned.kept
    assert not paths.workspace(task).path.exists() and not paths.home(task).exists()
