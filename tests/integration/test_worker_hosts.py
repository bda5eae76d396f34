"""M1: worker hosts reach the repositories of the tasks that they hold, and nothing else."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import shutil
import socket
import threading
import time
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests
from django.db import connection
from django.utils import timezone

from tasks_app.asgi_layers.requests import answer
from tasks_app.core.errors import BadInput, LeaseLost, NotAllowed, TemporaryFault, WorkspaceError
from tasks_app.core.phases import Phase
from tasks_app.engine.workers.heartbeat import Heartbeat
from tasks_app.engine.workers.intake import Intake
from tasks_app.git import Repository, mirror, recording
from tasks_app.git.mirror import ExchangeRefused, Portal, TokenRefused, incoming_folder, incoming_ref
from tasks_app.models import Action, AuditEntry, Task, User, WorkerBeat, WorkerToken
from tasks_app.operations.doctor import services as doctor
from tasks_app.services.workers import hosts
from tasks_app.services.workers.hosts import make_worker_token, revoke_worker_token, worker_token_of
from tasks_app.worker_api import git_service
from tasks_app.worker_api.bodies import DiskFull
from tasks_app.worker_api.git_service import GitService
from tests.integration.git_repository import GitRepository
from tests.integration.worker_host import Host, held, host_at, serving, snapshot_ref
from tests.people import acting
from tests.runner import Runner
from tests.waiting import wait_until

pytestmark = pytest.mark.django_db(transaction=True)

PAUSES_BEFORE_FETCHES, PAUSES_BEFORE_PUSHES = mirror._FETCH_PAUSES, mirror._PUSH_PAUSES


@pytest.fixture
def host(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    monkeypatch.setattr(mirror, "_FETCH_PAUSES", ())
    monkeypatch.setattr(mirror, "_PUSH_PAUSES", ())
    with serving() as url:
        yield host_at(url, runner)


def test_what_a_held_task_needs_is_fetched_and_what_is_recorded_is_pushed(host: Host) -> None:
    with host.mirror.held_for(host.key, branch=host.task.branch):
        assert host.mirror.has(host.task.base_commit)
        made = host.commit("blue")
        assert not host.repository.has(made)
        host.mirror.set_refs(made, snapshot_ref(host.task), f"refs/heads/{host.task.branch}")
    for repository in (host.repository, host.mirror):
        assert repository.refs(snapshot_ref(host.task), f"refs/heads/{host.task.branch}") == (made, made)
    assert host.repository.problems() == []
    assert host.repository.refs("refs/cat-herder-incoming/") == (), "nothing is left of the transport"


def test_a_change_in_a_repository_of_real_size_is_pushed_as_deltas(host: Host) -> None:
    """M1. git bases what it sends on objects that the portal has: a change of a line is no 500 files."""
    source = GitRepository.make_large(host.folder / "large")
    base = host.repository
    base.git.run("fetch", "--quiet", str(source.path), "+refs/heads/main:refs/source/main")
    with host.mirror.held_for(host.key, branch=host.task.branch):
        made = host.change("src/part0/module0.py", "src/part3/module3.py", on=base.head("main"))
        assert host.packed_bytes(made) < 5_000
        host.mirror.set_refs(made, snapshot_ref(host.task))
    assert host.repository.refs(snapshot_ref(host.task)) == (made,)
    assert host.repository.problems() == []


def test_another_host_gets_what_the_first_has_recorded(host: Host) -> None:
    with host.mirror.held_for(host.key, branch=host.task.branch):
        made = host.commit("blue")
        host.mirror.set_refs(made, snapshot_ref(host.task))
    second = Host(host.url, host.token, host.task, host.folder / "second")
    with second.mirror.held_for(host.key, branch=host.task.branch):
        assert second.mirror.refs(snapshot_ref(host.task)) == (made,)


def test_a_mirror_that_was_damaged_is_fetched_anew(host: Host) -> None:
    with host.mirror.held_for(host.key, branch=host.task.branch):
        pass
    (host.mirror.path / "HEAD").write_text("")
    with host.mirror.held_for(host.key, branch=host.task.branch):
        assert host.mirror.problems() == []


def test_what_was_pushed_for_a_task_that_has_ended_is_removed(host: Host, runner: Runner) -> None:
    """A portal was killed before it could take it back. The next holder of another task may need it."""
    other = held(runner.task(project=host.task.project), "build-2@there:7:Worker-2")
    for task in (host.task, other):
        host.repository.set_refs(host.task.base_commit, incoming_ref((task.pk, 1)))
    soon = timezone.now() + timedelta(seconds=15)
    Task.objects.filter(pk=other.pk).update(phase=Phase.CANCELLED, lease_expires=soon)
    hosts.remove_pushes_of_ended_tasks()
    assert len(host.repository.refs("refs/cat-herder-incoming/")) == 2, "a worker still holds it"
    Task.objects.update(lease_expires=None, lease_owner="")
    hosts.remove_pushes_of_ended_tasks()
    assert host.repository.refs(f"{incoming_folder(other.pk)}/") == ()
    assert len(host.repository.refs(f"{incoming_folder(host.task.pk)}/")) == 1


def test_a_worker_host_records_nothing_without_a_lease(host: Host) -> None:
    with pytest.raises(WorkspaceError, match="that it holds"):
        host.mirror.set_refs(host.task.base_commit, snapshot_ref(host.task))


def test_a_start_to_which_no_branch_leads_any_more_is_fetched(host: Host) -> None:
    """The source's branch was rewritten after the task was created."""
    source = GitRepository(Path(host.task.project.source))
    source.git("checkout", "--quiet", "--orphan", "anew")
    source.commit(**{"new.txt": "another history"})
    source.git("branch", "--force", "main", "anew")
    host.repository.fetch()
    with host.mirror.held_for(host.key, branch=host.task.branch):
        assert host.mirror.has(host.task.base_commit)


