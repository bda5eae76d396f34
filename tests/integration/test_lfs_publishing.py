"""Contents of Git LFS that a task added are brought along when its result is published (V6)."""

from __future__ import annotations

import hashlib
from pathlib import Path
from uuid import uuid4

import pytest

from tasks_app.core.errors import PublishingFailed
from tasks_app.git import lfs
from tasks_app.git.publishing import HttpsToken, Remote
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


@pytest.fixture
def own(work: GitRepository, tmp_path: Path) -> Repository:
    repository = Repository(tmp_path / "own.git", str(work.path), name="shop")
    repository.fetch()
    return repository


def keep(own: Repository, name: str, content: bytes) -> None:
    path = lfs.path_of(own, name)
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
    lfs.path_of(own, NAME).unlink()
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


def test_to_an_ssh_url_nothing_is_published(own: Repository, result: str) -> None:
    with pytest.raises(PublishingFailed, match="to https URLs and folders only"):
        Remote("ssh://git@localhost:1/shop.git").push(own, result, BRANCH, expected="")


def test_they_are_copied_to_a_folder(served_folder: Path, name: str, own: Repository, result: str) -> None:
    Remote(str(served_folder / name)).push(own, result, BRANCH, expected="")
    copied = served_folder / name / "lfs" / "objects" / NAME[:2] / NAME[2:4] / NAME
    assert copied.read_bytes() == CONTENT
    assert [path.name for path in copied.parent.iterdir()] == [NAME]
