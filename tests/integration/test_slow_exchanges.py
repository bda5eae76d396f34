"""M1: what takes long for one worker host delays no page, no check of a token, and no stop of the portal."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests

from catherder_site.asgi_layers.plain_text import answer
from catherder_site.asgi_layers.sandboxed_peers import RefuseSandboxedPeers
from catherder_site.worker_hosts import application, background, transfers, upload_service
from catherder_site.worker_hosts.application import WorkerHosts
from tasks_app.core.errors import LeaseLost, TemporaryFault
from tasks_app.git import mirror, uploads
from tasks_app.git import transfers as worker_side
from tasks_app.git.lfs_contents import LfsContents
from tasks_app.git.mirror import Portal, incoming_ref
from tasks_app.models import Task
from tasks_app.services.workers.hosts import HeldTask, confirm_push, require_still_held
from tests.forkserver import PATIENCE
from tests.integration.test_resumed_transfers import left_over, noise
from tests.integration.worker_host import Host, held, host_at, serving, snapshot_ref
from tests.runner import Runner
from tests.waiting import wait_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.once(on="sqlite")]

LARGE = 300_000


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
    """Requests ask again at once, and exchanges count as large from 100 KB on."""
    monkeypatch.setattr(background, "WAIT_SECONDS", 0.05)
    monkeypatch.setattr(mirror, "_FETCH_PAUSES", ())
    monkeypatch.setattr(mirror, "_PUSH_PAUSES", ())
    monkeypatch.setattr(worker_side, "LARGE_BYTES", 100_000)


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
    application = RefuseSandboxedPeers(WorkerHosts(page), folder=tmp_path, allow_others=True)
    with ended(fetching), serving(application) as url:
        host = host_at(url, runner)
        asked = [ask_for_contents(host, number).status_code for number in range(1, most_fetches() + 1)]
        assert asked == [202] * most_fetches()
        assert requests.get(f"{url}/", timeout=PATIENCE).text == "a page\n", "on a connection of its own"
        assert host.portal.hello()["data_dir"]
        assert host.ask("POST", "bundles", json={"have": []}).status_code in (200, 202)


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
    """A portal that needs long to read what was uploaded."""
    checking = Blocking(uploads.is_complete)
    monkeypatch.setattr(upload_service, "is_complete", checking)
    return checking


@pytest.mark.usefixtures("quick")
def test_m1_a_host_has_only_so_many_jobs_at_the_same_time(runner: Runner, checking: Blocking) -> None:
    with ended(checking), serving() as url:
        host = host_at(url, runner)
        order = {"target": host.task.base_commit}
        names = [f"{number:040x}" for number in range(transfers.MOST_JOBS + 1)]
        *asked, refused = [host.ask("POST", f"uploads/{name}", json=order) for name in names]
        assert {answer.status_code for answer in asked} == {202}
        assert refused.status_code == 503 and int(refused.headers["Retry-After"]) > 0
        assert host.ask("POST", f"uploads/{names[0]}", json=order).status_code == 202, "it may go on asking"


@pytest.mark.usefixtures("quick")
def test_m1_checks_of_uploads_and_orders_of_bundles_do_not_delay_each_other(
    runner: Runner, checking: Blocking, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many of the one as there are threads, and one of the other."""
    order, numbers = {"target": 40 * "b"}, range(application.MOST_SLOW)
    with ended(checking), serving() as url:
        host = host_at(url, runner)
        for number in numbers:
            assert host.ask("POST", f"uploads/{number:040x}", json=order).status_code == 202
        for _ in numbers:
            assert checking.begun.acquire(timeout=PATIENCE)
        assert host.ask("POST", "bundles", json={"have": []}).status_code in (200, 202)
        checking.end.set()
        ordering = Blocking(lambda *_: None)
        monkeypatch.setattr(transfers, "order_bundle", ordering)
        with ended(ordering), ThreadPoolExecutor(len(numbers)) as clients:
            for _ in numbers:
                clients.submit(host.ask, "POST", "bundles", json={"have": []})
                assert ordering.begun.acquire(timeout=PATIENCE)
            name = f"uploads/{40 * 'c'}"
            wait_until(lambda: host.ask("POST", name, json=order).status_code == 409)
            ordering.end.set()