ROUTES = [
    ("GET", ""),
    ("POST", "/refs"),
    ("GET", "/repository.git/info/refs?service=git-upload-pack"),
    ("GET", "/repository.git/info/refs?service=git-receive-pack"),
    ("POST", "/repository.git/git-upload-pack"),
    ("POST", "/repository.git/git-receive-pack"),
    ("POST", "/contents"),
    ("POST", "/repository.git/info/lfs/objects/batch"),
    ("GET", f"/repository.git/info/lfs/objects/{64 * '0'}"),
    ("PUT", f"/repository.git/info/lfs/objects/{64 * '0'}"),
]


def statuses(host: Host, *, token: str = "", key: tuple[int, int] | None = None) -> set[int]:
    """The statuses of all routes of a task."""
    task, epoch = key or host.key
    headers = {"Authorization": f"Bearer {token or host.token}"}
    return {
        requests.request(
            method, f"{host.url}/worker/tasks/{task}/{epoch}{path}", headers=headers, data=b"0000", timeout=60
        ).status_code
        for method, path in ROUTES
    }


def test_without_a_token_nothing_is_served(host: Host) -> None:
    assert statuses(host, token="cathw_build-2." + 43 * "A") == {401}
    assert requests.get(f"{host.url}/worker/hello", timeout=60).status_code == 401
    basic = requests.get(f"{host.url}/worker/hello", auth=("build-2", host.token), timeout=60)
    assert basic.status_code == 401


def test_a_revoked_token_opens_nothing_from_the_next_request_on(host: Host, runner: Runner) -> None:
    assert host.portal.hello()["data_dir"]
    revoke_worker_token("build-2", by=acting(runner.user))
    assert statuses(host) == {401}
    with pytest.raises(TokenRefused), host.mirror.held_for(host.key, branch=host.task.branch):
        pass


def test_a_task_that_others_hold_is_out_of_reach(host: Host, runner: Runner) -> None:
    for owner in ("portal:7:Worker-1", "build-20@there:7:Worker-1", "build-2:7:Worker-1"):
        other = held(runner.task(), owner)
        assert statuses(host, key=(other.pk, other.lease_epoch)) == {403}
    idle = runner.task()
    assert statuses(host, key=(idle.pk, idle.lease_epoch + 1)) == {403}
    assert statuses(host, key=(10**9, 1)) == {403}


def test_an_older_epoch_is_out_of_reach(host: Host) -> None:
    older = host.key
    Task.objects.filter(pk=host.task.pk).update(lease_epoch=older[1] + 1)
    assert statuses(host, key=older) == {403}


@pytest.mark.parametrize(
    "lost",
    [
        {"lease_owner": "", "lease_expires": None},
        {"lease_expires": timezone.now() - timedelta(hours=1)},
        {"lease_owner": "portal:7:Worker-1"},
    ],
    ids=["released", "lapsed", "taken over"],
)
@pytest.mark.both
def test_access_ends_with_the_lease(host: Host, lost: dict[str, Any]) -> None:
    with host.mirror.held_for(host.key, branch=host.task.branch):
        made = host.commit("late")
        Task.objects.filter(pk=host.task.pk).update(**lost)
        assert statuses(host) == {403}
        with pytest.raises(LeaseLost):
            host.mirror.set_refs(made, snapshot_ref(host.task))
    assert not host.repository.has(made)


