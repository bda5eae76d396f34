"""R4: a data directory and a database of two installations are never used together, and no task ever sees
the files of another one, whatever numbers the rows have."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from uuid import uuid4

import pytest
from django.db import connection

from tasks_app.core.errors import WrongDataDirectory
from tasks_app.core.phases import Phase
from tasks_app.models import Installation, Project, SessionEntry, Task, installation, paths
from tasks_app.services.data_directory import (
    ID_FILE,
    Verdict,
    adopt,
    data_dir_problems,
    ownership,
    require_own_data_dir,
    set_aside,
)
from tests.fake_script import Turn, say, write
from tests.installation import Installation as Portal
from tests.runner import Runner, runs

SECRET = "the plans of the other project"


def worked(runner: Runner) -> Task:
    """A task that left a file in its workspace, in a directory that belongs to the database."""
    require_own_data_dir()
    task = runner.advance(runner.task([Turn(calls=(write("secret.txt", SECRET),)), say("Done.")]))
    assert (paths.workspace(task).path / "secret.txt").read_text() == SECRET
    return task


def forget_rows(*, next_task: int, next_project: int, identity: bool = True) -> None:
    """Another database: no projects, and the next rows get the given numbers."""
    Project.objects.all().delete()
    if identity:
        Installation.objects.all().delete()
    for table, number in ((Task._meta.db_table, next_task), (Project._meta.db_table, next_project)):
        with connection.cursor() as cursor:
            if connection.vendor == "sqlite":
                cursor.execute("UPDATE sqlite_sequence SET seq = %s WHERE name = %s", [number - 1, table])
            else:
                cursor.execute(f"ALTER SEQUENCE {table}_id_seq RESTART WITH {int(number)}")


@pytest.fixture
def before_keys(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Rows are made as they were before folders had a random part in their names; undo it for new ones."""
    monkeypatch.setattr(installation, "secrets", SimpleNamespace(token_hex=lambda size: ""))
    return monkeypatch


def test_a_task_with_the_number_of_an_old_one_does_not_see_its_files(runner: Runner) -> None:
    """A new database, or an older dump whose numbers are used again: nothing of the old folders is used."""
    old = worked(runner)
    repository = paths.repository(old.project)
    forget_rows(next_task=old.pk, next_project=old.project_id)
    later = Runner(runner.folder / "later", runner.user)
    new = later.task([say("Done.")])
    assert (new.pk, new.project_id) == (old.pk, old.project_id)
    later.advance(new)
    assert not (paths.workspace(new).path / "secret.txt").exists()
    assert not paths.repository(new.project).has(old.head_commit) and repository.has(old.head_commit)
    assert (paths.workspace(old).path / "secret.txt").read_text() == SECRET, "nothing was thrown away"


def test_a_restored_older_dump_keeps_its_own_tasks_and_none_of_the_later_ones(runner: Runner) -> None:
    kept = worked(runner)
    later = runner.advance(runner.task([Turn(calls=(write("secret.txt", SECRET),))], project=kept.project))
    number, folder = later.pk, paths.task_dir(later)
    later.delete()
    with connection.cursor() as cursor:
        table = Task._meta.db_table
        if connection.vendor == "sqlite":
            cursor.execute("UPDATE sqlite_sequence SET seq = %s WHERE name = %s", [number - 1, table])
        else:
            cursor.execute(f"ALTER SEQUENCE {table}_id_seq RESTART WITH {number}")
    require_own_data_dir()
    again = runner.advance(runner.task([say("Done.")], project=kept.project))
    assert again.pk == number and paths.task_dir(again) != folder
    assert not (paths.workspace(again).path / "secret.txt").exists()
    assert (paths.workspace(kept).path / "secret.txt").exists()


def test_an_empty_database_is_not_used_with_a_directory_that_has_work(runner: Runner) -> None:
    old = worked(runner)
    forget_rows(next_task=old.pk, next_project=old.project_id)
    with pytest.raises(WrongDataDirectory) as refusal:
        require_own_data_dir()
    for words in (str(paths.data_dir()), "1 repository, 1 task", "no projects", "set-aside"):
        assert words in str(refusal.value)
    assert data_dir_problems() == [str(refusal.value)]
    assert not Installation.objects.exists()


def test_a_database_of_another_installation_is_not_used(runner: Runner) -> None:
    worked(runner)
    before = (paths.data_dir() / ID_FILE).read_text().strip()
    other = uuid4()
    Installation.objects.update(identity=other)
    with pytest.raises(WrongDataDirectory, match="another installation") as refusal:
        require_own_data_dir()
    assert before in str(refusal.value) and str(other) in str(refusal.value)
    assert (paths.data_dir() / ID_FILE).read_text().strip() == before
    assert adopt().verdict is Verdict.SAME, "a person may say that they do belong together"
    require_own_data_dir()


