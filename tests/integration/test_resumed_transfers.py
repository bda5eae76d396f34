"""M1: large exchanges with a worker host go on where they broke off. Bytes and breaks are counted."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from catherder_site.worker_hosts import git_service, transfers, upload_service
from tasks_app.core.errors import LeaseLost, TemporaryFault
from tasks_app.git import Repository, mirror, program, uploads
from tasks_app.git import transfers as worker_side
from tasks_app.git.bundles import KEPT_SECONDS, MOST_BUNDLES
from tasks_app.git.checksums import checksum_of
from tasks_app.git.exchange_faults import ExchangeRefused
from tasks_app.git.mirror import Portal, incoming_ref
from tasks_app.models import Task
from tasks_app.services.workers.hosts import remove_all_old_transfers
from tests.cut_connections import CutConnections
from tests.forkserver import REPOSITORY
from tests.integration.git_repository import GitRepository
from tests.integration.worker_host import Host, breaking_line, held, host_at, snapshot_ref
from tests.runner import Runner
from tests.waiting import wait_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.once(on="sqlite")]

CUT = 100_000
LARGE = 1_500_000


@pytest.fixture
def line() -> Iterator[CutConnections]:
    with breaking_line() as line:
        yield line


@pytest.fixture
def host(runner: Runner, line: CutConnections, monkeypatch: pytest.MonkeyPatch) -> Host:
    """A host whose line to the portal breaks as `line` says. Exchanges count as large from 200 KB on."""
    monkeypatch.setattr(mirror, "_FETCH_PAUSES", (0.1,) * 3)
    monkeypatch.setattr(mirror, "_PUSH_PAUSES", (0.5,) * 5)
    monkeypatch.setattr(worker_side, "_PAUSE", 0.2)
    monkeypatch.setattr(worker_side, "LARGE_BYTES", 200_000)
    monkeypatch.setattr(worker_side, "PIECE_BYTES", 400_000)
    project = runner.project(**{"large.txt": noise(LARGE)})
    return host_at(f"http://127.0.0.1:{line.port}", runner, project)


def noise(size: int) -> str:
    """Text of which git's packs need about `size` bytes."""
    return os.urandom(int(size * 0.88)).hex()


def of_host(host: Host, folder: str, task: Task | None = None) -> Host:
    return Host(host.url, host.token, task or host.task, host.folder.parent / folder)


def fetched(host: Host) -> None:
    with host.mirror.held_for(host.key, branch=host.task.branch):
        assert host.mirror.has(host.task.base_commit)


def left_over(host: Host) -> list[str]:
    """Files of transfers, on both sides, apart from complete bundles."""
    folders = ("downloads/*", "uploads/*", "uploads/*/*")
    found = [
        path for one in folders for root in (host.mirror, host.repository) for path in root.path.glob(one)
    ]
    return [str(path) for path in found if path.is_file()]


def test_a_first_copy_goes_on_after_each_break(host: Host, line: CutConnections) -> None:
    line.down = CUT
    fetched(host)
    assert line.cut >= LARGE // CUT
    assert line.passed["down"] < LARGE * 1.2, "each byte came about once"
    assert host.mirror.problems() == [] and left_over(host) == []
    assert host.mirror.refs("refs/received/") == ()
    assert host.mirror.branches() == host.repository.branches()


def test_a_small_first_copy_needs_no_attempt_again(host: Host, line: CutConnections) -> None:
    fetched(host)
    assert line.cut == 0 and host.mirror.problems() == []


def test_a_recording_goes_on_after_each_break(host: Host, line: CutConnections) -> None:
    fetched(host)
    line.forget()
    with host.mirror.held_for(host.key, branch=host.task.branch):
        made = host.commit(noise(LARGE))
        line.up = CUT
        host.mirror.set_refs(made, snapshot_ref(host.task))
    assert line.cut >= LARGE // CUT
    assert line.passed["up"] < LARGE * 1.2, "each byte was sent about once"
    assert host.repository.refs(snapshot_ref(host.task)) == (made,) and host.repository.problems() == []
    assert host.repository.refs("refs/cat-herder-incoming/") == () and left_over(host) == []


