"""M5: contents of Git LFS are fetched into a new workspace when the project says so."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tasks_app.core.errors import WorkspaceError
from tasks_app.core.phases import Phase
from tasks_app.git import Repository, Workspace, lfs
from tasks_app.git.lfs import LfsContents
from tasks_app.git.program import _FIXED
from tasks_app.models import Project, paths
from tasks_app.sandbox import SandboxMode, detect
from tasks_app.services.bulk import retry_from
from tasks_app.services.projects.projects import add_project
from tests.fake_script import Act, Turn, say, shell, write
from tests.git_servers import HttpsServer, SshServer, bare_repository
from tests.integration.git_repository import GitRepository
from tests.people import acting
from tests.runner import Runner, diff_of, file_in, results, runs, step

pytestmark = pytest.mark.git_lfs

CONFIG = "lfs: true\npipelines: {default: [{name: do, command: self}]}\n"
CONTENT = b"\x89picture\0" * 5000
NAME = hashlib.sha256(CONTENT).hexdigest()
POINTER = f"version https://git-lfs.github.com/spec/v1\noid sha256:{NAME}\nsize {len(CONTENT)}\n"
FILES = {".gitattributes": "*.png filter=lfs diff=lfs merge=lfs -text\n", "art/a.png": POINTER}
DONE: list[Act] = [Turn(calls=(write("work.txt", "done\n"),)), say("Done.")]


@pytest.fixture(autouse=True)
def filters(settings: Any) -> None:
    settings.ENVIRONMENT = settings.ENVIRONMENT.model_copy(update={"git_filters": (("lfs", ""),)})


def made(runner: Runner, files: Mapping[str, str] | None = None, *, kept: bytes = CONTENT) -> Project:
    """A project in a folder whose repository keeps the content."""
    own = {"cat-herder.yaml": CONFIG, **FILES, **(files or {})}
    source = GitRepository.make(runner.folder / "shop", **own)
    keep(source.path / ".git", kept)
    return add_project("shop", str(source.path), by=runner.user)


def keep(git_directory: Path, content: bytes) -> None:
    path = lfs.path_of(git_directory, NAME)
    path.parent.mkdir(parents=True)
    path.write_bytes(content)


@pytest.mark.bubblewrap
def test_m5_contents_of_lfs_are_in_a_new_workspace(runner: Runner) -> None:
    """The agent has them, git shows no change, and the result names the same pointer."""
    runner.sandbox = detect(SandboxMode.REQUIRE)
    look = "git status --porcelain; wc -c <art/a.png"
    task = runner.task([Turn(calls=(shell(look),)), *DONE], project=made(runner))
    assert runner.advance(task).phase == Phase.DONE, task.failure
    assert file_in(task, "art/a.png").read_bytes() == CONTENT
    assert results(task)[0].strip() == str(len(CONTENT))
    assert "work.txt" in diff_of(task) and "a.png" not in diff_of(task)


def test_without_the_key_there_are_pointers(runner: Runner) -> None:
    config = CONFIG.replace("lfs: true", "lfs: false")
    task = runner.advance(runner.task(DONE, project=made(runner, {"cat-herder.yaml": config})))
    assert task.phase == Phase.DONE and file_in(task, "art/a.png").read_text() == POINTER


def test_text_that_only_looks_like_a_pointer_stays(runner: Runner) -> None:
    task = runner.advance(runner.task(DONE, project=made(runner, {"docs/pointer.txt": POINTER})))
    assert task.phase == Phase.DONE and file_in(task, "docs/pointer.txt").read_text() == POINTER


def test_a_changed_content_is_recorded_and_is_there_again(runner: Runner) -> None:
    acts: list[Act] = [Turn(calls=(shell("printf new >art/a.png"),)), say("Done.")]
    task = runner.advance(runner.task(acts, project=made(runner)))
    assert task.phase == Phase.DONE and "oid sha256" in diff_of(task)
    paths.remove_folder(paths.workspace(task).path)
    runner.task(DONE, project=task.project)  # the fake plays this from here on
    retry_from(task, step(task), by=acting(runner.user))
    assert runner.advance(task).phase == Phase.DONE, task.failure
    assert file_in(task, "art/a.png").read_bytes() == b"new"


@pytest.mark.parametrize("kept", [b"", b"another picture"])
def test_m5_a_content_that_is_missing_fails_the_task_before_anything_is_spent(
    runner: Runner, kept: bytes
) -> None:
    """Or that is not what the pointer names."""
    task = runner.advance(runner.task(DONE, project=made(runner, kept=kept)))
    assert task.phase == Phase.FAILED and runs(task) == []
    assert "The contents of Git LFS for art/a.png cannot be fetched from" in task.failure
    assert "it does not have them" in task.failure


def test_an_installation_without_the_filter_says_what_it_needs(runner: Runner, settings: Any) -> None:
    settings.ENVIRONMENT = settings.ENVIRONMENT.model_copy(update={"git_filters": ()})
    task = runner.advance(runner.task(DONE, project=made(runner)))
    assert task.phase == Phase.FAILED and runs(task) == []
    assert "needs git-lfs and CATHERDER_GIT_FILTERS=lfs" in task.failure


def test_r4_a_content_behind_a_link_is_not_read(runner: Runner) -> None:
    project = made(runner)
    path = lfs.path_of(Path(project.source, ".git"), NAME)
    secret = runner.folder / "secret"
    path.rename(secret)
    path.symlink_to(secret)
    task = runner.advance(runner.task(DONE, project=project))
    assert task.phase == Phase.FAILED and "it does not have them" in task.failure


def test_r4_a_pointer_that_an_agent_invents_stops_nothing(runner: Runner) -> None:
    invented = POINTER.replace(NAME, "0" * 64)
    acts: list[Act] = [Turn(calls=(write("b.png", invented),)), say("Done.")]
    task = runner.advance(runner.task(acts, project=made(runner)))
    assert task.phase == Phase.DONE, task.failure
    paths.remove_folder(paths.workspace(task).path)
    retry_from(task, step(task), by=acting(runner.user))
    assert runner.advance(task).phase == Phase.DONE, task.failure


@pytest.fixture
def served(https: HttpsServer, served_folder: Path, tmp_path: Path) -> Iterator[tuple[str, Repository]]:
    """The URL of a repository, and a copy of it with a .lfsconfig that names another server."""
    source = GitRepository.make(
        tmp_path / "source", **FILES, **{".lfsconfig": "[lfs]\n\turl = https://localhost:1/elsewhere\n"}
    )
    name = bare_repository(served_folder / f"{tmp_path.name}.git").name
    repository = Repository(tmp_path / "data" / "1.git", str(source.path))
    repository.fetch()
    yield https.url(name), repository


def test_they_are_fetched_over_https_from_the_source_alone(
    https: HttpsServer, served_folder: Path, tmp_path: Path, served: tuple[str, Repository],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    url, repository = served
    monkeypatch.setenv("SSL_CERT_FILE", str(https.authority))
    monkeypatch.setattr(https, "open_contents", True)
    store = served_folder / "lfs-store"
    store.mkdir(exist_ok=True)
    (store / NAME).write_bytes(CONTENT)
    head = repository.head("main")
    workspace = Workspace(tmp_path / "work", repository, "cat-herder/x")
    workspace.create(base=head, contents=LfsContents(repository, url, head))
    assert (workspace.path / "art/a.png").read_bytes() == CONTENT


@pytest.mark.sshd
def test_they_are_fetched_over_ssh_with_the_key_of_the_portals_user(
    https: HttpsServer, ssh: SshServer, served_folder: Path, tmp_path: Path, served: tuple[str, Repository],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """The ssh server names an https endpoint, as GitHub and GitLab do."""
    url, repository = served
    name = url.rpartition("/")[2]
    answer = json.dumps({"href": https.url(f"{name}/info/lfs")})
    script = ssh.programs / "git-lfs-authenticate"
    script.write_text(f"#!/bin/sh\nprintf %s {shlex.quote(answer)}\n")
    script.chmod(0o755)
    key, hosts = tmp_path / "key", tmp_path / "hosts"
    key.write_text(ssh.private_key)
    key.chmod(0o600)
    hosts.write_text(ssh.known_hosts)
    own = f"ssh -oBatchMode=yes -i {key} -oUserKnownHostsFile={hosts}"
    monkeypatch.setitem(_FIXED, "GIT_SSH_COMMAND", own)
    monkeypatch.setenv("SSL_CERT_FILE", str(https.authority))
    monkeypatch.setattr(https, "open_contents", True)
    (served_folder / "lfs-store").mkdir(exist_ok=True)
    (served_folder / "lfs-store" / NAME).write_bytes(CONTENT)
    head = repository.head("main")
    workspace = Workspace(tmp_path / "work", repository, "cat-herder/x")
    workspace.create(base=head, contents=LfsContents(repository, ssh.url(name), head))
    assert (workspace.path / "art/a.png").read_bytes() == CONTENT


def test_a_server_that_wants_a_login_is_named(
    https: HttpsServer, tmp_path: Path, served: tuple[str, Repository], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, repository = served
    monkeypatch.setenv("SSL_CERT_FILE", str(https.authority))
    head = repository.head("main")
    workspace = Workspace(tmp_path / "work", repository, "cat-herder/x")
    with pytest.raises(
        WorkspaceError, match=r"art/a\.png cannot be fetched from https://localhost"
    ) as refused:
        workspace.create(base=head, contents=LfsContents(repository, url, head))
    assert "elsewhere" not in str(refused.value) and not workspace.path.exists()