def test_starting_anew_moves_the_old_work_aside_and_deletes_nothing(runner: Runner) -> None:
    old = worked(runner)
    inside = (paths.workspace(old).path / "secret.txt").relative_to(paths.data_dir())
    forget_rows(next_task=old.pk, next_project=old.project_id)
    moved = set_aside()
    assert (moved / inside).read_text() == SECRET and moved.stat().st_mode & 0o077 == 0
    require_own_data_dir()
    assert data_dir_problems() == []
    with pytest.raises(WrongDataDirectory, match="nothing was moved"):
        set_aside()


def test_directories_of_several_hosts_belong_to_one_database(runner: Runner, settings: object) -> None:
    worked(runner)
    first = ownership().folder_id
    settings.DATA_DIR = runner.folder / "other-host"  # type: ignore[attr-defined]
    paths.data_dir().mkdir()
    require_own_data_dir()
    assert ownership().folder_id == first and ownership().verdict is Verdict.SAME


@pytest.mark.bubblewrap
@pytest.mark.once(on="sqlite")
def test_an_older_installation_resumes_its_waiting_task(
    real: Runner, before_keys: pytest.MonkeyPatch
) -> None:
    """R1: the upgrade keeps the path under which the agent's session is stored, so that it is resumed."""
    task = real.advance(real.task(text="# Paint it\n\nrehearsal: ask-and-end\n"))
    assert task.phase == Phase.WAITING_FOR_INPUT
    assert paths.task_dir(task) == paths.data_dir() / "tasks" / str(task.pk)
    before_keys.undo()
    require_own_data_dir()  # there was no id on either side
    assert data_dir_problems() == []
    task = Task.objects.get(pk=task.pk)
    sessions = set(SessionEntry.objects.values_list("session_id", flat=True))
    real.answer_all(task, "Go on")
    assert real.advance(task).phase == Phase.DONE
    assert {str(run.session_id) for run in runs(task)} <= set(map(str, sessions)), "the same session went on"
    assert Task(pk=task.pk + 1).folder_key != ""


@pytest.mark.parametrize("made", ["work", "nothing"])
def test_an_old_directory_is_not_taken_by_a_database_that_does_not_know_its_commits(
    runner: Runner, before_keys: pytest.MonkeyPatch, made: str
) -> None:
    """Before there were ids the paths were numbers alone: the commits say whose they are. What was recorded
    decides, as another installation may work on the same source."""
    play = [Turn(calls=(write("new.txt", "new"),)), say("Done.")] if made == "work" else [say("Done.")]
    old = runner.advance(runner.task(play))
    column = "head_commit" if made == "work" else "base_commit"
    Task.objects.update(**{column: "1" * 40})
    if made == "nothing":
        Task.objects.update(head_commit="")
    with pytest.raises(WrongDataDirectory, match="none of its repositories has a commit") as refusal:
        require_own_data_dir()
    assert "installation adopt" in str(refusal.value)
    Task.objects.update(**{column: getattr(old, column)})
    require_own_data_dir()


def test_an_id_that_cannot_be_read_stops_the_start(runner: Runner) -> None:
    worked(runner)
    (paths.data_dir() / ID_FILE).write_text("nonsense\n")
    with pytest.raises(WrongDataDirectory, match="holds no installation id"):
        require_own_data_dir()
    (paths.data_dir() / ID_FILE).unlink()
    require_own_data_dir()
    assert ownership().verdict is Verdict.SAME


@pytest.mark.once(on="sqlite")
def test_no_command_starts_when_the_database_is_gone(installation: Portal) -> None:
    """The file of SQLite was removed, or DATABASE_URL names a new database: a sentence and exit 2."""
    for path in installation.data_dir.glob("catherder.sqlite3*"):
        path.unlink()
    before = sorted(installation.data_dir.glob("*/*"))
    refused_by(installation, "up", "--no-sample")
    assert installation.manage("migrate").returncode == 0
    for command in (["worker"], ["status"], ["clean_up", "workspaces"]):
        refused_by(installation, *command)
    assert sorted(installation.data_dir.glob("*/*")) == before
    shown = installation.manage("installation")
    assert shown.returncode == 1 and "2 repositories" in shown.stdout
    moved = installation.manage("installation", "set-aside")
    assert moved.returncode == 0 and "Nothing was deleted" in moved.stderr
    (aside,) = installation.data_dir.glob("set-aside-*")
    assert len(list(Path(aside / "repositories").glob("*.git"))) == 2
    assert installation.manage("status").returncode == 0


def refused_by(installation: Portal, *command: str) -> None:
    refused = installation.manage(*command, CATHERDER_BIND="127.0.0.1:0")
    assert refused.returncode == 2, refused.stdout + refused.stderr
    assert "2 repositories" in refused.stderr and "no projects" in refused.stderr
    assert "Traceback" not in refused.stderr