def test_work_with_large_files_reaches_the_next_host_after_breaks(
    host: Host, line: CutConnections, runner: Runner
) -> None:
    """Its mirror has the source already, so that it fetches in one go first."""
    second = of_host(host, "second")
    fetched(second)
    with host.mirror.held_for(host.key, branch=host.task.branch):
        made = host.commit(noise(LARGE))
        host.mirror.set_refs(made, snapshot_ref(host.task))
    line.forget()
    line.down = CUT
    fetched(second)
    assert second.mirror.refs(snapshot_ref(host.task)) == (made,)
    assert line.passed["down"] < LARGE * 1.3
    assert [path.parent.name for path in host.repository.path.glob("bundles/*/*")].count("source") == 1


def test_a_source_that_changes_meanwhile_is_fetched_whole(host: Host, line: CutConnections) -> None:
    orders: list[int] = []
    line.down = CUT

    def piece(self: Portal, *arguments: Any) -> Any:
        orders.append(1)
        if len(orders) == 3:
            source = GitRepository(Path(host.task.project.source))
            source.commit(**{"new.txt": "new"})
            source.git("branch", "large.txt")  # its name is that of a folder soon
            host.repository.fetch()
            source.git("branch", "-m", "large.txt", "large.txt/below")
            host.repository.fetch()
        return original(self, *arguments)

    original = Portal.bundle_piece
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Portal, "bundle_piece", piece)
        fetched(host)
    assert host.mirror.head("main") == host.repository.head("main")
    assert host.mirror.branches() == ("large.txt/below", "main")
    assert line.passed["down"] < LARGE * 1.2


PROGRAM = """
import sys
from pathlib import Path
from tasks_app.core.errors import InUse
from tasks_app.git import mirror, transfers
from tasks_app.git.mirror import Mirror, Portal
folder, url, token, task, epoch, branch, commit, ref = sys.argv[1:]
transfers.LARGE_BYTES = 200_000
there = Mirror(Path(folder), source=url, name="mirror", portal=Portal(url, token))
while True:
    try:
        with there.held_for((int(task), int(epoch)), branch=branch):
            if commit:
                there.set_refs(commit, ref)
        break
    except InUse:  # the engine tries it again, too
        pass
"""


def worker_process(host: Host, commit: str = "") -> subprocess.Popen[bytes]:
    """Exchange files in a process of its own, as a worker does."""
    arguments = [
        str(host.mirror.path), host.url, host.token, str(host.key[0]), str(host.key[1]), host.task.branch,
        commit, snapshot_ref(host.task),
    ]  # fmt: skip
    return subprocess.Popen([sys.executable, "-c", PROGRAM, *arguments], cwd=REPOSITORY)


def killed_once(process: subprocess.Popen[bytes], line: CutConnections, pattern: Path) -> None:
    """Kill the worker when the line was cut, and let the line be whole from then on."""
    wait_until(lambda: line.cut and any(path.stat().st_size for path in pattern.parent.glob(pattern.name)))
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    line.up = line.down = None


def test_a_worker_that_was_killed_goes_on_with_its_download(host: Host, line: CutConnections) -> None:
    line.down = CUT
    killed_once(worker_process(host), line, host.mirror.path / "downloads/*")
    assert line.passed["down"] < LARGE
    assert worker_process(host).wait() == 0
    assert line.passed["down"] < LARGE * 1.2
    assert host.mirror.problems() == [] and left_over(host) == []


def test_a_worker_that_was_killed_goes_on_with_its_upload(host: Host, line: CutConnections) -> None:
    """It holds the task anew, and has recorded the same files in another commit."""
    fetched(host)
    line.forget()
    large = noise(LARGE)
    first = host.commit(large)
    line.up = CUT
    received = host.repository.path / "uploads" / str(host.task.pk) / "*"
    killed_once(worker_process(host, first), line, received)
    Task.objects.filter(pk=host.task.pk).update(lease_epoch=host.key[1] + 1)
    host.task.refresh_from_db()
    second = host.commit(large, message="again")
    assert second != first
    assert worker_process(host, second).wait() == 0
    assert line.passed["up"] < LARGE * 1.2
    assert host.repository.refs(snapshot_ref(host.task)) == (second,) and left_over(host) == []
    assert host.repository.refs("refs/cat-herder-incoming/") == ()


