"""M1: what takes long for one worker host delays no page, no check of a token, and no stop of the portal."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests

from tasks_app.asgi_layers.requests import answer
from tasks_app.asgi_layers.sandboxed_peers import RefuseSandboxedPeers, SandboxGuard
from tasks_app.core.errors import LeaseLost, TemporaryFault
from tasks_app.git import mirror
from tasks_app.git.lfs import LfsContents
from tasks_app.git.mirror import incoming_ref
from tasks_app.git.publishing import unreadable
from tasks_app.models import Task
from tasks_app.services.workers.hosts import require_still_held
from tasks_app.worker_api import application, bodies, git_service, lfs_service
from tasks_app.worker_api.application import WorkerHosts
from tests.forkserver import PATIENCE
from tests.integration.worker_host import Host, held, host_at, serving, snapshot_ref
from tests.runner import Runner
from tests.waiting import wait_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.once(on="sqlite")]


async def page(scope: Any, receive: Any, send: Any) -> None:
    await answer(scope, send, 200, b"a page\n")


class Blocking:
    """Stands in for a call that takes long: it ends when the test says so."""

    def __init__(self, result: Any = "") -> None:
        self.begun, self.end = threading.Semaphore(0), threading.Event()
        self._result = result

    def __call__(self, *arguments: Any) -> Any:
        self.begun.release()
        assert self.end.wait(PATIENCE)
        return self._result(*arguments) if callable(self._result) else self._result


@contextmanager
def ended(blocking: Blocking) -> Iterator[None]:
    """Let what still blocks end, so that no thread outlives the test."""
    try:
        yield
    finally:
        blocking.end.set()
        wait_until(lambda: not any(one.name == "slow-work" for one in threading.enumerate()))


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests ask again at once."""
    monkeypatch.setattr(lfs_service, "WAIT_SECONDS", 0.05)
    monkeypatch.setattr(mirror, "_FETCH_PAUSES", ())
    monkeypatch.setattr(mirror, "_PUSH_PAUSES", ())


@pytest.fixture
def fetching(monkeypatch: pytest.MonkeyPatch) -> Blocking:
    """Sources from which contents of Git LFS come slowly."""
    fetching = Blocking()
    monkeypatch.setattr(LfsContents, "fetch_needed", lambda _: fetching())
    return fetching


def ask_for_contents(host: Host, number: int) -> requests.Response:
    """Ask for the contents of another commit with each number."""
    Task.objects.filter(pk=host.task.pk).update(base_commit=f"{number:040x}")
    return host.ask("POST", "contents")


def most_fetches() -> int:
    return application.MOST_FETCHES + application.MOST_WAITING


@pytest.mark.usefixtures("quick")
def test_slow_sources_delay_no_page_and_no_check_of_a_token(
    runner: Runner, fetching: Blocking, tmp_path: Path
) -> None:
    application = RefuseSandboxedPeers(WorkerHosts(page), SandboxGuard(folder=tmp_path, allow_others=True))
    with ended(fetching), serving(application) as url:
        host = host_at(url, runner)
        asked = [ask_for_contents(host, number).status_code for number in range(1, most_fetches() + 1)]
        assert asked == [202] * most_fetches()
        assert requests.get(f"{url}/", timeout=PATIENCE).text == "a page\n", "on a connection of its own"
        assert host.portal.hello()["data_dir"]
        Task.objects.filter(pk=host.task.pk).update(base_commit=host.task.base_commit)
        with host.mirror.held_for(host.key, branch=host.task.branch):
            assert host.mirror.has(host.task.base_commit)


@pytest.mark.usefixtures("quick")
def test_more_fetches_than_may_wait_are_refused_for_a_while(runner: Runner, fetching: Blocking) -> None:
    with serving() as url, ended(fetching):
        host = host_at(url, runner)
        for number in range(1, most_fetches() + 1):
            assert ask_for_contents(host, number).status_code == 202
        refused = ask_for_contents(host, 100)
        assert refused.status_code == 503 and int(refused.headers["Retry-After"]) > 0
        with pytest.raises(TemporaryFault):
            host.portal.prepare_contents(host.key)
        fetching.end.set()
        wait_until(lambda: ask_for_contents(host, 100).status_code == 200)


