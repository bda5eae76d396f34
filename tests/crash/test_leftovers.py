"""What a portal that is killed with all its processes leaves is gone after the next start (R2)."""

from __future__ import annotations

import hashlib
import os
import signal
import socket
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from tasks_app.git.mirror import Mirror, Portal
from tasks_app.rehearsal.server import RehearsalServer
from tests.crash.test_worker_hosts import HOLD, begin, commit_with_a_large_file
from tests.installation import PLAIN_CONFIG
from tests.leftovers import leftovers
from tests.portal import UpPortal
from tests.waiting import wait_until

pytestmark = [pytest.mark.bubblewrap, pytest.mark.once(on="sqlite")]

HALF = 1_000_000
#: The portal's own worker may not take the task, however long the rest takes: no worker of it has the label.
HOLD_ELSEWHERE = "Step.objects.update(runs_on='elsewhere')\n" + HOLD
SECOND_TASK = """
from tasks_app.models import Project, User
from tasks_app.permissions import Principal
from tasks_app.services.tasks import create_task, start_task
ann = Principal.unrestricted(User.objects.get(username="ann"))
task = create_task(Project.objects.get(), "# It\\n\\nrehearsal: slow-once\\n", by=ann, where="test")
start_task(task, by=ann)
"""


@contextmanager
def half_sent(portal: UpPortal, head: str, body: bytes) -> Iterator[None]:
    """Send a part of a request, and keep its connection."""
    with socket.create_connection(("127.0.0.1", int(portal.port))) as there:
        length = f"Content-Length: {len(body)}"
        there.sendall(f"{head}\r\nHost: 127.0.0.1\r\n{length}\r\n\r\n".encode() + body[:HALF])
        yield


def kill_all(data_dir: Path) -> None:
    """Kill each process of the portal, and what it started, at the same moment."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            said = (path / "environ").read_bytes() + (path / "cmdline").read_bytes()
            if str(data_dir).encode() in said:
                found.append(int(path.name))
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, number)


@pytest.fixture
def temporary() -> Iterator[Path]:
    """Temporary files of the portal, at a path that is short enough for its sockets."""
    with tempfile.TemporaryDirectory(prefix="left-", dir="/tmp") as folder:
        yield Path(folder)


@pytest.mark.parametrize("options", [(), ("--no-worker",)], ids=["worker", "no worker"])
def test_a_portal_that_is_killed_as_a_whole(
    tmp_path: Path, temporary: Path, server: RehearsalServer, options: tuple[str, ...]
) -> None:
    """An agent is at work, a worker host pushes commits and a content of Git LFS."""
    portal = UpPortal.migrated(tmp_path / "data")
    portal.variables |= {
        "ANTHROPIC_API_KEY": "a-key",
        "ANTHROPIC_BASE_URL": server.url,
        "CATHERDER_SANDBOX": "require",
        "CATHERDER_LOCAL_SANDBOXES": "allow",
        "TMPDIR": str(temporary),
    }
    begin(portal, tmp_path / "source", scenario="no-questions", config=PLAIN_CONFIG)
    task, epoch, branch, base = portal.rows(HOLD_ELSEWHERE)
    portal.python(SECOND_TASK)
    portal.start("--no-sample")
    token = portal.manage("worker_token", "build-1").stdout.strip()
    mirror = Mirror(
        tmp_path / "mirror.git", source=portal.url, name="travels", portal=Portal(portal.url, token)
    )
    with mirror.held_for((task, epoch), branch=branch):
        made = commit_with_a_large_file(mirror, base)
    (repository,) = portal.data_dir.glob("repositories/*.git")
    pack = mirror.git.run("pack-objects", "--revs", "--stdout", "-q", stdin=f"{made}\n^{base}\n".encode())
    line = f"{40 * '0'} {made} refs/cat-herder-incoming/{task}/{epoch}\0report-status side-band-64k".encode()
    content = os.urandom(2 * HALF)
    place = f"/worker/tasks/{task}/{epoch}/repository.git"
    login = f"HTTP/1.1\r\nAuthorization: Bearer {token}"
    with ExitStack() as open_ones:
        push = b"%04x%s0000" % (len(line) + 4, line) + pack
        open_ones.enter_context(half_sent(portal, f"POST {place}/git-receive-pack {login}", push))
        name = hashlib.sha256(content).hexdigest()
        open_ones.enter_context(half_sent(portal, f"PUT {place}/info/lfs/objects/{name} {login}", content))
        wait_until(lambda: list(repository.rglob("tmp_pack_*")) and list(repository.rglob("*.part")))
        wait_until(lambda: list(portal.data_dir.glob("tasks/2-*/workspace/slow-started.txt")))
        kill_all(portal.data_dir)
    portal.stop()
    left = " ".join(leftovers(portal.data_dir, temporary))
    assert all(one in left for one in ("/tmp_objdir-incoming-", ".part", f"{temporary}/cat-herder-model-")), (
        left
    )
    portal.start("--no-sample", *options)
    try:
        wait_until(lambda: leftovers(portal.data_dir, temporary) == [])
    finally:
        portal.stop()
    assert leftovers(portal.data_dir, temporary) == []