def test_what_an_earlier_holder_has_pushed_is_not_pushed_again(host: Host, line: CutConnections) -> None:
    """The worker was lost after the push, and before the references were set."""
    fetched(host)
    made = host.commit(noise(LARGE))
    assert worker_side.push_in_pieces(host.mirror, host.key, made) is not None
    Task.objects.filter(pk=host.task.pk).update(lease_epoch=host.key[1] + 1)
    host.task.refresh_from_db()
    line.forget()
    with host.mirror.held_for(host.key, branch=host.task.branch):
        host.mirror.set_refs(made, snapshot_ref(host.task))
    assert line.passed["up"] < CUT


def test_two_workers_of_a_host_share_one_download(host: Host, line: CutConnections, runner: Runner) -> None:
    line.down = CUT
    other = held(runner.task(project=host.task.project), "build-2@there:8:Worker-1")
    theirs = Host(host.url, host.token, other, host.folder)
    processes = [worker_process(one) for one in (host, theirs)]
    assert [process.wait() for process in processes] == [0, 0]
    assert line.passed["down"] < LARGE * 1.3
    assert host.mirror.problems() == [] and left_over(host) == []


def damaged_download(host: Host, line: CutConnections) -> None:
    """Leave the half of a bundle with another byte in it."""
    line.down = CUT
    with pytest.MonkeyPatch.context() as patch, suppress(StopTrying):
        patch.setattr(worker_side, "_Progress", OneReport)
        fetched(host)
    file = next((host.mirror.path / "downloads").iterdir())
    content = bytearray(file.read_bytes())
    content[-1000:] = os.urandom(1000)
    file.write_bytes(content)


class StopTrying(Exception):
    pass


class OneReport:
    def __init__(self, what: str, size: int) -> None:
        pass

    def report(self, done: int) -> None:
        raise StopTrying


def test_a_damaged_download_is_begun_anew_once(host: Host, line: CutConnections) -> None:
    damaged_download(host, line)
    line.forget()
    fetched(host)
    assert LARGE < line.passed["down"] < LARGE * 2.2
    assert host.mirror.problems() == [] and left_over(host) == []


