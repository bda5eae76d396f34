"""M2: a task that asked on one host goes on on another, in the same session and with the same files.

In the first test each host is a mount namespace: its own data directory lies over that of the portal, under
the same path. In the second one both workers are on one machine, with data directories at two paths.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tasks_app.agent.leftover_processes import marked_processes
from tasks_app.git.mirror import Mirror, Portal
from tasks_app.git.repository import Repository
from tasks_app.management.commands.up import server_options
from tasks_app.rehearsal.server import RehearsalServer
from tests.databases import sqlite_template
from tests.forkserver import PATIENCE, REPOSITORY
from tests.installation import PLAIN_CONFIG, Installation, answering
from tests.portal import WebServer
from tests.waiting import wait_until

pytestmark = [pytest.mark.bubblewrap, pytest.mark.once(on="sqlite")]

#: Every command of the setup and the check says where it is.
CONFIG = """\
setup:
  run: mkdir -p made && pwd >made/where && echo "$HOME" >~/home
  cache: {key: cat-herder.yaml, paths: [made]}
pipelines:
  default:
    - name: do
      command: self
      fileAccess: {allowWrite: ["*.txt"]}
      check:
        - {type: fileExists, path: way.txt}
        - type: shell
          command: test "$(cat made/where where.txt | sort -u)" = "$PWD"
