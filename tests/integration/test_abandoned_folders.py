"""What a killed process leaves half-made is removed at the next start of a worker (R2)."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import tempfile
import termios
import threading
import time
import traceback
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from django.db import connections

from tasks_app.agent.proxy.server import SOCKET_FOLDER, ApiKeyProxy
from tasks_app.config import validation
from tasks_app.core.files import folder_in_use, temporary_folder
from tasks_app.core.phases import Phase
from tasks_app.engine.workspaces.housekeeping import Housekeeper, remove_abandoned_folders
from tasks_app.git import clone, recording, repository
from tasks_app.models import Task, paths
from tasks_app.operations import local_sandbox
from tasks_app.permissions import Principal
from tasks_app.services.tasks import cancel_task
from tests.fake_script import Turn, say, write
from tests.runner import ONE_STEP, Runner
from tests.waiting import wait_until

PAINTS = [Turn(calls=(write("red.txt", "red"),)), say("Done.")]


def die(*_: object, **__: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def killed(work: Callable[[], object]) -> None:
    """Do the work in a fork, which is killed in it."""
    connections.close_all()  # a connection cannot be shared with a fork
    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


@contextmanager
def started() -> Iterator[None]:
    """What a worker starts to remove what is left over."""
    keeper = Housekeeper(local_sandbox.sandbox)
    keeper.start()
    try:
        yield
    finally:
        keeper.stop()
        keeper.join()


def left_in_repositories() -> list[str]:
    names = (path.name for path in (paths.data_dir() / "repositories").iterdir())
    return sorted(name for name in names if name.startswith(".workspace-") or name.endswith(".new"))


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("point", ["recording", "checkpoint"])
def test_a_recording(runner: Runner, monkeypatch: pytest.MonkeyPatch, point: str) -> None:
    task = runner.task(PAINTS, config="autoCommit: true\n" + ONE_STEP)
    with monkeypatch.context() as patched:
        if point == "recording":
            patched.setattr(recording, "run", die)
        else:
            patched.setattr(clone.Workspace, "_run_script", die)
        killed(lambda: runner.advance(task))
    assert left_in_repositories()
    with started():
        wait_until(lambda: not left_in_repositories())


@pytest.mark.django_db
def test_a_recording_in_flight_stays(runner: Runner) -> None:
    runner.advance(runner.task(PAINTS))
    with temporary_folder(recording.TEMPORARY, parent=paths.data_dir() / "repositories") as folder:
        assert folder not in [one.path for one in remove_abandoned_folders()] and folder.exists()
    assert not folder.exists()


@pytest.mark.django_db(transaction=True)
def test_a_clone_of_a_task_that_is_cancelled_then(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    task = runner.task(PAINTS)
    unfinished = paths.workspace(task).unfinished
    with monkeypatch.context() as patched:
        patched.setattr(clone, "move_into_place", die)
        killed(lambda: runner.advance(task))
    with started():
        pass
    assert unfinished.exists(), "its next worker makes it anew"
    Task.objects.filter(pk=task.pk).update(lease_expires=None)
    cancel_task(Task.objects.get(pk=task.pk), by=Principal.unrestricted(runner.user))
    assert Task.objects.get(pk=task.pk).phase == Phase.CANCELLED
    with started():
        wait_until(lambda: not unfinished.exists())


@pytest.mark.django_db(transaction=True)
def test_a_repository_of_a_project(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    project = runner.task(PAINTS).project
    place = paths.repository(project)
    place.path.rename(place.path.with_name("aside"))
    with monkeypatch.context() as patched:
        patched.setattr(repository, "move_into_place", die)
        killed(place.fetch)
    assert left_in_repositories() == [f"{place.path.name}.new"]
    with started():
        wait_until(lambda: not left_in_repositories())


def half_written(place: Path) -> list[str]:
    """Files as a git that was killed leaves them, and a copy of a content of Git LFS."""
    quarantine, content = "objects/tmp_objdir-incoming-x1", f"lfs/objects/aa/aa/{64 * 'a'}.0f.part"
    names = [
        "objects/pack/tmp_pack_x1", f"{quarantine}/pack/it", "objects/ab/tmp_obj_x1", "packed-refs.lock",
        "refs/heads/it.lock", "objects/pack/pack-1.keep", content,
    ]  # fmt: skip
    for name in names:
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text("half")
    return names


@pytest.mark.django_db
def test_half_written_files_of_a_repository(runner: Runner) -> None:
    """They go as soon as nobody works in the repository."""
    place = paths.repository(runner.task(PAINTS).project)
    names = half_written(place.path)
    assert [one.freed for one in remove_abandoned_folders() if one.path == place.path] == [4 * len(names)]
    assert not any((place.path / name).exists() for name in names)
    assert place.problems() == []


@pytest.mark.django_db
def test_half_written_files_of_a_repository_in_use(runner: Runner) -> None:
    """They stay for a day, also if the portal is killed and its git is not: that goes on by itself."""
    place = paths.repository(runner.task(PAINTS).project)
    names = half_written(place.path)
    content = place.path / names[-1]
    reading, writing = os.pipe()

    def work() -> None:
        words = ("hash-object", "--stdin")
        with os.fdopen(reading, "rb") as stdin, folder_in_use(content.parent):
            threading.Thread(target=place.git.run, args=words, kwargs={"stdin": stdin}).start()
            os.write(writing, b"some")
            wait_until(
                lambda: array("i", fcntl.ioctl(reading, termios.FIONREAD, bytes(4)))[0] == 0
            )  # git has it
            assert [one for one in remove_abandoned_folders() if one.path == place.path] == []
            die()

    killed(work)
    os.close(reading)
    list(remove_abandoned_folders())
    assert all((place.path / name).exists() for name in names[:-1]) and not content.exists()
    long_ago = time.time() - 100_000
    for name in (*names[:-1], "objects/tmp_objdir-incoming-x1"):
        os.utime(place.path / name, (long_ago, long_ago))
    list(remove_abandoned_folders())
    assert not any((place.path / name).exists() for name in names)
    half_written(place.path)
    os.close(writing)  # so git ends, some time later

    def all_gone() -> bool:
        list(remove_abandoned_folders())
        return not any((place.path / name).exists() for name in names)

    wait_until(all_gone)


@pytest.fixture
def temporary(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Temporary files of this test."""
    with tempfile.TemporaryDirectory(prefix="left-", dir="/tmp") as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield Path(folder)


