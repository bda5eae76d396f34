"""Contents of Git LFS that a task added are brought along when its result is published (V6)."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import stat
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tasks_app.core.errors import PublishingFailed
from tasks_app.git import lfs
from tasks_app.git.program import Git
from tasks_app.git.publishing import HttpsToken, Remote, SshKey
from tasks_app.git.recording import _import_lfs_objects
from tasks_app.git.repository import Repository
from tests.git_servers import TOKEN, USER, HttpsServer, bare_repository
from tests.integration.git_repository import GitRepository

BRANCH = "cat-herder/paint-it"
GOOD = HttpsToken(USER, TOKEN)
CONTENT = b"\x89picture\0" * 5000
NAME = hashlib.sha256(CONTENT).hexdigest()


def pointer(name: str, size: int) -> str:
    return f"version https://git-lfs.github.com/spec/v1\noid sha256:{name}\nsize {size}\n"


@pytest.fixture
def name(served_folder: Path) -> str:
    return bare_repository(served_folder / f"{uuid4().hex}.git").name


@pytest.fixture
def work(tmp_path: Path) -> GitRepository:
    return GitRepository.make(tmp_path / "work", **{"old.bin": pointer("0" * 64, 7)})


def keep(own: Repository, name: str, content: bytes) -> None:
    path = lfs.path_of(own.path, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


@pytest.fixture
def result(own: Repository, work: GitRepository) -> str:
    """A commit of a task that adds a picture, of which the portal keeps the content."""
    keep(own, NAME, CONTENT)
    keep(own, "0" * 64, b"was in the source before")
    work.git("checkout", "--quiet", "--detach")
    commit = work.commit(**{"new.bin": pointer(NAME, len(CONTENT)), "small.txt": "x" * 200})
    work.git("push", "--quiet", str(own.path), f"HEAD:refs/heads/{BRANCH}")
    work.git("checkout", "--quiet", "main")
    return commit


def test_only_contents_that_the_task_added_are_brought(own: Repository, result: str) -> None:
    assert lfs.added_contents(own, result) == [NAME]
    assert lfs.added_contents(own, own.head("main")) == []


def test_a_pointer_whose_content_is_not_kept_is_left_to_the_remote(own: Repository, result: str) -> None:
    lfs.path_of(own.path, NAME).unlink()
    assert lfs.added_contents(own, result) == []


@pytest.mark.git_lfs
def test_they_are_uploaded_over_https_with_the_credential(
    https: HttpsServer, served_folder: Path, name: str, own: Repository, result: str
) -> None:
    config = (own.path / "config").read_text()
    Remote(https.url(name), GOOD).push(own, result, BRANCH, expected="")
    assert (served_folder / "lfs-store" / NAME).read_bytes() == CONTENT
    assert not (served_folder / "lfs-store" / ("0" * 64)).exists()
    assert GitRepository(served_folder / name).git("rev-parse", BRANCH) == result
    sent = [line.split()[0:2] for line in https.seen if name in line or "lfs-store" in line]
    upload = sent.index(["PUT", f"/lfs-store/{NAME}"])
    assert upload < sent.index(["POST", f"/{name}/git-receive-pack"]), "before the branch"
    assert (own.path / "config").read_text() == config and TOKEN not in config


@pytest.mark.git_lfs
@pytest.mark.parametrize("key", ["url", "pushurl"])
def test_a_file_of_the_repository_does_not_say_where_they_go(
    https: HttpsServer, served_folder: Path, name: str, own: Repository, work: GitRepository, key: str
) -> None:
    content = b"another picture" + key.encode() * 100
    digest = hashlib.sha256(content).hexdigest()
    keep(own, digest, content)
    work.commit(**{".lfsconfig": f"[lfs]\n\t{key} = https://localhost:1/elsewhere\n"})
    own.fetch()
    work.git("checkout", "--quiet", "--detach")
    commit = work.commit(**{"new.bin": pointer(digest, len(content))})
    work.git("push", "--quiet", str(own.path), f"HEAD:refs/heads/{BRANCH}")
    GitRepository(own.path).git("symbolic-ref", "HEAD", f"refs/heads/{BRANCH}")
    Remote(https.url(name), GOOD).push(own, commit, BRANCH, expected="")
    assert (served_folder / "lfs-store" / digest).read_bytes() == content


@pytest.mark.git_lfs
def test_a_remote_that_does_not_take_them_gets_no_branch(
    https: HttpsServer, served_folder: Path, name: str, own: Repository, result: str
) -> None:
    https.refuses_contents = True
    try:
        with pytest.raises(PublishingFailed, match=r"did not take 1 file of Git LFS: .*storage") as refused:
            Remote(https.url(name), GOOD).push(own, result, BRANCH, expected="")
    finally:
        https.refuses_contents = False
    assert TOKEN not in str(refused.value)
    assert not GitRepository(served_folder / name).git("for-each-ref")


def test_without_git_lfs_nothing_is_published(
    monkeypatch: pytest.MonkeyPatch, https: HttpsServer, name: str, own: Repository, result: str
) -> None:
    monkeypatch.setattr("tasks_app.git.publishing.is_installed", lambda: False)
    with pytest.raises(PublishingFailed, match="git-lfs is not installed on the worker"):
        Remote(https.url(name), GOOD).push(own, result, BRANCH, expected="")


@pytest.mark.git_lfs
def test_over_ssh_they_are_refused_before_anything_is_sent(own: Repository, result: str) -> None:
    """Contents go over https only; the branch would point at contents that nobody has."""
    remote = Remote("ssh://git@127.0.0.1:9/shop.git", SshKey("key", "host"))
    with pytest.raises(PublishingFailed, match=r"adds 1 file of Git LFS\..* https URL"):
        remote.push(own, result, BRANCH, expected="")


def test_they_are_copied_to_a_folder(served_folder: Path, name: str, own: Repository, result: str) -> None:
    Remote(str(served_folder / name)).push(own, result, BRANCH, expected="")
    copied = served_folder / name / "lfs" / "objects" / NAME[:2] / NAME[2:4] / NAME
    assert copied.read_bytes() == CONTENT
    assert [path.name for path in copied.parent.iterdir()] == [NAME]


def copied_content(folder: Path) -> Path:
    return folder / "lfs" / "objects" / NAME[:2] / NAME[2:4] / NAME


def test_two_publications_copy_the_same_content_at_once(
    own: Repository, result: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = shutil.copyfile
    begun: list[Path] = []

    def copy_during_another(source: Path, target: Path) -> None:
        plain(source, target)
        if not begun:
            begun.append(target)
            lfs.copy_contents(own, [NAME], tmp_path / "remote")

    monkeypatch.setattr(shutil, "copyfile", copy_during_another)
    lfs.copy_contents(own, [NAME], tmp_path / "remote")
    copied = copied_content(tmp_path / "remote")
    assert copied.read_bytes() == CONTENT
    assert begun and [path.name for path in copied.parent.iterdir()] == [NAME]


def test_a_part_of_a_content_is_replaced(own: Repository, result: str, tmp_path: Path) -> None:
    copied = copied_content(tmp_path)
    copied.parent.mkdir(parents=True)
    copied.write_bytes(CONTENT[:100])
    lfs.copy_contents(own, [NAME], tmp_path)
    assert copied.read_bytes() == CONTENT


def test_a_copy_that_fails_leaves_nothing(
    own: Repository, result: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill_the_disk(_source: Path, target: Path) -> None:
        target.write_bytes(CONTENT[:100])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(shutil, "copyfile", fill_the_disk)
    with pytest.raises(PublishingFailed, match=f"cannot be written to {tmp_path}: No space left"):
        lfs.copy_contents(own, [NAME], tmp_path)
    assert list(copied_content(tmp_path).parent.iterdir()) == []


def test_a_copy_is_on_the_disk_before_it_gets_its_name(
    own: Repository, result: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = watch_syncs(monkeypatch, copied_content(tmp_path))
    lfs.copy_contents(own, [NAME], tmp_path)
    assert synced == [(copied_content(tmp_path).stat().st_ino, False)]


def watch_syncs(monkeypatch: pytest.MonkeyPatch, target: Path) -> list[tuple[int, bool]]:
    """Return a list that gets the inode of each synced file, and whether `target` was there then."""
    plain, synced = os.fsync, []

    def sync(descriptor: int) -> None:
        plain(descriptor)
        found = os.fstat(descriptor)
        if stat.S_ISREG(found.st_mode):
            synced.append((found.st_ino, target.exists()))

    monkeypatch.setattr(os, "fsync", sync)
    return synced


@pytest.mark.parametrize("intact", [True, False])
def test_a_content_of_a_recording_is_on_the_disk_before_it_gets_its_name(
    own: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, intact: bool
) -> None:
    written = copied_content(tmp_path / "outcome")
    written.parent.mkdir(parents=True)
    written.write_bytes(CONTENT if intact else b"forged")
    kept = lfs.path_of(own.path, NAME)
    synced = watch_syncs(monkeypatch, kept)
    _import_lfs_objects(own, tmp_path / "outcome")
    names = [path.name for path in kept.parent.iterdir()]
    if intact:
        assert names == [NAME] and synced == [(kept.stat().st_ino, False)]
    else:
        assert names == []


def test_objects_are_looked_at_in_batches(
    own: Repository, work: GitRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task may add millions of small files: their contents must not be in memory together."""
    digests = [hashlib.sha256(str(number).encode()).hexdigest() for number in range(25)]
    for digest in digests:
        keep(own, digest, b"content")
    work.git("checkout", "--quiet", "--detach")
    commit = work.commit(**{f"{digest}.bin": pointer(digest, 7) for digest in digests})
    work.git("push", "--quiet", str(own.path), f"HEAD:refs/heads/{BRANCH}")
    plain, read = Git.run, []

    def run(git: Git, *words: str, stdin: bytes = b"", **options: Any) -> bytes:
        if "--batch" in words:
            read.append(stdin.count(b"\n"))
        return plain(git, *words, stdin=stdin, **options)

    monkeypatch.setattr(Git, "run", run)
    monkeypatch.setattr(lfs, "_BATCH", 10)
    assert sorted(lfs.added_contents(own, commit)) == sorted(digests)
    assert sum(read) == 25 and max(read) <= 10
