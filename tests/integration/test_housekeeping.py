"""What no row needs any more is freed: folders on worker hosts, and objects of repositories."""

from __future__ import annotations

import fcntl
import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from tasks_app.engine.workspaces import housekeeping
from tasks_app.engine.workspaces.cleaning import clean_workspaces
from tasks_app.engine.workspaces.housekeeping import (
    FIELDS_WITH_COMMITS,
    Housekeeper,
    prune_repositories,
    remove_unused_folders,
)
from tasks_app.git import Repository, pruning
from tasks_app.git.durable import move_file_into_place, temporary_name
from tasks_app.git.lfs import added_contents, all_named, is_kept, path_of
from tasks_app.git.pruning import KEPT, prune
from tasks_app.models import Task, paths
from tasks_app.operations import local_sandbox
from tasks_app.services.projects.projects import fetch
from tests.fake_script import Turn, say, write
from tests.integration.conftest import Manage
from tests.integration.git_repository import GitRepository
from tests.runner import Runner
from tests.waiting import wait_until

PAINTS = [Turn(calls=(write("red.txt", "red"),)), say("Done.")]
TOKEN = "cathw_build-2." + 43 * "A"


@pytest.fixture
def become_worker_host(settings: Any) -> Callable[[], None]:
    """Make this host a worker host, once a test has made its project on the portal's."""

    def become() -> None:
        values = {"worker_token": TOKEN, "url": "https://herder.example.org"}
        settings.ENVIRONMENT = settings.ENVIRONMENT.model_copy(update=values)

    return become


def remains_of_a_project(runner: Runner) -> set[Path]:
    """Remove a project as the portal does: with its rows, and no folder of this host."""
    task = runner.advance(runner.task(PAINTS))
    folders = {
        paths.repository(task.project).path,
        paths.setup_caches_of(task.project),
        paths.submodules_of(task.project),
        paths.task_dir(task),
    }
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "file").write_text("left")
    paths.repository(task.project).lock_file.touch()
    task.project.delete()
    return folders


@pytest.mark.django_db
class TestFoldersOnAWorkerHost:
    def test_those_of_a_removed_project_go(
        self, runner: Runner, become_worker_host: Callable[[], None]
    ) -> None:
        folders = remains_of_a_project(runner)
        become_worker_host()
        removed = list(remove_unused_folders())
        assert {one.path for one in removed if not one.path.name.endswith("lock")} == folders
        assert not any(folder.exists() for folder in folders)
        assert all(one.freed and not one.kept for one in removed if one.path in folders)
        assert list(remove_unused_folders()) == []

    def test_those_of_others_stay(self, runner: Runner, become_worker_host: Callable[[], None]) -> None:
        task = runner.advance(runner.task(PAINTS))
        become_worker_host()
        paths.setup_caches_of(task.project).mkdir(parents=True)
        other = paths.data_dir() / "repositories" / ".workspace-x7"  # a recording in flight
        other.mkdir(parents=True)
        (paths.data_dir() / "tasks" / "notes").mkdir()
        assert list(remove_unused_folders()) == []
        assert other.exists() and paths.workspace(task).path.exists()

    def test_a_folder_of_another_database_with_the_same_id_goes(
        self, runner: Runner, become_worker_host: Callable[[], None]
    ) -> None:
        task = runner.task(PAINTS)
        become_worker_host()
        stranger = paths.task_dir(task).with_name(f"{task.pk}-{16 * 'f'}")
        stranger.mkdir(parents=True)
        assert [one.path for one in remove_unused_folders()] == [stranger]

    @pytest.mark.parametrize("kind", ["agent", "fetch", "setup", "submodule"])
    def test_one_that_a_process_uses_stays(
        self, runner: Runner, become_worker_host: Callable[[], None], kind: str
    ) -> None:
        task = runner.advance(runner.task(PAINTS))
        project = task.project
        used, lock = {
            "agent": (paths.task_dir(task), paths.lock_file(task)),
            "fetch": (paths.repository(project).path, paths.repository(project).lock_file),
            "setup": (paths.setup_caches_of(project), paths.setup_caches_of(project) / "key.lock"),
            "submodule": (paths.submodules_of(project), paths.submodules_of(project) / "x.git.lock"),
        }[kind]
        used.mkdir(parents=True, exist_ok=True)
        project.delete()
        become_worker_host()
        with lock.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            (kept,) = [one for one in remove_unused_folders() if one.path == used]
            assert kept.kept == "a process uses it" and used.exists()
        assert used in [one.path for one in remove_unused_folders()] and not used.exists()

    def test_a_dry_run_removes_nothing(
        self, runner: Runner, become_worker_host: Callable[[], None], manage: Manage
    ) -> None:
        folders = remains_of_a_project(runner)
        become_worker_host()
        code, out, _ = manage("clean_up", "workspaces", "--dry-run")
        assert code == 0 and all(f"would go {folder}" in out for folder in folders)
        assert all(folder.exists() for folder in folders)
        code, out, _ = manage("clean_up", "workspaces")
        assert code == 0 and all(f"freed    {folder}" in out for folder in folders)
        assert not any(folder.exists() for folder in folders)