"""
BEGIN = """
from pathlib import Path
from tasks_app.models import User
from tasks_app.permissions import Principal
from tasks_app.services.projects.projects import add_project
from tasks_app.services.tasks import create_task, start_task
from tests.integration.git_repository import GitRepository
ann = User.objects.create(username="ann", is_superuser=True, password="!")
GitRepository.make(Path(SOURCE), **{"cat-herder.yaml": CONFIG, ".gitignore": "made/\\n"})
project = add_project("travels", SOURCE, by=ann)
ann = Principal.unrestricted(ann)
task = create_task(project, "# It\\n\\nrehearsal: SCENARIO\\n", by=ann, where="test", threshold=3)
start_task(task, by=ann)
"""
HOLD = """
task = Task.objects.get()
epoch = Task.objects.claim(task.pk, owner="build-1@there:7:Worker-1", seconds=600)
result = [task.pk, epoch, task.branch, task.base_commit]
"""
ANSWER = 'Blue ☃ "; rm -rf /'


@contextmanager
def worker(portal: WebServer, own: Path, log: Path, token: str) -> Iterator[subprocess.Popen[bytes]]:
    """A worker on a host that has nothing but its own data directory."""
    own.mkdir(mode=0o700)
    env = portal.env(CATHERDER_URL=f"http://{portal.address}", CATHERDER_WORKER_TOKEN=token)
    host = ["bwrap", "--dev-bind", "/", "/", "--bind", str(own), str(portal.data_dir), "--die-with-parent"]
    with running([*host, "--", sys.executable, "manage.py", "worker"], env, log) as process:
        yield process


@contextmanager
def running(words: list[str], env: dict[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("ab") as output:
        process = subprocess.Popen(words, cwd=REPOSITORY, env=env, stdout=output, stderr=output)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE)


@pytest.fixture
def portal(tmp_path: Path, server: RehearsalServer) -> Iterator[WebServer]:
    database = tmp_path / "db.sqlite3"
    shutil.copyfile(sqlite_template(), database)
    started = WebServer(
        tmp_path / "data",
        DATABASE_URL=f"sqlite:///{database}",
        ANTHROPIC_API_KEY="a-key",
        ANTHROPIC_BASE_URL=server.url,
        CATHERDER_SANDBOX="require",
        CATHERDER_LOCAL_SANDBOXES="allow",  # hosts may be sandboxes of this machine
    ).start(*server_options())
    yield started
    started.stop()


def test_a_task_that_asked_goes_on_on_another_host(tmp_path: Path, portal: WebServer) -> None:
    begin(portal, tmp_path / "source", scenario="crash-story", config=PLAIN_CONFIG)
    tokens = [portal.manage("worker_token", name).stdout.strip() for name in ("build-1", "build-2")]
    first, second = tmp_path / "first", tmp_path / "second"
    log = tmp_path / "first.log"
    with worker(portal, first, log, tokens[0]) as process:
        wait_until(lambda: waits_without_a_lease(portal), log=log)
        process.kill()
        process.wait()
    wait_until(lambda: marked_processes(portal.data_dir) == [])
    assert list(first.glob("tasks/*/workspace/before.txt")), "it was made there, and only there"
    assert not (portal.data_dir / "tasks").exists()
    shutil.rmtree(first)
    assert portal.python(answering(1, ANSWER, by="ann")) == ""
    log = tmp_path / "second.log"
    with worker(portal, second, log, tokens[1]):
        wait_until(lambda: portal.phase() not in ("pending", "running"), log=log)
    assert portal.phase() == "done", log.read_text()
    assert "are left to the worker of the portal's host" in log.read_text()
    before, after = portal.rows(
        "result = [[str(run.session_id), run.resumed, str(run.data_dir), run.outcome]"
        " for run in Run.objects.order_by('number')]"
    )
    assert before[0] == after[0] and (before[1], after[1]) == (False, True), "the same session"
    assert before[2] != after[2] and (before[3], after[3]) == ("asked", "finished")
    names = portal.rows(
        "from tasks_app.git import committed_text\nfrom tasks_app.models import paths\n"
        "task = Task.objects.select_related('project').get()\n"
        "result = [committed_text(paths.repository(task.project), commit=task.head_commit, path=name)"
        " for name in ('before.txt', 'after.txt')]"
    )
    assert names[0] == "before\n" and ANSWER in names[1]


def begin(portal: Installation, source: Path, *, scenario: str, config: str) -> None:
    values = {"SOURCE": repr(str(source)), "CONFIG": repr(config), "SCENARIO": scenario}
    code = BEGIN
    for name, value in values.items():
        code = code.replace(name, value)
    portal.python(code)


def waits_without_a_lease(portal: WebServer) -> bool:
    """The question is open, and the work is recorded."""
    return portal.row("SELECT phase, lease_owner FROM tasks_app_task") == ("waiting_for_input", "")


def test_a_worker_on_the_portals_machine_has_a_data_directory_of_its_own(
    tmp_path: Path, portal: WebServer
) -> None:
    """M1, M2: the task goes from the portal's worker to one whose data directory is elsewhere, and back."""
    begin(portal, tmp_path / "source", scenario="to-and-fro", config=CONFIG)
    (own := tmp_path / "elsewhere" / "data").mkdir(parents=True, mode=0o700)
    token = portal.manage("worker_token", "build-1").stdout.strip()
    second = {"CATHERDER_URL": f"http://{portal.address}", "CATHERDER_WORKER_TOKEN": token}
    hosts = [portal.env(), portal.env(**second, CATHERDER_DATA_DIR=str(own)), portal.env()]
    worker_words, log = [sys.executable, "manage.py", "worker"], tmp_path / "workers.log"
    for number, env in enumerate(hosts, start=1):
        with running(worker_words, env, log):
            done = waits_without_a_lease if number < len(hosts) else ended
            wait_until(lambda done=done: done(portal), log=log)  # type: ignore[misc]
        if number < len(hosts):
            assert portal.python(answering(number, "Blue" if number == 1 else "left", by="ann")) == ""
    assert portal.phase() == "done", log.read_text() + str(portal.row("SELECT failure FROM tasks_app_task"))
    runs = portal.rows(
        "result = [[str(run.session_id), bool(run.data_dir), run.outcome]"
        " for run in Run.objects.order_by('number')]"
    )
    assert [run[1:] for run in runs] == [[False, "asked"], [True, "asked"], [False, "finished"]]
    assert len({run[0] for run in runs}) == 1, "one session"
    (workspace,) = portal.data_dir.glob("tasks/*/workspace")
    assert (workspace / "where.txt").read_text().split() == 3 * [str(workspace)]
    assert set((workspace / "around.txt").read_text().split()) == {"tasks"}, "nothing else of the portal"
    assert [(workspace / name).read_text() for name in ("colour.txt", "way.txt")] == ["Blue\n", "left\n"]
    assert list(own.glob("tasks/*/workspace/colour.txt")), "it was written there"
    setups = portal.rows("result = list(Setup.objects.order_by('number').values_list('cache', 'outcome'))")
    assert setups == [["filled", "done"], ["unused", "done"], ["used", "done"]]