def test_garbage_from_the_portal_is_downloaded_twice_and_then_done_without(
    host: Host, line: CutConnections, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def pieces(path: Path, first: int, end: int) -> Iterator[bytes]:
        asked.append(path.name)
        yield os.urandom(end - first)

    monkeypatch.setattr(transfers, "pieces_of", pieces)
    fetched(host)
    assert line.passed["down"] < LARGE * 3.3 and len(asked) == 2 * -(-LARGE // 400_000)
    assert host.mirror.problems() == [] and left_over(host) == []


def test_a_damaged_upload_is_begun_anew_once(
    host: Host, line: CutConnections, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched(host)
    line.forget()
    damaged: list[Path] = []

    def is_complete(upload: Path) -> bool:
        if not damaged:
            damaged.append(upload)
            upload.write_bytes(upload.read_bytes()[:-1000] + os.urandom(1000))
        return original(upload)

    original = uploads.is_complete
    monkeypatch.setattr(upload_service, "is_complete", is_complete)
    with host.mirror.held_for(host.key, branch=host.task.branch):
        made = host.commit(noise(LARGE))
        host.mirror.set_refs(made, snapshot_ref(host.task))
    assert LARGE * 2 < line.passed["up"] < LARGE * 2.2
    assert host.repository.refs(snapshot_ref(host.task)) == (made,) and left_over(host) == []


@pytest.mark.parametrize("left", [b"", os.urandom(300_000)], ids=["empty", "damaged"])
def test_a_pack_that_a_power_cut_damaged_is_made_anew(host: Host, left: bytes) -> None:
    fetched(host)
    with host.mirror.held_for(host.key, branch=host.task.branch):
        made = host.commit(noise(LARGE))
        pack = host.mirror.path / "uploads" / f"{host.task.pk}-{made}.pack"
        pack.parent.mkdir()
        pack.write_bytes(left)
        host.mirror.set_refs(made, snapshot_ref(host.task))
    assert host.repository.refs(snapshot_ref(host.task)) == (made,) and left_over(host) == []


def test_a_bundle_is_on_the_disk_before_it_has_its_name(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a power cut an empty one would be kept, and no new host could fetch."""
    synced: set[int] = set()

    def sync(descriptor: int) -> None:
        synced.add(os.fstat(descriptor).st_ino)
        fsync(descriptor)

    fsync = os.fsync
    monkeypatch.setattr(os, "fsync", sync)
    path = host.repository.path / "bundles" / "source" / bundle_of(host)["name"]
    assert {path.stat().st_ino, path.parent.stat().st_ino} <= synced


def test_a_bundle_of_which_git_says_very_much_fails_at_once(
    host: Host, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """git stops while nobody reads what it says."""
    command = "echo no; head -c 300000 /dev/zero | tr '\\0' x >&2; exit 1"
    monkeypatch.setattr(transfers, "MAKING_SECONDS", 10)
    monkeypatch.setattr(
        program.Git, "process", lambda *_: (["sh", "-c", command], {"PATH": os.environ["PATH"]})
    )
    assert host.ask("POST", "bundles", json={"have": []}).status_code == 204
    assert "git bundle failed: xxx" in caplog.text


def test_a_bundle_that_the_portal_has_no_more_is_made_anew(host: Host, line: CutConnections) -> None:
    damaged_download(host, line)
    for bundle in host.repository.path.glob("bundles/*/*"):
        bundle.unlink()
    line.forget()
    fetched(host)
    assert host.mirror.problems() == [] and left_over(host) == []


def test_what_is_too_large_is_not_sent(host: Host, line: CutConnections, monkeypatch: Any) -> None:
    monkeypatch.setitem(git_service.BODY_LIMITS, "git-receive-pack", LARGE // 2)
    fetched(host)
    line.forget()
    with host.mirror.held_for(host.key, branch=host.task.branch):
        made = host.commit(noise(LARGE))
        with pytest.raises(ExchangeRefused, match=r"too large: .* at most 2 GB .*\.gitignore"):
            host.mirror.set_refs(made, snapshot_ref(host.task))
    assert line.passed["up"] < CUT and left_over(host) == []


def test_a_lease_that_is_lost_ends_an_upload(host: Host, line: CutConnections) -> None:
    fetched(host)
    line.up = CUT
    with host.mirror.held_for(host.key, branch=host.task.branch):
        made = host.commit(noise(LARGE))
        process = worker_process(host, made)
        wait_until(lambda: line.cut > 1)
        Task.objects.filter(pk=host.task.pk).update(lease_epoch=host.key[1] + 1)
        assert process.wait() != 0
        with pytest.raises(LeaseLost):
            host.mirror.set_refs(made, snapshot_ref(host.task))
    assert not host.repository.has(made)


def bundle_of(host: Host, *have: str) -> dict[str, Any]:
    answer = host.ask("POST", "bundles", json={"have": have})
    assert answer.status_code == 200
    found: dict[str, Any] = answer.json()
    return found


def test_no_bundle_has_work_of_another_task(host: Host, runner: Runner) -> None:
    other = held(runner.task(project=host.task.project), "build-2@there:7:Worker-2")
    theirs = of_host(host, "theirs", other)
    with theirs.mirror.held_for(theirs.key, branch=other.branch):
        secret = theirs.commit("secret")
        theirs.mirror.set_refs(secret, snapshot_ref(other))
    base = host.task.base_commit
    own = bundle_of(theirs, base)
    assert theirs.ask("GET", f"bundles/{own['name']}").status_code == 200
    assert host.ask("GET", f"bundles/{own['name']}").status_code == 404
    shared = bundle_of(host)
    assert shared == bundle_of(theirs), "it is made once for all tasks"
    for have in ((), (secret,), ("0" * 40,), ("--all",)):
        answer = host.ask("POST", "bundles", json={"have": [*have]})
        if have == (secret,):
            assert answer.status_code == 204, "what it follows is all that the source has"
            continue
        bundle = host.folder.with_name("bundle")
        bundle.write_bytes(host.ask("GET", f"bundles/{answer.json()['name']}").content)
        heads = host.repository.git.line("bundle", "list-heads", str(bundle))
        assert {line.split()[1] for line in heads.splitlines()} == {"refs/source/main"}
        fresh = Repository(host.folder.with_name("fresh.git"), str(bundle))
        fresh._make_if_missing()
        fresh.git.run("fetch", "--", str(bundle), "refs/source/main:refs/heads/main")
        assert not fresh.has(secret)
    assert host.ask("POST", "bundles", json={"have": [base]}).status_code == 204


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"have": 1}', b'{"have": [1]}', b"[" * 9000])
def test_orders_of_another_shape_are_refused(host: Host, body: bytes) -> None:
    assert host.ask("POST", "bundles", data=body).status_code == 400
    Task.objects.filter(pk=host.task.pk).update(lease_owner="")


def test_a_range_of_a_bundle_is_sent_if_it_is_still_the_same(host: Host) -> None:
    facts = bundle_of(host)
    path, etag = f"bundles/{facts['name']}", f'"{facts["checksum"]}"'
    whole = host.ask("GET", path)
    assert whole.headers["ETag"] == etag and len(whole.content) == facts["size"]
    some = host.ask("GET", path, headers={"Range": "bytes=10-19", "If-Range": etag})
    assert some.status_code == 206 and some.content == whole.content[10:20]
    assert some.headers["Content-Range"] == f"bytes 10-19/{facts['size']}"
    other = host.ask("GET", path, headers={"Range": "bytes=10-19", "If-Range": '"other"'})
    assert other.status_code == 200 and other.content == whole.content
    beyond = host.ask("GET", path, headers={"Range": f"bytes={facts['size']}-{facts['size'] + 5}"})
    assert beyond.status_code == 416


def test_pieces_of_uploads_are_checked(host: Host, settings: Any) -> None:
    path = f"uploads/{40 * 'a'}"

    def put(content_range: str, body: bytes = b"12345") -> int:
        return host.ask("PUT", path, data=body, headers={"Content-Range": content_range}).status_code

    assert put("") == put("bytes x-y/z") == 400
    assert put(f"bytes 0-4/{2**40}") == 413
    assert put("bytes 5-9/100") == 409, "nothing has arrived before"
    assert put("bytes 0-4/100") == 200
    assert put("bytes 0-4/100") == 409, "it has arrived already"
    assert put("bytes 5-9/7") == 413, "more than was declared"
    assert host.ask("GET", path).json()["size"] == 5
    assert host.ask("POST", path, json={"target": host.task.base_commit}).status_code == 409
    assert host.ask("GET", path).json()["size"] == 0, "what is no pack is not kept"
    for body in (b"", b'{"target": 1}', b'{"target": "--all"}'):
        assert host.ask("POST", path, data=body).status_code == 400
    settings.ENVIRONMENT = settings.ENVIRONMENT.model_copy(update={"keep_free_disk": 2**62})
    assert put("bytes 0-4/100") == 507


def test_a_task_has_one_upload_at_a_time(host: Host) -> None:
    for name in ("a", "b"):
        headers = {"Content-Range": "bytes 0-4/100"}
        assert host.ask("PUT", f"uploads/{40 * name}", data=b"12345", headers=headers).status_code == 200
    assert [path.name for path in host.repository.path.glob("uploads/*/*")] == [40 * "b"]


def test_an_upload_is_checked_like_a_push(host: Host, runner: Runner) -> None:
    """What leads to the work of another task is refused, and nothing of it stays."""
    other = held(runner.task(project=host.task.project), "build-2@there:7:Worker-2")
    theirs = of_host(host, "theirs", other)
    with theirs.mirror.held_for(theirs.key, branch=other.branch):
        secret = theirs.commit("secret")
        theirs.mirror.set_refs(secret, snapshot_ref(other))
    git = theirs.mirror.git
    names = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    tree = theirs.mirror.tree(host.task.base_commit)
    mine = git.run(*names, "commit-tree", "-p", secret, "-m", "mine", tree).decode().strip()
    pack = git.run("pack-objects", "--stdout", "--quiet", stdin=f"{mine}\n".encode())
    name = pack[-20:].hex()
    headers = {"Content-Range": f"bytes 0-{len(pack) - 1}/{len(pack)}"}
    assert host.ask("PUT", f"uploads/{name}", data=pack, headers=headers).status_code == 200
    answer = host.ask("POST", f"uploads/{name}", json={"target": mine})
    assert "is not part of this push" in worker_side.push_messages(answer.content)
    assert host.repository.refs(incoming_ref(host.key)) == () and not host.repository.has(mine)
    assert left_over(host) == []


def test_old_bundles_and_uploads_are_removed(host: Host) -> None:
    first = bundle_of(host)["name"]
    folder = host.repository.path / "bundles" / "source"
    for number in range(MOST_BUNDLES + 3):
        (folder / f"{number}").write_bytes(b"x")
    upload = host.repository.path / "uploads" / "7" / (40 * "a")
    upload.parent.mkdir(parents=True)
    upload.write_bytes(b"x")
    old = time.time() - KEPT_SECONDS - 60
    os.utime(upload, (old, old))
    os.utime(folder / "0", (old, old))
    bundle_of(host)
    remove_all_old_transfers()
    assert len(list(folder.iterdir())) == MOST_BUNDLES and (folder / first).exists()
    assert not upload.exists() and not (folder / "0").exists()


def test_a_bundle_leaves_the_disk_as_free_as_the_portal_keeps_it(
    host: Host, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    settings.ENVIRONMENT = settings.ENVIRONMENT.model_copy(update={"keep_free_disk": 2**62})
    fetched(host)
    assert "no bundle of" in caplog.text and not any(
        path.is_file() for path in host.repository.path.glob("bundles/*/*")
    )


def test_a_host_whose_disk_is_too_full_says_so(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(host.folder.parent)._replace(free=LARGE)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    monkeypatch.setattr(transfers, "require_free_disk", lambda folder: None)
    with pytest.raises(TemporaryFault, match=r"too full for the repository .*MiB are needed"):
        fetched(host)


def test_the_log_says_how_far_a_large_transfer_is(
    host: Host, line: CutConnections, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_side, "_REPORT_BYTES", 500_000)
    caplog.set_level("INFO", logger="tasks_app")
    with host.mirror.held_for(host.key, branch=host.task.branch):
        host.mirror.set_refs(host.commit(noise(LARGE)), snapshot_ref(host.task))
    assert "fetching mirror from the portal: 1.4" in caplog.text
    assert f"task {host.task.pk}: sending its files to the portal: 0 bytes of 1.4" in caplog.text


def test_a_shallow_repository_is_fetched_in_one_go(host: Host) -> None:
    (host.repository.path / "shallow").write_text("")
    assert host.ask("POST", "bundles", json={"have": []}).status_code == 204


def test_the_checksum_of_a_bundle_is_that_of_its_pack(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"y" * 30 + bytes(range(20)))
    assert checksum_of(tmp_path / "x") == bytes(range(20)).hex()


def test_facts_of_another_shape_are_no_path() -> None:
    below = {"name": "../x", "checksum": 40 * "a", "size": 1}
    negative = {"name": 64 * "a", "checksum": 40 * "a", "size": -1}
    shapes: list[Any] = [{}, [], below, negative]
    for facts in shapes:
        with pytest.raises(TemporaryFault):
            worker_side.BundleId.parse(json.dumps(facts).encode())


def test_messages_of_a_push_are_read_whatever_is_sent() -> None:
    def packet(text: bytes) -> bytes:
        return b"%04x%s" % (len(text) + 4, text)

    assert (
        worker_side.push_messages(packet(b"\2one\ntwo") + packet(b"\1no") + b"0000")
        == "remote: one\nremote: two"
    )
    assert worker_side.push_messages(b"<html>") == worker_side.push_messages(b"00") == ""