@pytest.mark.django_db(transaction=True)
def test_a_worker_host_removes_them_by_itself(runner: Runner, become_worker_host: Callable[[], None]) -> None:
    folders = remains_of_a_project(runner)
    become_worker_host()
    keeper = Housekeeper(local_sandbox.sandbox)
    keeper.start()
    try:
        wait_until(lambda: not any(folder.exists() for folder in folders))
    finally:
        keeper.stop()
        keeper.join()


@pytest.mark.django_db(transaction=True)
def test_workspaces_go_by_themselves_once_they_are_as_old_as_the_setting_says(
    runner: Runner, settings: Any
) -> None:
    settings.ENVIRONMENT = settings.ENVIRONMENT.model_copy(update={"keep_workspaces_days": 14})
    old, recent = (runner.advance(runner.task(PAINTS)) for _ in range(2))
    ended = timezone.now() - timedelta(days=15)
    Task.objects.filter(pk=old.pk).update(ended_at=ended)
    keeper = Housekeeper(local_sandbox.sandbox)
    keeper.start()
    try:
        wait_until(lambda: not paths.workspace(old).path.exists())
    finally:
        keeper.stop()
        keeper.join()
    assert paths.workspace(recent).path.exists() and old.head_commit


@pytest.mark.django_db
def test_of_tasks_without_a_folder_nothing_is_read(runner: Runner, settings: Any, tmp_path: Path) -> None:
    """F: a hundred thousand tasks may have ended, and hosts look once an hour."""

    def cleaned() -> list[Task]:
        older_than = timedelta(days=14)
        found = clean_workspaces(older_than=older_than, sandbox=local_sandbox.sandbox(), dry_run=True)
        return [one.task for one in found]

    task = runner.advance(runner.task(PAINTS))
    Task.objects.filter(pk=task.pk).update(ended_at=timezone.now() - timedelta(days=15))
    assert cleaned() == [task]
    settings.DATA_DIR = tmp_path / "another"
    with CaptureQueriesContext(connection) as captured:
        assert cleaned() == []
    assert len(captured) == 0


@pytest.mark.django_db
def test_the_portals_own_host_removes_no_folder(runner: Runner) -> None:
    """A restored database may be older than the repositories."""
    folders = remains_of_a_project(runner)
    assert list(remove_unused_folders()) == []
    assert all(folder.exists() for folder in folders)


