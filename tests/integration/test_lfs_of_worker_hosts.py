"""M1: worker hosts get contents of Git LFS from the portal, and bring it those that tasks made."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from catherder_site.worker_hosts import git_service
from catherder_site.worker_hosts.application import WorkerHosts
from tasks_app.core.errors import LeaseLost, TemporaryFault
from tasks_app.git import Repository, lfs, mirror
from tasks_app.git import transfers as worker_side
from tasks_app.git.bundles import KEPT_SECONDS
from tasks_app.models import Task
from tasks_app.services.workers.hosts import remove_all_old_transfers
from tests.cut_connections import CutConnections
from tests.integration.git_repository import GitRepository
from tests.integration.worker_host import Host, breaking_line, held, host_at, no_page, serving, snapshot_ref
from tests.runner import Runner

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.git_lfs,
    pytest.mark.once(on="sqlite"),
]

CONTENT = os.urandom(1_500_000)
NAME = hashlib.sha256(CONTENT).hexdigest()
CUT = 400_000


def pointer(content: bytes) -> str:
    name = hashlib.sha256(content).hexdigest()
    return f"version https://git-lfs.github.com/spec/v1\noid sha256:{name}\nsize {len(content)}\n"


@pytest.fixture
def line() -> Iterator[CutConnections]:
    with breaking_line() as line:
        yield line


@pytest.fixture
def host(runner: Runner, line: CutConnections, monkeypatch: pytest.MonkeyPatch) -> Host:
    """A host that holds a task of a project with a content in its source."""
    monkeypatch.setattr(mirror, "_FETCH_PAUSES", (0.1,) * 3)
    monkeypatch.setattr(mirror, "_PUSH_PAUSES", (0.1,) * 3)
    project = runner.project(**{"a.png": pointer(CONTENT)})
    keep(Path(project.source, ".git"), CONTENT)
    return host_at(f"http://127.0.0.1:{line.port}", runner, project)


def keep(git_directory: Path, content: bytes) -> str:
    name = hashlib.sha256(content).hexdigest()
    path = lfs.path_of(git_directory, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return name


def kept(repository: Repository, name: str) -> bytes:
    return lfs.path_of(repository.path, name).read_bytes()


def has(repository: Repository, name: str) -> bool:
    return lfs.path_of(repository.path, name).exists()


def test_the_portal_fetches_from_the_source_what_a_host_needs(host: Host) -> None:
    with host.mirror.held_for(host.key, branch=host.task.branch):
        assert host.mirror.fetch_contents(host.task.base_commit) == ""
    assert kept(host.mirror, NAME) == kept(host.repository, NAME) == CONTENT


def test_a_download_that_breaks_goes_on(host: Host, line: CutConnections) -> None:
    """git-lfs itself asks for the rest."""
    with host.mirror.held_for(host.key, branch=host.task.branch):
        line.forget()
        line.down = CUT
        assert host.mirror.fetch_contents(host.task.base_commit) == ""
    assert kept(host.mirror, NAME) == CONTENT
    assert line.cut >= 3 and line.passed["down"] < len(CONTENT) * 1.5


def test_a_content_that_nobody_has_is_no_fault_of_the_line(host: Host) -> None:
    """The caller says which files are concerned."""
    lfs.path_of(Path(host.task.project.source, ".git"), NAME).unlink()
    with host.mirror.held_for(host.key, branch=host.task.branch):
        assert host.mirror.fetch_contents(host.task.base_commit) == ""
    assert not has(host.mirror, NAME)


def test_a_portal_that_cannot_be_reached_is_a_temporary_fault(host: Host, line: CutConnections) -> None:
    with host.mirror.held_for(host.key, branch=host.task.branch):
        line.down = 0
        with pytest.raises(TemporaryFault):
            host.mirror.fetch_contents(host.task.base_commit)


@pytest.mark.parametrize("body", [b"<html>", b"[]", b"{}"])
def test_an_answer_of_something_else_than_the_portal_is_a_temporary_fault(
    host: Host, monkeypatch: pytest.MonkeyPatch, body: bytes
) -> None:
    answer = requests.Response()
    answer.status_code, answer._content = 200, body
    monkeypatch.setattr(mirror.Portal, "_call", lambda *_, **__: answer)
    with pytest.raises(TemporaryFault, match="does not say"):
        host.portal.prepare_contents(host.key)


def test_what_a_task_made_is_brought_to_the_portal_before_its_references(host: Host) -> None:
    made = b"made by the task"
    with host.mirror.held_for(host.key, branch=host.task.branch):
        commit = host.commit(pointer(made))
        name = keep(host.mirror.path, made)
        host.mirror.set_refs(commit, snapshot_ref(host.task))
    assert kept(host.repository, name) == made
    assert host.repository.refs(snapshot_ref(host.task)) == (commit,)
    assert lfs.added_contents(host.repository, commit) == [name], "publishing finds it"


def test_a_large_upload_goes_on_after_each_break(
    host: Host, line: CutConnections, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_side, "LARGE_BYTES", 1_000_000)
    monkeypatch.setattr(worker_side, "PIECE_BYTES", 600_000)
    monkeypatch.setattr(worker_side, "_PAUSE", 0.1)
    made = os.urandom(1_500_000)
    with host.mirror.held_for(host.key, branch=host.task.branch):
        commit = host.commit(pointer(made))
        name = keep(host.mirror.path, made)
        line.forget()
        line.up = CUT
        host.mirror.set_refs(commit, snapshot_ref(host.task))
    assert kept(host.repository, name) == made
    assert line.cut >= 3 and line.passed["up"] < len(made) * 1.2
    assert not any(path.is_file() for path in host.repository.path.glob("uploads/*/*"))


def test_a_portal_that_takes_no_pieces_of_contents_gets_them_whole(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A portal of an earlier version."""
    monkeypatch.setattr(worker_side, "LARGE_BYTES", 10)
    monkeypatch.setattr(mirror.Portal, "upload_state", lambda *_: None)
    with host.mirror.held_for(host.key, branch=host.task.branch):
        commit = host.commit(pointer(b"made by the task"))
        name = keep(host.mirror.path, b"made by the task")
        host.mirror.set_refs(commit, snapshot_ref(host.task))
    assert has(host.repository, name)