@pytest.mark.usefixtures("quick")
def test_m1_an_upload_is_checked_for_one_target_at_a_time(runner: Runner, checking: Blocking) -> None:
    with ended(checking), serving() as url:
        host = host_at(url, runner)
        name = f"uploads/{40 * 'a'}"
        assert host.ask("POST", name, json={"target": host.task.base_commit}).status_code == 202
        assert host.ask("POST", name, json={"target": 40 * "b"}).status_code == 503


def test_m1_no_bundle_is_made_for_a_lease_that_was_lost_meanwhile(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(held: HeldTask) -> None:
        lose_lease(host)
        require_still_held(held)

    monkeypatch.setattr(transfers, "require_still_held", lost)
    with serving() as url:
        host = host_at(url, runner)
        assert host.ask("POST", "bundles", json={"have": []}).status_code == 204
    assert not [path for path in host.repository.path.glob("bundles/**/*") if path.is_file()]


class Recording:
    """A worker's thread that records a large commit."""

    def __init__(self, host: Host, commit: str = "") -> None:
        self.host, self.error, self.commit = host, "", commit
        if not commit:
            with host.mirror.held_for(host.key, branch=host.task.branch):
                self.commit = host.commit(noise(LARGE))
        self._thread = threading.Thread(target=self._record)

    def __enter__(self) -> Recording:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()

    def _record(self) -> None:
        host = self.host
        try:
            with host.mirror.held_for(host.key, branch=host.task.branch):
                host.mirror.set_refs(self.commit, snapshot_ref(host.task))
        except (LeaseLost, TemporaryFault) as error:
            self.error = type(error).__name__


@pytest.fixture
def pieces(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the pieces that were sent."""
    sent: list[int] = []

    def upload_piece(self: Portal, key: Any, name: str, piece: bytes, **values: Any) -> None:
        sent.append(len(piece))
        original(self, key, name, piece, **values)

    original = Portal.upload_piece
    monkeypatch.setattr(Portal, "upload_piece", upload_piece)
    return sent


@pytest.fixture
def polls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The statuses of the requests that ask for the end of an upload."""
    statuses: list[int] = []

    def call(self: Portal, method: str, path: str, **values: Any) -> requests.Response:
        found = original(self, method, path, **values)
        if method == "POST" and "/uploads/" in path:
            statuses.append(found.status_code)
        return found

    original = Portal._call
    monkeypatch.setattr(Portal, "_call", call)
    return statuses


@pytest.mark.usefixtures("quick")
def test_a_host_asks_until_a_large_upload_is_checked(
    runner: Runner, checking: Blocking, polls: list[int]
) -> None:
    """No request lasts as long as the check, so that no proxy gives up."""
    with ended(checking), serving() as url:
        host = host_at(url, runner)
        with Recording(host) as recording:
            wait_until(lambda: polls.count(202) > 2)
            checking.end.set()
        assert recording.error == "" and polls[-1] == 200
        assert host.repository.refs(snapshot_ref(host.task)) == (recording.commit,)
        assert host.repository.refs("refs/cat-herder-incoming/") == () and left_over(host) == []


@pytest.mark.usefixtures("quick")
def test_a_portal_that_ends_during_the_check_loses_nothing(
    runner: Runner, checking: Blocking, pieces: list[int], polls: list[int]
) -> None:
    with ended(checking), ExitStack() as portal:
        host = host_at(portal.enter_context(serving()), runner)
        recording = Recording(host)
        with recording:
            wait_until(lambda: 202 in polls)
            portal.close()
        assert recording.error == "TemporaryFault"
        assert host.repository.refs(snapshot_ref(host.task)) == ()
    record_again(host, recording.commit, pieces)


def record_again(host: Host, commit: str, pieces: list[int]) -> None:
    """Record the commit as the holder of the task now does, and check that nothing is sent again."""
    sent = sum(pieces)
    host.task.refresh_from_db()
    with serving() as url:
        again = Host(url, host.token, host.task, host.folder)
        with again.mirror.held_for(again.key, branch=again.task.branch):
            again.mirror.set_refs(commit, snapshot_ref(again.task))
    assert host.repository.refs(snapshot_ref(host.task)) == (commit,)
    assert host.repository.refs("refs/cat-herder-incoming/") == () and left_over(host) == []
    assert sum(pieces) == sent, "no byte was sent again"


def lose_lease(host: Host) -> None:
    """Let another worker of the host claim the task."""
    Task.objects.filter(pk=host.task.pk).update(lease_epoch=host.key[1] + 1)


@pytest.mark.usefixtures("quick")
def test_a_lease_that_is_lost_during_the_check_ends_the_push(
    runner: Runner, checking: Blocking, pieces: list[int], polls: list[int]
) -> None:
    with ended(checking), serving() as url:
        host = host_at(url, runner)
        with Recording(host) as recording:
            wait_until(lambda: 202 in polls)
            lose_lease(host)
        assert recording.error == "LeaseLost"
    assert host.repository.refs("refs/cat-herder-incoming/") == ()
    assert not host.repository.has(recording.commit)
    record_again(host, recording.commit, pieces)


@pytest.mark.usefixtures("quick")
def test_a_lease_that_is_lost_while_git_sets_the_reference_takes_it_back(
    runner: Runner, pieces: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def held_for_the_last_time(held: HeldTask) -> None:
        require_still_held(held)
        monkeypatch.setattr(upload_service, "require_still_held", require_still_held)
        lose_lease(host)

    def confirm(held: HeldTask) -> None:
        pushed.append(held.repository.refs(incoming_ref(held.key)))
        try:
            confirm_push(held)
        finally:
            ended.set()

    pushed: list[tuple[str, ...]] = []
    ended = threading.Event()
    monkeypatch.setattr(upload_service, "require_still_held", held_for_the_last_time)
    monkeypatch.setattr(upload_service, "confirm_push", confirm)
    with serving() as url:
        host = host_at(url, runner)
        with Recording(host) as recording:
            pass
        assert recording.error == "LeaseLost"
        assert ended.wait(PATIENCE), "the job goes on although nobody asks for it"
    assert pushed == [(recording.commit,)]
    assert host.repository.refs("refs/cat-herder-incoming/") == ()
    record_again(host, recording.commit, pieces)


@pytest.mark.usefixtures("quick")
def test_two_holders_of_a_task_check_its_upload_one_after_the_other(
    runner: Runner, checking: Blocking, pieces: list[int], polls: list[int]
) -> None:
    """The first one's worker was killed, and its job goes on at the portal."""
    with ended(checking), serving() as url:
        host = host_at(url, runner)
        with Recording(host) as first:
            wait_until(lambda: 202 in polls)
            lose_lease(host)
        host.task.refresh_from_db()
        with Recording(host, first.commit) as second:
            polls.clear()
            wait_until(lambda: 202 in polls)
            checking.end.set()
        assert second.error == ""
        assert host.repository.refs(snapshot_ref(host.task)) == (first.commit,) and left_over(host) == []
    assert sum(pieces) < LARGE * 1.5


@pytest.mark.usefixtures("quick")
def test_a_portal_of_an_earlier_version_gets_large_work_in_one_piece(
    runner: Runner, monkeypatch: pytest.MonkeyPatch, pieces: list[int]
) -> None:
    async def unknown(held: Any, name: str, scope: Any, send: Any) -> None:
        await answer(scope, send, 404, b"There is nothing here.\n")

    monkeypatch.setattr(upload_service, "send_upload_status", unknown)
    with serving() as url:
        host = host_at(url, runner)
        with Recording(host) as recording:
            pass
        assert recording.error == "" and pieces == []
        assert host.repository.refs(snapshot_ref(host.task)) == (recording.commit,) and left_over(host) == []