@pytest.mark.usefixtures("quick")
def test_m1_a_slow_source_does_not_keep_out_those_of_other_projects(
    runner: Runner, fetching: Blocking, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[Any] = []

    def fetch(contents: LfsContents) -> Any:
        begun.append(contents.repository.path)
        return fetching()

    monkeypatch.setattr(LfsContents, "fetch_needed", fetch)
    with serving() as url, ended(fetching):
        host = host_at(url, runner)
        for number in range(1, application.MOST_FETCHES + 2):
            assert ask_for_contents(host, number).status_code == 202
        other = held(runner.task(project=runner.project()), "build-2@there:8:Worker-2")
        theirs = Host(host.url, host.token, other, host.folder)
        assert theirs.ask("POST", "contents").status_code == 202
        wait_until(lambda: len(begun) == application.MOST_FETCHES)
        assert set(begun) == {host.repository.path, theirs.repository.path}


@pytest.mark.usefixtures("quick")
def test_a_stop_of_the_portal_does_not_wait_for_a_slow_source(runner: Runner, fetching: Blocking) -> None:
    with ended(fetching):
        with serving() as url:
            assert ask_for_contents(host_at(url, runner), 1).status_code == 202
            assert fetching.begun.acquire(timeout=PATIENCE)
        assert not fetching.end.is_set()


@pytest.mark.usefixtures("quick")
def test_what_went_wrong_while_nobody_waited_is_told_once(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    times: list[int] = []

    def fetch(_: LfsContents) -> str:
        times.append(1)
        return fetching()  # type: ignore[no-any-return]

    fetching = Blocking("The source is away.")
    monkeypatch.setattr(LfsContents, "fetch_needed", fetch)
    with serving() as url, ended(fetching):
        host = host_at(url, runner)
        assert host.ask("POST", "contents").status_code == 202
        fetching.end.set()
        wait_until(lambda: not any(one.name == "slow-work" for one in threading.enumerate()))
        assert host.ask("POST", "contents").json() == {"problem": "The source is away."}
        assert len(times) == 1


@pytest.fixture
def checking(monkeypatch: pytest.MonkeyPatch) -> Blocking:
    """A portal that needs long to find out which objects a host may read."""
    checking = Blocking(unreadable)
    monkeypatch.setattr(git_service, "unreadable", checking)
    return checking


def record(host: Host) -> str:
    """Record a commit on the host, and return it."""
    with host.mirror.held_for(host.key, branch=host.task.branch):
        made = host.commit("blue")
        host.mirror.set_refs(made, snapshot_ref(host.task))
    return made


@pytest.mark.usefixtures("quick")
def test_m1_a_long_check_of_a_push_is_not_silent(
    runner: Runner, checking: Blocking, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a proxy would give up the request. What is sent is nothing to git."""
    monkeypatch.setattr(git_service, "KEEPALIVE_SECONDS", 0.02)
    sent: list[bytes] = []
    original = git_service._Response.write

    async def write(self: Any, piece: bytes, *, more: bool = True) -> None:
        sent.append(piece)
        await original(self, piece, more=more)

    monkeypatch.setattr(git_service._Response, "write", write)
    with ended(checking), serving() as url, ThreadPoolExecutor(1) as worker:
        host = host_at(url, runner)
        recorded = worker.submit(record, host)
        wait_until(lambda: sent.count(b"0005\1") > 2)
        checking.end.set()
        made = recorded.result(PATIENCE)
        assert host.repository.refs(snapshot_ref(host.task)) == (made,)


@pytest.mark.usefixtures("quick")
def test_m1_checks_of_pushes_do_not_delay_fetches_of_contents(
    runner: Runner, checking: Blocking, fetching: Blocking
) -> None:
    """As many pushes as there are threads, and as many fetches as there are others."""
    with ended(checking), ended(fetching), serving() as url:
        hosts = [host_at(url, runner)]
        while len(hosts) < application.MOST_SLOW:
            task = held(runner.task(), f"build-2@there:8:Worker-{len(hosts) + 1}")
            hosts.append(Host(url, hosts[0].token, task, hosts[0].folder / str(len(hosts))))
        with ThreadPoolExecutor(len(hosts)) as workers:
            recorded = [workers.submit(record, host) for host in hosts]
            for _ in hosts:
                assert checking.begun.acquire(timeout=PATIENCE)
            assert ask_for_contents(hosts[0], 1).status_code == 202
            assert fetching.begun.acquire(timeout=PATIENCE)
            checking.end.set()
            assert all(one.result(PATIENCE) for one in recorded)


@pytest.mark.usefixtures("quick")
def test_a_lease_that_is_lost_during_an_exchange_ends_it(
    runner: Runner, checking: Blocking, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An exchange may last for hours, so the lease is checked again and again."""
    monkeypatch.setattr(git_service, "LEASE_SECONDS", 0.05)
    with ended(checking), serving() as url, ThreadPoolExecutor(1) as worker:
        host = host_at(url, runner)
        recorded = worker.submit(record, host)
        assert checking.begun.acquire(timeout=PATIENCE)
        Task.objects.filter(pk=host.task.pk).update(lease_epoch=host.key[1] + 1)
        with pytest.raises(LeaseLost):
            recorded.result(PATIENCE)
        assert host.repository.refs(incoming_ref(host.key)) == ()
        assert host.repository.refs(snapshot_ref(host.task)) == ()


@pytest.mark.usefixtures("quick")
def test_a_lease_that_is_lost_before_the_end_of_a_push_leaves_no_object(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(held: Any) -> None:
        Task.objects.filter(pk=held.task_id).update(lease_epoch=held.epoch + 1)
        require_still_held(held)

    monkeypatch.setattr(git_service, "require_still_held", lost)
    with serving() as url:
        host = host_at(url, runner)
        with host.mirror.held_for(host.key, branch=host.task.branch):
            made = host.commit("blue")
            with pytest.raises(LeaseLost):
                host.mirror.set_refs(made, snapshot_ref(host.task))
    assert not host.repository.has(made)


@pytest.mark.usefixtures("quick")
def test_m1_a_client_that_sends_nothing_more_is_given_up(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line that was cut ends no connection, and each host has only so many requests at the same time."""
    monkeypatch.setattr(bodies, "SILENT_SECONDS", 0.05)
    with serving() as url:
        host = host_at(url, runner)
        for path in ("repository.git/git-receive-pack", f"repository.git/info/lfs/objects/{64 * 'a'}"):
            parts = urlsplit(f"{url}/worker/tasks/{host.key[0]}/{host.key[1]}/{path}")
            method = "PUT" if "lfs" in path else "POST"
            with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=PATIENCE) as there:
                head = f"{method} {parts.path} HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n"
                there.sendall(f"{head}Authorization: Bearer {host.token}\r\n\r\n00".encode())
                assert there.makefile("rb").readline().split()[1] == b"504"