def test_a_lease_that_is_lost_during_a_push_sets_no_reference(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pack has arrived, and then another worker takes the task."""
    taken = threading.Event()

    def taken_over(self: Repository, *patterns: str) -> tuple[str, ...]:
        if incoming_folder(host.task.pk) in patterns and not taken.is_set() and original(self, patterns[-1]):
            taken.set()
            Task.objects.filter(pk=host.task.pk).update(lease_epoch=host.key[1] + 1)
        return original(self, *patterns)

    original = Repository.refs
    with host.mirror.held_for(host.key, branch=host.task.branch):
        made = host.commit("late")
        monkeypatch.setattr(Repository, "refs", taken_over)
        with pytest.raises(LeaseLost):
            host.mirror.set_refs(made, snapshot_ref(host.task))
    assert taken.is_set() and host.repository.has(made)
    assert host.repository.refs("refs/cat-herder/", "refs/heads/") == ()


@pytest.mark.both
def test_nobody_takes_the_task_while_its_references_are_set(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the successor could begin before the references, and go on without what they name."""
    waited: list[bool] = []

    def claim() -> None:
        Task.objects.filter(pk=host.task.pk).update(lease_epoch=host.key[1] + 1)
        connection.close()

    def set_refs(*arguments: Any) -> None:
        successor.start()
        successor.join(0.5)
        waited.append(successor.is_alive())
        original(*arguments)

    successor, original = threading.Thread(target=claim), recording.set_refs
    with host.mirror.held_for(host.key, branch=host.task.branch):
        monkeypatch.setattr(hosts, "set_refs", set_refs)
        host.mirror.set_refs(host.commit("work"), snapshot_ref(host.task))
    successor.join()
    assert waited == [True]


def test_without_the_hooks_that_check_a_push_none_is_taken(
    host: Host, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """git takes every push if a hook is not executable, as after a copy without modes."""
    for hook in ("pre-receive", "update"):
        shutil.copyfile(git_service._HOOKS / hook, tmp_path / hook)
    monkeypatch.setattr(git_service, "_HOOKS", tmp_path)
    with host.mirror.held_for(host.key, branch=host.task.branch):
        made, url = host.commit("mine"), host.portal.repository_url(host.key)
        with pytest.raises(WorkspaceError, match="500"):
            host.git("push", "--force", "--", url, f"{made}:refs/source/main")
    assert not host.repository.has(made)


def test_a_push_sets_no_other_reference_and_deletes_none(host: Host) -> None:
    with host.mirror.held_for(host.key, branch=host.task.branch):
        made = host.commit("mine")
        url = host.portal.repository_url(host.key)
        before = host.repository.git.line("for-each-ref")
        refs = (
            "refs/heads/main",
            "refs/source/main",
            snapshot_ref(host.task),
            incoming_ref((host.task.pk + 1, 1)),  # whatever its own number is
        )
        for ref in refs:
            with pytest.raises(WorkspaceError):
                host.git("push", "--force", "--", url, f"{made}:{ref}")
        with pytest.raises(WorkspaceError):
            host.git("push", "--", url, ":refs/source/main")
        assert host.repository.git.line("for-each-ref") == before


def test_references_of_others_cannot_be_set(host: Host) -> None:
    branch = host.task.branch
    for ref in (
        "refs/heads/main", "refs/source/main", "refs/cat-herder/other/1-01-1", f"refs/heads/{branch}/x",
        f"refs/cat-herder/{branch}", f"refs/cat-herder/{branch}/a/b", f"refs/cat-herder/{branch}/..",
        f"refs/cat-herder/{branch}/x.lock", f"refs/cat-herder/{branch}/x\ndelete refs/source/main", "HEAD",
        f"refs/cat-herder-incoming/{host.task.pk}/1", "../refs/heads/x", f"refs/heads/{branch} ", "",
    ):  # fmt: skip
        answer = requests.post(
            f"{host.url}/worker/tasks/{host.task.pk}/{host.task.lease_epoch}/refs",
            headers={"Authorization": f"Bearer {host.token}"},
            json={"target": host.task.base_commit, "refs": [ref]},
            timeout=60,
        )
        assert answer.status_code == 400, ref
    assert host.repository.refs("refs/cat-herder/", "refs/heads/") == ()


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"{", b'{"target": 1, "refs": []}', b'{"target": "--all", "refs": ["x"]}', b"[" * 9_000],
)
def test_orders_of_another_shape_are_refused(host: Host, body: bytes) -> None:
    url = f"{host.url}/worker/tasks/{host.task.pk}/{host.task.lease_epoch}/refs"
    answer = requests.post(url, headers={"Authorization": f"Bearer {host.token}"}, data=body, timeout=60)
    assert answer.status_code == 400 and "Traceback" not in answer.text


