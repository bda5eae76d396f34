"""M1: worker hosts get contents of Git LFS from the portal, and bring it those that tasks made."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from tasks_app.core.errors import LeaseLost, TemporaryFault
from tasks_app.git import Repository, lfs, mirror
from tasks_app.git.mirror import ExchangeRefused
from tasks_app.models import Task
from tasks_app.worker_api import git_service
from tasks_app.worker_api.application import WorkerHosts
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


def test_a_download_that_breaks_is_begun_again(host: Host, line: CutConnections) -> None:
    """git-lfs itself asks again, and the portal sends the whole content."""
    with host.mirror.held_for(host.key, branch=host.task.branch):
        line.forget()
        line.down, line.most = CUT, 2
        assert host.mirror.fetch_contents(host.task.base_commit) == ""
    assert kept(host.mirror, NAME) == CONTENT
    assert line.cut == 2 and line.passed["down"] > len(CONTENT)


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


def test_an_upload_that_breaks_is_begun_again(host: Host, line: CutConnections) -> None:
    """What was complete before the break is not sent again."""
    made = [os.urandom(1_000_000) for _ in range(2)]
    with host.mirror.held_for(host.key, branch=host.task.branch):
        commit = host.commit("\n".join(map(pointer, made)))
        names = [keep(host.mirror.path, one) for one in made]
        keep(host.repository.path, made[0])
        line.forget()
        line.up, line.most = CUT, 2
        host.mirror.set_refs(commit, snapshot_ref(host.task))
    assert [kept(host.repository, name) for name in names] == made
    assert line.cut == 2 and line.passed["up"] < 1_000_000 + 3 * CUT
    assert not list(host.repository.path.rglob("*.part"))


def test_a_content_that_the_portal_never_takes_is_not_sent(
    host: Host, line: CutConnections, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(git_service.BODY_LIMITS, "git-receive-pack", 1_000_000)
    made = os.urandom(1_000_001)
    with host.mirror.held_for(host.key, branch=host.task.branch):
        commit = host.commit(pointer(made))
        keep(host.mirror.path, made)
        line.forget()
        with pytest.raises(ExchangeRefused, match="too large"):
            host.mirror.set_refs(commit, snapshot_ref(host.task))
    assert line.passed["up"] < 100_000
    assert not host.repository.has(commit)


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