def ended(portal: WebServer) -> bool:
    return portal.phase() not in ("pending", "running")


def test_m1_a_portal_that_is_killed_during_a_push_keeps_nothing_of_it(
    tmp_path: Path, portal: WebServer
) -> None:
    """The host pushes it again. If git is killed too, what it had received goes at the next start."""
    begin(portal, tmp_path / "source", scenario="no-questions", config=PLAIN_CONFIG)
    token = portal.manage("worker_token", "build-1").stdout.strip()
    task, epoch, branch, base = portal.rows(HOLD)
    (path,) = (portal.data_dir / "repositories").glob("*.git")

    def mirror() -> Mirror:
        url = f"http://{portal.address}"
        return Mirror(tmp_path / "mirror.git", source=url, name="travels", portal=Portal(url, token))

    with mirror().held_for((task, epoch), branch=branch):
        made = commit_with_a_large_file(mirror(), base)
    pack = mirror().git.run("pack-objects", "--revs", "--stdout", "-q", stdin=f"{made}\n^{base}\n".encode())
    line = f"{40 * '0'} {made} refs/cat-herder-incoming/{task}/{epoch}\0report-status side-band-64k"
    head = (
        f"POST /worker/tasks/{task}/{epoch}/repository.git/git-receive-pack HTTP/1.1\r\nHost: x\r\n"
        f"Authorization: Bearer {token}\r\nContent-Length: {len(pack) + len(line) + 8}\r\n\r\n"
    )
    host, _, port = portal.address.partition(":")
    with socket.create_connection((host, int(port))) as there:
        there.sendall(head.encode() + b"%04x%s0000" % (len(line) + 4, line.encode()) + pack[: len(pack) // 2])
        wait_until(lambda: list(path.rglob("tmp_pack_*")))
        for pid in processes_with(f"--git-dir={path}", "receive-pack"):
            os.killpg(pid, signal.SIGKILL)
        portal.kill()
    assert list(path.rglob("tmp_pack_*"))
    repository = Repository(path, "")
    assert not repository.has(made) and repository.refs("refs/cat-herder-incoming/") == ()
    portal.start()
    with mirror().held_for((task, epoch), branch=branch):
        mirror().set_refs(made, f"refs/cat-herder/{branch}/1-01-1")
    assert repository.refs(f"refs/cat-herder/{branch}/1-01-1") == (made,) and repository.problems() == []
    assert list(path.rglob("tmp_objdir-*"))
    portal.python(
        "from tasks_app.engine.workspaces.housekeeping import remove_abandoned_folders\n"
        "[*remove_abandoned_folders()]"
    )
    assert not list(path.rglob("tmp_*"))


def processes_with(*words: str) -> Iterator[int]:
    """Yield the processes that were started with all of these words."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if {word.encode() for word in words} <= {*path.read_bytes().split(b"\0")}:
                yield int(path.parent.name)


def commit_with_a_large_file(there: Mirror, base: str) -> str:
    blob = there.git.run("hash-object", "-w", "--stdin", stdin=os.urandom(2_000_000)).decode().strip()
    tree = there.git.run("mktree", stdin=f"100644 blob {blob}\tpaint.bin\n".encode()).decode().strip()
    names = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    return there.git.run(*names, "commit-tree", "-p", base, "-m", "Paint", tree).decode().strip()