@pytest.mark.django_db
def test_a_token_does_not_make_a_portals_data_directory_that_of_a_worker_host(
    runner: Runner, become_worker_host: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = remains_of_a_project(runner)
    become_worker_host()
    monkeypatch.setattr(housekeeping, "holds_portal", lambda folder: True)
    assert list(remove_unused_folders()) == []
    assert all(folder.exists() for folder in folders)


class Objects:
    """A repository of the portal, in which a test makes objects of some age."""

    def __init__(self, runner: Runner) -> None:
        self.project = runner.project()
        fetch(self.project)
        self.repository = paths.repository(self.project)

    def commit(self, text: str, *, days: int = 0, pack: bool = True) -> str:
        """Make a commit that no reference names, as old as this, as a push or a recording leaves it."""
        git = self.repository.git
        blob = git.run("hash-object", "-w", "--stdin", stdin=text.encode()).decode().strip()
        tree = git.run("mktree", stdin=f"100644 blob {blob}\tpaint.txt\n".encode()).decode().strip()
        names = ("-c", "user.name=A", "-c", "user.email=a@example.org")
        made = git.run(*names, "commit-tree", "-m", text[:20], tree).decode().strip()
        files = [self.repository.path / "objects" / one[:2] / one[2:] for one in (blob, tree, made)]
        if pack:
            target = str(self.repository.path / "objects" / "pack" / "pack")
            order = "\n".join((blob, tree, made)).encode()
            name = git.run("pack-objects", "--quiet", target, stdin=order).decode().strip()
            for file in files:
                file.unlink(missing_ok=True)  # a pruning at the same time may be first
            files = [Path(f"{target}-{name}{end}") for end in (".pack", ".idx")]
        then = time.time() - days * 24 * 3600
        for file in files:
            with suppress(FileNotFoundError):  # the same
                os.utime(file, (then, then))
        return made

    def prune(self) -> pruning.Pruned:
        return prune(self.repository, unused_since=weeks_ago(2), named=lambda: ())


def weeks_ago(number: int) -> datetime:
    return timezone.now() - timedelta(weeks=number)


@pytest.fixture
def objects(db: None, runner: Runner) -> Objects:
    return Objects(runner)


@pytest.mark.parametrize("pack", [True, False], ids=["pushed", "loose"])
def test_old_objects_without_a_reference_go(objects: Objects, pack: bool) -> None:
    old = objects.commit(os.urandom(100_000).hex(), days=15, pack=pack)
    assert objects.prune().freed > 50_000
    assert not objects.repository.has(old) and objects.repository.problems() == []
    assert objects.repository.head("main")


def test_younger_objects_stay_and_what_a_reference_names(objects: Objects) -> None:
    young = objects.commit("young", days=13)
    named = objects.commit("named", days=100)
    objects.repository.set_refs(named, "refs/cat-herder-incoming/1/1")
    objects.commit("old", days=15)
    objects.prune()
    assert objects.repository.has(young) and objects.repository.has(named)
    objects.repository.set_refs(young, "refs/heads/x")
    assert objects.repository.problems() == []


def test_objects_grow_older_in_the_pack_that_keeps_them(objects: Objects) -> None:
    """Neither another pruning nor the packing of many recordings makes them young again."""
    made = objects.commit("made", days=13)
    objects.prune()
    for number in range(60):
        objects.repository.set_refs(objects.commit(f"{number}"), f"refs/heads/{number}")
    assert objects.repository.tidy()
    assert objects.repository.has(made)
    later = timezone.now() + timedelta(days=2)
    prune(objects.repository, unused_since=later - timedelta(weeks=2), named=lambda: ())
    assert not objects.repository.has(made)


def test_a_recording_in_flight_keeps_what_it_needs(objects: Objects) -> None:
    """It imports its objects while another process prunes, and sets its reference afterwards."""
    large = [objects.commit(os.urandom(20_000).hex(), days=20) for _ in range(5)]
    made: list[str] = []
    with pytest.MonkeyPatch.context() as patch:

        def counting(repository: Repository) -> bool:
            made.append(objects.commit("recorded meanwhile"))
            return original(repository)

        original = pruning._has_unnamed_objects
        patch.setattr(pruning, "_has_unnamed_objects", counting)
        objects.prune()
    objects.repository.set_refs(made[0], "refs/cat-herder/x/1")
    assert objects.repository.problems() == []
    assert not any(objects.repository.has(one) for one in large)


def test_a_file_that_git_renames_meanwhile_stops_no_pruning(
    objects: Objects, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as `tmp_idx_…` of a recording, between listing the files and reading their sizes."""
    renamed, lstat = objects.repository.path / "objects" / "tmp_idx_0fWwCC", Path.lstat
    renamed.touch()

    def lstat_of_the_others(path: Path) -> os.stat_result:
        if path == renamed:
            raise FileNotFoundError
        return lstat(path)

    monkeypatch.setattr(Path, "lstat", lstat_of_the_others)
    objects.commit("old", days=20)
    assert objects.prune().freed > 0


def test_recordings_and_prunings_at_once_lose_nothing(objects: Objects) -> None:
    recorded: list[str] = []
    ended = threading.Event()

    def record() -> None:
        try:
            for number in range(20):
                made = objects.commit(f"{number} {os.urandom(3000).hex()}")
                objects.repository.set_refs(made, f"refs/cat-herder/x/{number}")
                recorded.append(made)
        finally:
            ended.set()

    thread = threading.Thread(target=record)
    thread.start()
    times = 0
    while not ended.is_set():
        objects.commit("old", days=20)
        objects.prune()
        times += 1
    thread.join()
    assert times and len(recorded) == 20 and objects.repository.problems() == []
    assert all(objects.repository.has(one) for one in recorded)


def test_nothing_is_removed_while_another_process_fetches(objects: Objects) -> None:
    old = objects.commit("old", days=20)
    with ExitStack() as held:
        held.enter_context(objects.repository.exclusive())
        assert "another process fetches" in objects.prune().kept
    assert objects.repository.has(old)


class Contents:
    """Contents of Git LFS of a repository, each as old as a test wants."""

    def __init__(self, repository: Repository) -> None:
        self.repository = repository

    def add(self, text: str, *, days: int) -> Path:
        path = path_of(self.repository.path, hashlib.sha256(text.encode()).hexdigest())
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        then = time.time() - days * 24 * 3600
        os.utime(path, (then, then))
        return path


@pytest.fixture
def contents(objects: Objects) -> Contents:
    return Contents(objects.repository)


def pointer(content: Path) -> str:
    size = content.stat().st_size
    return f"version https://git-lfs.github.com/spec/v1\noid sha256:{content.name}\nsize {size}\n"


def test_old_contents_that_no_object_names_go(objects: Objects, contents: Contents) -> None:
    """Those that a commit without a reference names stay as long as that commit."""
    unnamed = contents.add("unnamed " * 1000, days=15)
    young, named, of_an_old_commit = (contents.add(text, days=13) for text in ("young", "named", "of old"))
    objects.repository.set_refs(objects.commit(pointer(named), days=100), "refs/heads/x")
    objects.commit(pointer(of_an_old_commit), days=13)
    for content in (named, of_an_old_commit):
        os.utime(content, (0, 0))
    assert objects.prune().freed >= 8000
    assert not unnamed.exists()
    assert young.exists() and named.exists() and of_an_old_commit.exists()


def test_contents_go_with_the_last_commit_that_names_them(objects: Objects, contents: Contents) -> None:
    content = contents.add("of a commit", days=20)
    objects.commit(pointer(content), days=20)
    objects.prune()
    assert not content.exists()


NEEDED_AGAIN: list[Callable[[Repository, Path], object]] = [
    lambda repository, content: is_kept(repository.path, content.name),
    lambda repository, content: _uploaded_once_more(repository, content),
]


def _uploaded_once_more(repository: Repository, content: Path) -> bool:
    with temporary_name(content) as fresh:
        fresh.write_text("made twice")
        move_file_into_place(fresh, content, below=repository.path)
    return True


@pytest.mark.parametrize("needed", NEEDED_AGAIN, ids=["found", "uploaded"])
@pytest.mark.parametrize("when", ["before", "while objects are read"])
def test_a_content_stays_that_is_needed_again_before_its_commit_comes(
    objects: Objects, contents: Contents, monkeypatch: pytest.MonkeyPatch, needed: Any, when: str
) -> None:
    """A task makes a file that another one had made: its content is not sent once more."""
    content, other = contents.add("made twice", days=20), contents.add("other", days=20)
    original = all_named

    def counting(repository: Repository) -> Iterator[str]:
        yield from original(repository)
        assert needed(objects.repository, content)

    if when == "before":
        assert needed(objects.repository, content)
    else:
        monkeypatch.setattr(pruning, "all_named", counting)
    objects.prune()
    assert content.read_text() == "made twice" and not other.exists()
    assert added_contents(objects.repository, objects.commit(pointer(content))) == [content.name]


def test_no_content_goes_while_another_process_fetches(objects: Objects, contents: Contents) -> None:
    content = contents.add("unnamed", days=20)
    with objects.repository.exclusive():
        objects.prune()
    assert content.exists()


def test_contents_that_are_uploaded_now_stay(objects: Objects, contents: Contents) -> None:
    """Under a temporary name."""
    part = contents.add("half", days=20)
    part = part.rename(f"{part}.0f.part")
    contents.add("unnamed", days=20)
    objects.prune()
    assert part.exists()


def test_what_a_killed_push_left_goes(objects: Objects) -> None:
    left = objects.repository.path / "objects" / "pack" / "tmp_pack_x7"
    left.write_bytes(b"half")
    then = time.time() - 20 * 24 * 3600
    os.utime(left, (then, then))
    objects.prune()
    assert not left.exists()


def test_a_commit_that_a_row_names_stays_although_no_branch_leads_to_it(runner: Runner, db: None) -> None:
    """The source's branch was rewritten, and its task has not begun."""
    task = runner.task()
    source = GitRepository(Path(task.project.source))
    source.git("checkout", "--quiet", "--orphan", "anew")
    source.commit(**{"new.txt": "another history"})
    source.git("branch", "--force", "main", "anew")
    fetch(task.project)
    repository = paths.repository(task.project)
    for file in (repository.path / "objects" / "pack").iterdir():
        os.utime(file, (0, 0))
    assert [one.kept for one in prune_repositories() if one.kept] == []
    assert repository.has(task.base_commit) and repository.refs(f"{KEPT}/") == (task.base_commit,)
    assert repository.problems() == []


def test_the_command_says_what_it_freed(objects: Objects, manage: Manage) -> None:
    objects.commit(os.urandom(100_000).hex(), days=15)
    code, out, _ = manage("clean_up", "workspaces")
    assert code == 0 and f"freed    {objects.repository.path}: 0." in out


def test_a_damaged_repository_does_not_end_the_cleaning(objects: Objects, runner: Runner) -> None:
    other = runner.project()
    fetch(other)
    (objects.repository.path / "HEAD").write_text("nonsense")
    found = {one.path: one.kept for one in prune_repositories()}
    assert found[objects.repository.path]


def test_every_commit_of_a_row_is_known() -> None:
    """A new field with a commit must be listed, or what it names may be removed."""
    listed = {(model, field) for model, _, fields in FIELDS_WITH_COMMITS for field in fields}
    there = {
        (model, field.name)
        for model in apps.get_app_config("tasks_app").get_models()
        for field in model._meta.get_fields()
        if field.name.endswith("commit") and getattr(field, "max_length", None) == 64
    }
    assert there <= listed
