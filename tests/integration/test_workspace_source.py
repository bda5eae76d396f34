"""R5: what `project add` takes as a source, and what it says of the rest."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tasks_app.core.errors import BadInput, WorkspaceError
from tasks_app.git import InspectedSource, Repository, inspect_source
from tests.integration.git_repository import GitRepository


def test_a_folder_gives_its_absolute_path_branch_and_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = GitRepository.make(tmp_path / "-code", a="1")
    monkeypatch.chdir(tmp_path)
    facts = inspect_source("./-code")
    assert facts == InspectedSource(str(source.path), "main", source.git("rev-parse", "HEAD"))


def test_a_bare_repository_is_a_source(tmp_path: Path) -> None:
    source = GitRepository.make(tmp_path / "code", a="1")
    source.git("clone", "--quiet", "--bare", ".", str(tmp_path / "bare.git"))
    assert inspect_source(str(tmp_path / "bare.git")).head_branch == "main"


def test_a_remote_tracking_head_is_not_taken_for_the_head(tmp_path: Path) -> None:
    origin = GitRepository.make(tmp_path / "origin", a="1")
    origin.git("clone", "--quiet", ".", str(tmp_path / "code"))
    clone = GitRepository(tmp_path / "code")
    clone.git("checkout", "--quiet", "-b", "topic")
    newest = clone.commit(a="2")
    assert inspect_source(str(clone.path)) == InspectedSource(str(clone.path), "topic", newest)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder to another user")
def test_a_repository_of_another_user_is_a_source(tmp_path: Path) -> None:
    source = GitRepository.make(tmp_path / "co'de", a="1")
    for path in (source.path, *source.path.rglob("*")):
        os.chown(path, 12345, 12345)
    assert inspect_source(str(source.path)).head_branch == "main"
    repository = Repository(tmp_path / "bare.git", str(source.path))
    repository.fetch()
    assert repository.head("main")


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(WorkspaceError, match=rf"^{tmp_path}/gone does not exist\.$"):
        inspect_source(f"{tmp_path}/gone")


def test_a_file_is_not_a_source(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(WorkspaceError, match="file is not a directory"):
        inspect_source(f"{tmp_path}/file")


def test_a_folder_without_git_is_not_a_source(tmp_path: Path) -> None:
    with pytest.raises(WorkspaceError, match=f"^{tmp_path} is not the top folder of a git repository"):
        inspect_source(str(tmp_path))


def test_a_folder_within_a_repository_is_not_a_source(tmp_path: Path) -> None:
    source = GitRepository.make(tmp_path / "code", a="1")
    (source.path / "sub").mkdir()
    with pytest.raises(WorkspaceError, match="sub is not the top folder"):
        inspect_source(str(source.path / "sub"))


def test_a_repository_without_a_commit_is_not_a_source(tmp_path: Path) -> None:
    source = GitRepository.make(tmp_path / "code")
    with pytest.raises(WorkspaceError, match="has no commit"):
        inspect_source(str(source.path))


def test_a_detached_head_is_not_a_source(tmp_path: Path) -> None:
    source = GitRepository.make(tmp_path / "code", a="1")
    source.git("checkout", "--quiet", "--detach")
    with pytest.raises(WorkspaceError, match="on no branch"):
        inspect_source(str(source.path))


@pytest.mark.parametrize(
    "source",
    [
        "ext::sh -c 'touch %s'",
        "http://example.org/code.git",
        "git://example.org/code.git",
        "file:///etc",
        "fd::17",
        "ssh://-oProxyCommand=x/code",
        "https://",
        "https://ann:hunter2@example.org/code.git",
        "https://[::1/code",
        "",
        "  ",
        "a\nb",
        "a\0b",
    ],
)
def test_other_kinds_of_source_are_bad_input(source: str) -> None:
    with pytest.raises(BadInput) as caught:
        inspect_source(source)
    assert "hunter2" not in str(caught.value)


def test_an_unreachable_url_is_an_error_with_gits_reason() -> None:
    with pytest.raises(WorkspaceError, match=r"127\.0\.0\.1"):
        inspect_source("https://127.0.0.1:9/code.git")


def test_a_source_that_names_programs_runs_none_of_them(tmp_path: Path) -> None:
    source = GitRepository.make(tmp_path / "code", a="1")
    marker = tmp_path / "ran"
    for key in (
        "core.fsmonitor",
        "core.sshCommand",
        "uploadpack.packObjectsHook",
        "core.alternateRefsCommand",
    ):
        source.git("config", key, f"touch {marker}; false")
    repository = Repository(tmp_path / "bare.git", inspect_source(str(source.path)).source)
    repository.fetch()
    assert repository.head("main") and not marker.exists()