def test_work_of_another_task_of_the_project_cannot_be_fetched(host: Host, runner: Runner) -> None:
    """Neither by its reference nor by the id of its commit, and no reference can be made to lead there."""
    other = runner.task(project=host.task.project)
    held(other, "build-2@there:7:Worker-2")
    theirs = Host(host.url, host.token, other, host.folder / "theirs")
    with theirs.mirror.held_for(theirs.key, branch=other.branch):
        secret = theirs.commit("secret")
        theirs.mirror.set_refs(secret, snapshot_ref(other))
    with host.mirror.held_for(host.key, branch=host.task.branch):
        url = host.portal.repository_url(host.key)
        assert secret not in host.git("ls-remote", "--", url).decode()
        for wanted in (secret, snapshot_ref(other)):
            for version in ("0", "2"):
                words = ("-c", f"protocol.version={version}", "fetch", "--", url, wanted)
                with pytest.raises(WorkspaceError):
                    host.git(*words)
        assert not host.portal.set_refs(host.key, secret, (snapshot_ref(host.task),))
    assert host.repository.refs(snapshot_ref(host.task)) == ()


@pytest.mark.parametrize(
    "path",
    [
        "", "tasks", "tasks/1/1/", "tasks/01/1", "tasks/1/1/repository.git/HEAD",
        "tasks/1/1/repository.git/objects/info/packs", "tasks/1/1/repository.git/../../../etc/passwd",
        "tasks/1/1/repository.git/info/refs", "tasks/1/1/repository.git/info/refs?service=git-upload-archive",
        "tasks/1/1/repository.git/info/refs?service=git-upload-pack&x=1",
        "tasks/1/1/repository.git/git-upload-archive", "tasks/1/1/bundles", "tasks/1/1/uploads/" + 40 * "0",
        "tasks/1/1/repository.git/git-shell",
        "tasks/1/1/repository.git%2Fconfig", "tasks/1%0A/1", "hello/", "tasks/١/1",
    ],
)  # fmt: skip
def test_there_are_no_other_paths(host: Host, path: str) -> None:
    parts = urlsplit(host.url)
    path = path.replace("tasks/1/1", f"tasks/{host.task.pk}/{host.task.lease_epoch}")
    with socket.create_connection((parts.hostname or "", parts.port or 0)) as there:  # nobody tidies the path
        head = f"GET /worker/{path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {host.token}\r\n"
        there.sendall(f"{head}Connection: close\r\n\r\n".encode())
        assert there.makefile("rb").readline().split()[1] in (b"404", b"400")


def post(host: Host, service: str, body: bytes, **headers: str) -> requests.Response:
    return requests.post(
        f"{host.portal.repository_url(host.key)}/{service}",
        headers={"Authorization": f"Bearer {host.token}", **headers},
        data=body,
        timeout=60,
    )


