"""M1: an exchange with a worker host that breaks is begun again whole. Bytes and breaks are counted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.db import connection

from tasks_app.core.errors import LeaseLost, TemporaryFault
from tasks_app.git import mirror
from tasks_app.git.mirror import incoming_ref, push_problem
from tasks_app.models import Task
from tests.cut_connections import CutConnections
from tests.forkserver import REPOSITORY
from tests.integration.worker_host import Host, breaking_line, host_at, snapshot_ref
from tests.runner import Runner
from tests.waiting import wait_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.once(on="sqlite")]

CUT = 200_000
LARGE = 1_500_000


@pytest.fixture
def line() -> Iterator[CutConnections]:
    with breaking_line() as line:
        yield line


@pytest.fixture
def host(runner: Runner, line: CutConnections, monkeypatch: pytest.MonkeyPatch) -> Host:
    """A host whose line to the portal breaks as `line` says; its project has a large file."""
    monkeypatch.setattr(mirror, "_FETCH_PAUSES", (0.1,) * 3)
    monkeypatch.setattr(mirror, "_PUSH_PAUSES", (0.1,) * 5)
    project = runner.project(**{"large.txt": noise(LARGE)})
    return host_at(f"http://127.0.0.1:{line.port}", runner, project)


def noise(size: int) -> str:
    """Text of which git's packs need about `size` bytes."""
    return os.urandom(int(size * 0.88)).hex()


def fetched(host: Host) -> None:
    with host.mirror.held_for(host.key, branch=host.task.branch):
        assert host.mirror.has(host.task.base_commit)


def half_written(folder: Path) -> list[str]:
    """Files that git has not finished, in a repository."""
    return [str(path) for path in folder.rglob("tmp_*")]


def test_a_first_copy_is_begun_again_after_each_break(
    host: Host, line: CutConnections, caplog: pytest.LogCaptureFixture
) -> None:
    line.down, line.most = CUT, 3
    fetched(host)
    assert line.cut == 3 and LARGE < line.passed["down"] < LARGE * 1.2 + 3 * CUT
    assert caplog.text.count("tried again in 0.1 seconds") == 3
    assert host.mirror.problems() == [] and half_written(host.mirror.path) == []
    assert host.mirror.branches() == host.repository.branches()


def test_a_copy_that_breaks_again_and_again_is_given_up_for_now(host: Host, line: CutConnections) -> None:
    """Another host may try, and this one later."""
    line.down = CUT
    with pytest.raises(TemporaryFault):
        fetched(host)
    assert line.cut == 4
    line.down = None
    fetched(host)
    assert half_written(host.mirror.path) == []


def test_a_recording_is_pushed_again_after_each_break(host: Host, line: CutConnections) -> None:
    fetched(host)
    line.forget()
    with host.mirror.held_for(host.key, branch=host.task.branch):
        made = host.commit(noise(LARGE))
        line.up, line.most = CUT, 3
        host.mirror.set_refs(made, snapshot_ref(host.task))
    assert line.cut == 3 and push_problem() == ""
    assert host.repository.refs(snapshot_ref(host.task)) == (made,) and host.repository.problems() == []
    assert host.repository.refs("refs/cat-herder-incoming/") == ()
    wait_until(lambda: half_written(host.repository.path) == [])


PROGRAM = """
import sys
from pathlib import Path
from tasks_app.git.mirror import Mirror, Portal
folder, url, token, task, epoch, branch, commit, ref = sys.argv[1:]
there = Mirror(Path(folder), source=url, name="mirror", portal=Portal(url, token))
with there.held_for((int(task), int(epoch)), branch=branch):
    if commit:
        there.set_refs(commit, ref)
"""


def worker_process(host: Host, commit: str = "") -> subprocess.Popen[bytes]:
    """Exchange files in a process of its own, as a worker does."""
    arguments = [
        str(host.mirror.path), host.url, host.token, str(host.key[0]), str(host.key[1]), host.task.branch,
        commit, snapshot_ref(host.task),
    ]  # fmt: skip
    return subprocess.Popen([sys.executable, "-c", PROGRAM, *arguments], cwd=REPOSITORY)


def kill_after_first_break(process: subprocess.Popen[bytes], line: CutConnections) -> None:
    """Kill the worker, and let the line be whole from then on."""
    wait_until(lambda: line.cut)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    line.up = line.down = None


def test_a_worker_that_was_killed_while_it_fetched_fetches_again(host: Host, line: CutConnections) -> None:
    line.down = CUT
    kill_after_first_break(worker_process(host), line)
    fetched(host)
    assert host.mirror.problems() == []


def test_a_worker_that_was_killed_while_it_pushed_leaves_nothing_at_the_portal(
    host: Host, line: CutConnections
) -> None:
    """Its successor holds the task anew, and has recorded the same files in another commit."""
    fetched(host)
    large = noise(LARGE)
    first = host.commit(large)
    line.up = CUT
    kill_after_first_break(worker_process(host, first), line)
    assert not host.repository.has(first)
    Task.objects.filter(pk=host.task.pk).update(lease_epoch=host.key[1] + 1)
    host.task.refresh_from_db()
    second = host.commit(large, message="again")
    assert second != first and worker_process(host, second).wait() == 0
    assert host.repository.refs(snapshot_ref(host.task)) == (second,)
    assert host.repository.refs("refs/cat-herder-incoming/") == ()
    wait_until(lambda: half_written(host.repository.path) == [])


def test_what_an_earlier_holder_has_pushed_is_not_pushed_again(host: Host, line: CutConnections) -> None:
    """The worker was lost after the push, and before the references were set."""
    fetched(host)
    made = host.commit(noise(LARGE))
    host.git("push", "--", host.portal.repository_url(host.key), f"{made}:{incoming_ref(host.key)}")
    Task.objects.filter(pk=host.task.pk).update(lease_epoch=host.key[1] + 1)
    host.task.refresh_from_db()
    line.forget()
    with host.mirror.held_for(host.key, branch=host.task.branch):
        host.mirror.set_refs(made, snapshot_ref(host.task))
    assert line.passed["up"] < CUT
    assert host.repository.refs("refs/cat-herder-incoming/") == ()


def test_a_lease_that_is_lost_ends_the_attempts(host: Host, line: CutConnections) -> None:
    fetched(host)
    line.up = CUT
    with host.mirror.held_for(host.key, branch=host.task.branch):
        made = host.commit(noise(LARGE))
        taking = threading.Thread(target=take_over_after_a_break, args=(host, line))
        taking.start()
        with pytest.raises((LeaseLost, TemporaryFault)):
            host.mirror.set_refs(made, snapshot_ref(host.task))
        taking.join()
        with pytest.raises(LeaseLost):
            host.mirror.set_refs(made, snapshot_ref(host.task))
    assert not host.repository.has(made)


def take_over_after_a_break(host: Host, line: CutConnections) -> None:
    wait_until(lambda: line.cut)
    Task.objects.filter(pk=host.task.pk).update(lease_epoch=host.key[1] + 1)
    connection.close()