def test_only_the_content_of_its_name_is_kept_of_pieces(host: Host) -> None:
    path = f"uploads/{hashlib.sha256(b'right').hexdigest()}"
    whole = {"Content-Range": "bytes 0-4/5"}
    assert host.ask("PUT", path, data=b"wrong", headers=whole).status_code == 200
    assert host.ask("POST", path).status_code == 409
    assert host.ask("GET", path).json()["size"] == 0, "what is another content is not kept"
    assert host.ask("PUT", path, data=b"right", headers=whole).status_code == 200
    assert [host.ask("POST", path).status_code for _ in range(2)] == [200, 200], "it may be repeated"
    assert host.ask("GET", path).json()["size"] == 5
    assert kept(host.repository, path.removeprefix("uploads/")) == b"right"


def test_contents_are_exchanged_behind_a_proxy_that_changes_the_host(
    host: Host, runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The portal is told by which URL the host reaches it."""

    async def behind_a_proxy(scope: Any, receive: Any, send: Any) -> None:
        kept_headers = [(name, value) for name, value in scope["headers"] if name != b"host"]
        headers = [*kept_headers, (b"host", b"inside.invalid:81")]
        await portal({**scope, "scheme": "https", "headers": headers}, receive, send)

    portal = WorkerHosts(no_page)
    with serving(behind_a_proxy) as url:
        outside = Host(url, host.token, host.task, host.folder)
        with outside.mirror.held_for(outside.key, branch=outside.task.branch):
            assert outside.mirror.fetch_contents(outside.task.base_commit) == ""
            commit = outside.commit(pointer(b"made by the task"))
            name = keep(outside.mirror.path, b"made by the task")
            outside.mirror.set_refs(commit, snapshot_ref(outside.task))
    assert kept(host.mirror, NAME) == CONTENT and has(host.repository, name)


@pytest.mark.parametrize("told", ["", "file:///etc", "https://a b", "https://user@host", "javascript:1"])
def test_links_lead_only_to_a_plain_url(host: Host, told: str) -> None:
    keep(host.repository.path, CONTENT)
    order = {"operation": "download", "objects": [{"oid": NAME, "size": 4}]}
    answer = ask(host, "POST", "batch", json=order, headers={mirror.URL_HEADER: told})
    (found,) = answer.json()["objects"]
    assert found["actions"]["download"]["href"].startswith(host.url)


def test_what_killed_portals_left_of_contents_is_removed_after_a_day(host: Host) -> None:
    folder = lfs.path_of(host.repository.path, NAME).parent
    folder.mkdir(parents=True)
    old, new = folder / f"{NAME}.{32 * 'a'}.part", folder / f"{NAME}.{32 * 'b'}.part"
    for path in (old, new, folder / NAME):
        path.write_bytes(b"half")
    day_before = time.time() - KEPT_SECONDS - 60
    for path in (old, folder / NAME):
        os.utime(path, (day_before, day_before))
    remove_all_old_transfers()
    assert not old.exists() and new.exists() and (folder / NAME).exists()


def test_without_its_contents_nothing_is_recorded(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(git_service.BODY_LIMITS, "git-receive-pack", 10)
    with host.mirror.held_for(host.key, branch=host.task.branch):
        commit = host.commit(pointer(CONTENT + b"more"))
        keep(host.mirror.path, CONTENT + b"more")
        with pytest.raises(Exception, match=r"too large|git lfs push"):
            host.mirror.set_refs(commit, snapshot_ref(host.task))
    assert host.repository.refs(snapshot_ref(host.task)) == () and not host.repository.has(commit)


def test_a_lease_that_is_lost_ends_the_exchange(host: Host) -> None:
    with host.mirror.held_for(host.key, branch=host.task.branch):
        commit = host.commit(pointer(b"late"))
        name = keep(host.mirror.path, b"late")
        Task.objects.filter(pk=host.task.pk).update(lease_epoch=host.key[1] + 1)
        with pytest.raises(LeaseLost):
            host.mirror.set_refs(commit, snapshot_ref(host.task))
        with pytest.raises(LeaseLost):
            host.mirror.fetch_contents(host.task.base_commit)
    assert not has(host.repository, name) and not has(host.mirror, NAME)


def ask(host: Host, method: str, path: str, **values: Any) -> requests.Response:
    return host.ask(method, f"repository.git/info/lfs/objects/{path}", **values)


def offered(host: Host, operation: str, name: str) -> dict[str, Any]:
    order = {"operation": operation, "objects": [{"oid": name, "size": 4}]}
    answer = ask(host, "POST", "batch", json=order)
    assert answer.headers["Content-Type"] == "application/vnd.git-lfs+json"
    (found,) = answer.json()["objects"]
    assert isinstance(found, dict)
    return found


def test_contents_are_those_of_the_project_only(host: Host, runner: Runner) -> None:
    keep(host.repository.path, CONTENT)
    other = held(runner.task(), "build-2@there:7:Worker-2")
    theirs = Host(host.url, host.token, other, host.folder)
    assert ask(host, "GET", NAME).content == CONTENT
    assert ask(theirs, "GET", NAME).status_code == 404
    assert "actions" in offered(host, "download", NAME) and "error" not in offered(host, "download", NAME)
    assert offered(theirs, "download", NAME)["error"]["code"] == 404
    assert "actions" not in offered(host, "upload", NAME), "the portal has it"
    assert "upload" in offered(theirs, "upload", NAME)["actions"]


def test_only_the_content_of_its_name_is_kept(host: Host, settings: Any) -> None:
    name = hashlib.sha256(b"right").hexdigest()
    assert ask(host, "PUT", name, data=b"wrong").status_code == 400
    assert not has(host.repository, name)
    assert ask(host, "PUT", name, data=b"right").status_code == 200
    assert kept(host.repository, name) == b"right"
    assert [path.name for path in lfs.contents_in(host.repository.path)] == [name], "nothing else is left"
    settings.ENVIRONMENT = settings.ENVIRONMENT.model_copy(update={"keep_free_disk": 2**62})
    assert ask(host, "PUT", NAME, data=CONTENT).status_code == 507


@pytest.mark.parametrize(
    "body",
    [
        b"", b"[]", b"{", b'{"operation": "download", "objects": [1]}',
        b'{"operation": "download", "objects": [{"oid": "../../x", "size": 1}]}',
        b'{"operation": "remove", "objects": []}', b"[" * 9000,
    ],
)  # fmt: skip
def test_orders_of_another_shape_are_refused(host: Host, body: bytes) -> None:
    assert ask(host, "POST", "batch", data=body).status_code == 400


def test_there_are_no_other_paths(host: Host) -> None:
    assert {ask(host, "GET", path).status_code for path in ("", "x", "batch", 63 * "a", "locks")} == {404}
    assert ask(host, "DELETE", NAME).status_code == 404


def test_a_lfsconfig_has_no_effect(host: Host) -> None:
    source = GitRepository(Path(host.task.project.source))
    source.commit(**{".lfsconfig": "[lfs]\n\turl = https://localhost:1/elsewhere\n\tfetchexclude = *\n"})
    host.repository.fetch()
    Task.objects.filter(pk=host.task.pk).update(base_commit=host.repository.head("main"))
    host.task.refresh_from_db()
    with host.mirror.held_for(host.key, branch=host.task.branch):
        host.mirror.git.run("symbolic-ref", "HEAD", "refs/source/main")
        assert host.mirror.fetch_contents(host.task.base_commit) == ""
    assert kept(host.mirror, NAME) == CONTENT