def test_bodies_are_limited_also_compressed_ones(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(git_service.BODY_LIMITS, "git-upload-pack", 100_000)
    assert post(host, "git-upload-pack", b"0" * 100_001).status_code == 413
    bomb = gzip.compress(b"0" * 50_000_000)
    assert len(bomb) < 100_000
    assert post(host, "git-upload-pack", bomb, **{"Content-Encoding": "gzip"}).status_code == 413
    whole = gzip.compress(b"0000")
    for broken in (b"not compressed", bomb[:-9][:50], whole + b"more", whole + bytes(2_000_000)):
        answer = post(host, "git-upload-pack", broken, **{"Content-Encoding": "gzip"})
        assert answer.status_code == 400


def test_what_goes_wrong_after_the_response_began_cuts_it_off(
    host: Host, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fails_late(self: GitService, process: Any, scope: Any, receive: Any, response: Any) -> None:
        await response.write(b"0008NAK\n")
        raise DiskFull("The disk is full.")

    monkeypatch.setattr(GitService, "_exchange", fails_late)
    with pytest.raises(requests.RequestException):
        post(host, "git-upload-pack", b"0000")
    assert "was cut off: The disk is full." in caplog.text
    assert "Exception in ASGI application" not in caplog.text


def test_a_pack_that_is_not_sound_is_refused(host: Host) -> None:
    ref = incoming_ref(host.key)
    line = f"{'0' * 40} {host.task.base_commit} {ref}\0report-status\n".encode()
    body = b"%04x%s0000PACK\0\0\0\2\0\0\0\1 what is this" % (len(line) + 4, line)
    answer = post(host, "git-receive-pack", body)
    assert b"ng " in answer.content or b"unpack" in answer.content
    assert host.repository.refs(ref) == () and host.repository.problems() == []


def packed(kind: int, content: bytes, *, base: str = "") -> bytes:
    """An object of a pack: 1 a commit, 2 a tree, 3 a blob, 7 a delta to the object `base`."""
    size = len(content)
    head = bytearray([kind << 4 | size & 15])
    size >>= 4
    while size:
        head[-1] |= 128
        head.append(size & 127)
        size >>= 7
    return bytes(head) + bytes.fromhex(base) + zlib.compress(content)


def pushed(host: Host, commit: str, *objects: bytes, messages: bool = False) -> bytes:
    """Push a pack of just these objects, and return what the portal says."""
    takes = "report-status side-band-64k" if messages else "report-status"
    line = f"{'0' * 40} {commit} {incoming_ref(host.key)}\0{takes}\n".encode()
    pack = b"PACK" + (2).to_bytes(4) + len(objects).to_bytes(4) + b"".join(objects)
    pack += hashlib.sha1(pack, usedforsecurity=False).digest()
    return post(host, "git-receive-pack", b"%04x%s0000%s" % (len(line) + 4, line, pack)).content


def named(kind: str, content: bytes) -> str:
    head = f"{kind} {len(content)}\0".encode()
    return hashlib.sha1(head + content, usedforsecurity=False).hexdigest()


def commit_text(tree: str, *parents: str) -> bytes:
    lines = [f"tree {tree}", *(f"parent {one}" for one in parents)]
    who = "A <a@example.org> 1700000000 +0000"
    return "\n".join([*lines, f"author {who}", f"committer {who}", "", "mine", ""]).encode()


@pytest.mark.parametrize("way", ["parent", "tree", "file", "delta"])
def test_work_of_another_task_is_not_fetched_by_pushing_what_names_it(
    host: Host, runner: Runner, way: str
) -> None:
    """git itself only asks whether the objects that a push leads to exist somewhere in the repository."""
    secret = work_of_another_task(host, runner)
    hidden_tree, file = host.repository.tree(secret), named("blob", b"secret")
    listed = b"100644 stolen.txt\0" + bytes.fromhex(file)
    own_tree = named("tree", listed)
    empty_tree = named("tree", b"")
    text = {
        "parent": commit_text(empty_tree, secret),
        "tree": commit_text(hidden_tree, host.task.base_commit),
    }.get(way, commit_text(own_tree, host.task.base_commit))
    objects = {
        "parent": [packed(2, b"")],
        "tree": [],
        "file": [packed(2, listed)],
        "delta": [packed(2, listed), packed(7, b"\x06\x04\x04mine", base=file)],
    }[way]
    made = named("commit", text)
    assert b"ng " in pushed(host, made, packed(1, text), *objects)
    assert host.repository.refs(incoming_ref(host.key)) == () and not host.repository.has(made)


def work_of_another_task(host: Host, runner: Runner) -> str:
    """Return the id of a commit that another task of the project has made, which the host may not read."""
    other = runner.task(project=host.task.project)
    held(other, "build-2@there:7:Worker-2")
    theirs = Host(host.url, host.token, other, host.folder / "theirs")
    with theirs.mirror.held_for(theirs.key, branch=other.branch):
        secret = theirs.commit("secret")
        theirs.mirror.set_refs(secret, snapshot_ref(other))
    return secret


def test_nothing_is_learned_of_a_base_by_what_git_says_of_the_result(host: Host, runner: Runner) -> None:
    """M1. A delta takes one byte of a folder of another task; the result is a folder only for some bytes.

    Whatever it is, the answer is the same: git has not looked at it. It would name the result by its hash.
    """
    hidden = host.repository.tree(work_of_another_task(host, runner))
    rest = b"00644 a\0" + bytes.fromhex(named("blob", b"x"))
    text = commit_text(named("tree", b""), host.task.base_commit)
    answers = set()
    for position in range(6):
        size = len(b"100644 paint.txt\0") + 20
        delta = bytes([size, 1 + len(rest), 0x91, position, 1, len(rest)]) + rest
        objects = [packed(1, text), packed(2, b""), packed(3, b"x"), packed(7, delta, base=hidden)]
        answers.add(pushed(host, named("commit", text), *objects))
    assert len(answers) == 1 and b"unpacker error" in answers.pop()
    assert host.repository.refs(incoming_ref(host.key)) == ()


def test_a_delta_may_be_based_on_what_the_host_may_read(host: Host) -> None:
    source = GitRepository(Path(host.task.project.source))
    source.commit(**{"old.txt": "removed soon"})
    source.git("rm", "--quiet", "old.txt")
    source.git("commit", "--quiet", "--message", "Remove it")
    host.repository.fetch()
    delta = packed(7, b"\x0c\x0e" + b"\x90\x0c" + b"\x02!!", base=named("blob", b"removed soon"))
    listed = b"100644 again.txt\0" + bytes.fromhex(named("blob", b"removed soon!!"))
    text = commit_text(named("tree", listed), host.repository.head("main"))
    made = named("commit", text)
    assert b"unpack ok" in pushed(host, made, packed(1, text), packed(2, listed), delta)
    assert host.portal.set_refs(host.key, made, (snapshot_ref(host.task),))
    assert host.repository.git.run("cat-file", "blob", f"{made}:again.txt") == b"removed soon!!"


def test_a_host_is_told_which_base_it_may_not_read(
    host: Host, runner: Runner, caplog: pytest.LogCaptureFixture
) -> None:
    """The portal's log says it, too. git itself would only say that the pack ended early."""
    work_of_another_task(host, runner)
    secret = named("blob", b"secret")
    delta = packed(7, b"\x06\x04\x04mine", base=secret)
    text = commit_text(named("tree", b""), host.task.base_commit)
    said = pushed(host, named("commit", text), packed(1, text), packed(2, b""), delta, messages=True)
    assert secret.encode() in said and b"may not read" in said
    assert secret in caplog.text


def test_a_push_may_lead_to_what_an_older_commit_of_the_source_has(host: Host) -> None:
    source = GitRepository(Path(host.task.project.source))
    source.commit(**{"old.txt": "removed soon"})
    source.git("rm", "--quiet", "old.txt")
    source.git("commit", "--quiet", "--message", "Remove it")
    host.repository.fetch()
    listed = b"100644 again.txt\0" + bytes.fromhex(named("blob", b"removed soon"))
    text = commit_text(named("tree", listed), host.repository.head("main"))
    made = named("commit", text)
    assert b"unpack ok" in pushed(host, made, packed(1, text), packed(2, listed))
    assert host.portal.set_refs(host.key, made, (snapshot_ref(host.task),))


def test_a_push_leaves_the_disk_as_free_as_the_portal_keeps_it(host: Host, settings: Any) -> None:
    settings.ENVIRONMENT = settings.ENVIRONMENT.model_copy(update={"keep_free_disk": 2**62})
    assert post(host, "git-receive-pack", b"0000").status_code == 507
    made = ""
    with pytest.raises(TemporaryFault), host.mirror.held_for(host.key, branch=host.task.branch):
        made = host.commit("blue")
        host.mirror.set_refs(made, snapshot_ref(host.task))
    assert made and not host.repository.has(made)


def limited(monkeypatch: pytest.MonkeyPatch, *, body: int, pack: int) -> None:
    """The portal takes packs up to a size for pushing, and bodies up to another."""
    original = GitService._git

    def git(self: GitService) -> Any:
        made = original(self)
        return replace(made, settings=(*made.settings, f"receive.maxInputSize={pack}"))

    monkeypatch.setattr(GitService, "_git", git)
    monkeypatch.setitem(git_service.BODY_LIMITS, "git-receive-pack", body)


@pytest.fixture
def pushes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The pushes that have reached the portal; a pause before another attempt would take an hour."""
    monkeypatch.setattr(mirror, "_PUSH_PAUSES", (3600.0,))
    seen: list[str] = []
    original = GitService.respond

    async def respond(self: GitService, *arguments: Any) -> None:
        if self.service == "git-receive-pack" and not self.advertise:
            seen.append(self.service)
        await original(self, *arguments)

    monkeypatch.setattr(GitService, "respond", respond)
    return seen


@pytest.mark.parametrize(("body", "pack"), [(100_000, 10**8), (10**8, 100_000)], ids=["body", "pack"])
def test_what_is_too_large_for_the_portal_is_pushed_once(
    host: Host, monkeypatch: pytest.MonkeyPatch, pushes: list[str], body: int, pack: int
) -> None:
    limited(monkeypatch, body=body, pack=pack)
    with host.mirror.held_for(host.key, branch=host.task.branch):
        made = host.commit(os.urandom(4_000_000).hex())  # it cannot be compressed to less than a half
        with pytest.raises(ExchangeRefused, match=r"too large: .* at most 2 GB .*\.gitignore"):
            host.mirror.set_refs(made, snapshot_ref(host.task))
    assert len(pushes) == 2, "git sends an empty request before a large one"
    assert not host.repository.has(made) and host.repository.refs("refs/cat-herder/") == ()


def test_what_the_portal_will_never_take_is_pushed_once(host: Host, pushes: list[str]) -> None:
    with host.mirror.held_for(host.key, branch=host.task.branch):
        text = commit_text(host.mirror.tree(host.task.base_commit), host.task.base_commit)
        broken = text.replace(b"<a@example.org>", b"<a@example.org")
        words = ("hash-object", "-w", "-t", "commit", "--literally", "--stdin")
        made = host.mirror.git.run(*words, stdin=broken).decode().strip()
        with pytest.raises(ExchangeRefused, match=r"does not take what was recorded: .*fsck error"):
            host.mirror.set_refs(made, snapshot_ref(host.task))
    assert len(pushes) == 1 and host.repository.refs("refs/cat-herder/") == ()


def test_a_reference_that_the_portal_refuses_is_asked_for_once(host: Host, pushes: list[str]) -> None:
    with (
        host.mirror.held_for(host.key, branch=host.task.branch),
        pytest.raises(ExchangeRefused, match="is not a reference of task"),
    ):
        host.mirror.set_refs(host.task.base_commit, "refs/heads/main")
    assert not pushes


@pytest.mark.parametrize("status", [500, 502, 503, 408, 429, 400, 404])
def test_what_may_pass_is_tried_again(host: Host, monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    """What a portal that restarts, or its proxy, answers."""
    monkeypatch.setattr(mirror, "_PUSH_PAUSES", (0.0,))
    seen: list[int] = []
    original = GitService.respond

    async def respond(self: GitService, scope: Any, receive: Any, send: Any) -> None:
        if self.service == "git-receive-pack":
            seen.append(status)
            if len(seen) == 1:
                await answer(scope, send, status, b"Not now.\n")
                return
        await original(self, scope, receive, send)

    monkeypatch.setattr(GitService, "respond", respond)
    with host.mirror.held_for(host.key, branch=host.task.branch):
        made = host.commit("blue")
        host.mirror.set_refs(made, snapshot_ref(host.task))
    assert len(seen) > 1 and host.repository.refs(snapshot_ref(host.task)) == (made,)


def test_work_is_kept_until_a_portal_that_is_away_for_long_is_back(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No other host has it. Fetching is given up sooner: that another host may do."""
    away = TemporaryFault("The portal cannot be reached")
    faults = [away] * (len(PAUSES_BEFORE_PUSHES) - 1)

    def set_refs(self: Portal, *arguments: Any) -> bool:
        if faults:
            raise faults.pop()
        return original(self, *arguments)

    original = Portal.set_refs
    slept: list[float] = []
    monkeypatch.setattr(mirror, "_PUSH_PAUSES", PAUSES_BEFORE_PUSHES)
    monkeypatch.setattr("tasks_app.git.mirror.time.sleep", slept.append)
    monkeypatch.setattr(Portal, "set_refs", set_refs)
    with host.mirror.held_for(host.key, branch=host.task.branch):
        made = host.commit("blue")
        host.mirror.set_refs(made, snapshot_ref(host.task))
    assert host.repository.refs(snapshot_ref(host.task)) == (made,)
    assert sum(slept) > 4 * 60 > sum(PAUSES_BEFORE_FETCHES)


def test_a_host_that_cannot_push_says_so_until_it_can(
    host: Host, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """M1, M6. At once in its log and its heartbeat, which the queue and `doctor` show; it takes nothing."""
    intake = Intake()
    seen: list[tuple[str, bool]] = []

    def sleep(seconds: float) -> None:
        """The pause before the next attempt; by then the portal takes pushes again."""
        if seconds < 3600:  # other waiting than between attempts
            sleep_for(seconds)
            return
        beating._try_beat()
        seen.append((WorkerBeat.objects.get().problem, intake.is_open))
        [shown] = [finding.text for finding in doctor.workers() if "takes no tasks" in finding.text]
        assert "rejected" in shown
        monkeypatch.setattr(git_service, "_HOOKS", hooks)

    hooks, beating, sleep_for = git_service._HOOKS, Heartbeat(slots=1, intake=intake), time.sleep
    refusing = host.folder / "hooks"
    refusing.mkdir(parents=True)
    for name in ("pre-receive", "update"):
        (refusing / name).write_text("#!/bin/sh\necho broken >&2\nexit 1\n")
        (refusing / name).chmod(0o755)
    monkeypatch.setattr(mirror, "_PUSH_PAUSES", (3600.0, 3600.0))
    monkeypatch.setattr("tasks_app.git.mirror.time.sleep", sleep)
    with host.mirror.held_for(host.key, branch=host.task.branch):
        made = host.commit("blue")
        monkeypatch.setattr(git_service, "_HOOKS", refusing)
        host.mirror.set_refs(made, snapshot_ref(host.task))
    ((problem, was_open),) = seen
    assert f"task {host.task.pk}" in problem and "rejected" in problem and not was_open
    assert "tried again in 3600 seconds" in caplog.text and "broken" in caplog.text
    assert host.repository.refs(snapshot_ref(host.task)) == (made,)
    beating._try_beat()
    assert intake.is_open and WorkerBeat.objects.get().problem == ""


def test_slow_clients_of_one_host_do_not_keep_out_another(
    host: Host, runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = make_worker_token("build-3", by=acting(runner.user))
    other = held(runner.task(), "build-3@elsewhere:7:Worker-1")
    parts = urlsplit(host.portal.repository_url(host.key))
    head = (
        f"POST {parts.path}/git-receive-pack HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n"
        f"Authorization: Bearer {host.token}\r\n\r\n00"
    )
    with ExitStack() as opened:
        for _ in range(16):
            there = opened.enter_context(socket.create_connection((parts.hostname or "", parts.port or 0)))
            there.sendall(head.encode())
        wait_until(lambda: len(git_processes(host)) == git_service.MOST_PROCESSES)
        theirs = Host(host.url, token, other, host.folder / "elsewhere")
        with theirs.mirror.held_for(theirs.key, branch=other.branch):
            assert theirs.mirror.has(other.base_commit)


def test_git_ends_with_its_client(host: Host) -> None:
    parts = urlsplit(host.portal.repository_url(host.key))
    with socket.create_connection((parts.hostname or "", parts.port or 0)) as there:
        head = (
            f"POST {parts.path}/git-receive-pack HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n"
            f"Authorization: Bearer {host.token}\r\n\r\n00"
        )
        there.sendall(head.encode())
        wait_until(lambda: git_processes(host) != [])
    wait_until(lambda: git_processes(host) == [])


def git_processes(host: Host) -> list[int]:
    """The git processes of the portal in the task's repository."""
    mark = f"--git-dir={host.repository.path}".encode()
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208
        try:
            if mark in Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0"):
                found.append(int(name))
        except OSError:
            continue
    return found


def test_the_token_is_in_no_argument_and_no_message(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    command, environment = host.portal.git(host.mirror).process("fetch")
    assert host.token not in " ".join(command) and host.token in "".join(environment.values())
    assert host.token not in repr(host.mirror)
    lost = Host("http://127.0.0.1:1", host.token, host.task, host.folder)
    with (
        pytest.raises(TemporaryFault, match="cannot be") as raised,
        lost.mirror.held_for(host.key, branch="cat-herder/x"),
    ):
        pass
    assert host.token not in str(raised.value)


def test_only_a_digest_of_a_token_is_stored_and_the_audit_log_tells_of_it(runner: Runner) -> None:
    token = make_worker_token("build-2", by=acting(runner.user))
    row = WorkerToken.objects.get()
    assert token not in json.dumps({"digest": row.digest}) and worker_token_of(token) == row
    with pytest.raises(BadInput, match="has a token already"):
        make_worker_token("build-2", by=acting(runner.user))
    revoke_worker_token("build-2", by=acting(runner.user))
    assert worker_token_of(token) is None
    entries = AuditEntry.objects.order_by("pk").values_list("action", "subject")
    assert [*entries][-2:] == [
        (Action.WORKER_TOKEN_MADE, "build-2"),
        (Action.WORKER_TOKEN_REVOKED, "build-2"),
    ]


@pytest.mark.parametrize("name", ["", "Build", "a_b", "-a", "a-", "a@b", "a" * 31, "a.b", "ä"])
def test_names_that_could_be_taken_for_others_are_refused(runner: Runner, name: str) -> None:
    with pytest.raises(BadInput):
        make_worker_token(name, by=acting(runner.user))


def test_only_site_admins_manage_worker_hosts(runner: Runner) -> None:
    bob = acting(User.objects.create_user("bob"))
    with pytest.raises(NotAllowed):
        make_worker_token("build-2", by=bob)
    make_worker_token("build-2", by=acting(runner.user))
    with pytest.raises(NotAllowed):
        revoke_worker_token("build-2", by=bob)