@pytest.mark.django_db(transaction=True)
def test_sockets_of_the_key_proxy(temporary: Path) -> None:
    """The one of a process that was killed goes, with or without a lock. One with a listener stays."""

    def serve() -> None:
        ApiKeyProxy().start()
        die()

    killed(serve)
    assert len(list(temporary.iterdir())) == 1
    proxy = ApiKeyProxy()
    proxy.start()
    earlier_version = temporary / f"{SOCKET_FOLDER}abcdefgh"
    earlier_version.mkdir()
    others = temporary / f"{SOCKET_FOLDER}not-made-by-the-portal"
    others.mkdir()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(earlier_version / "model.sock"))
        listening.listen()
        kept = {proxy.socket_path.parent, earlier_version, others}
        with started():
            wait_until(lambda: {*temporary.iterdir()} == kept)
    with started():
        wait_until(lambda: {*temporary.iterdir()} == kept - {earlier_version})
    proxy.stop()
    assert {*temporary.iterdir()} == {others}


@pytest.mark.django_db(transaction=True)
def test_other_temporary_folders(runner: Runner, temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = runner.task(PAINTS)

    def lay_out() -> None:
        place = paths.repository(task.project)
        with validation.repository.laid_out(place, task.base_commit or "HEAD", prompts=temporary):
            pass

    with monkeypatch.context() as patched:
        patched.setattr(validation.repository, "RepositoryContext", die)
        killed(lay_out)
    assert [path.name.startswith("cat-herder-commit-") for path in temporary.iterdir()] == [True]
    with started():
        wait_until(lambda: not list(temporary.iterdir()))
