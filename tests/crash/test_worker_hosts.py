"""M2: a task that asked on one host goes on on another, in the same session and with the same files.

Each host is a mount namespace: its own data directory lies over that of the portal, under the same path.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tasks_app.agent.orphaned_processes import marked_processes
from tasks_app.management.commands.up import server_options
from tasks_app.rehearsal.server import RehearsalServer
from tests.databases import sqlite_template
from tests.forkserver import PATIENCE, REPOSITORY
from tests.installation import answering
from tests.portal import WebServer
from tests.waiting import wait_until

pytestmark = [pytest.mark.bubblewrap, pytest.mark.once(on="sqlite")]

BEGIN = """
from pathlib import Path
from tasks_app.models import User
from tasks_app.permissions import Principal
from tasks_app.services.projects import add_project
from tasks_app.services.tasks import create_task, start_task
from tests.integration.git_repository import GitRepository
ann = User.objects.create(username="ann", is_superuser=True, password="!")
config = "pipelines:\\n  default:\\n    - name: do\\n      command: self\\n"
GitRepository.make(Path(SOURCE), **{"cat-herder.yaml": config})
project = add_project("travels", SOURCE, by=ann)
ann = Principal.unrestricted(ann)
task = create_task(project, "# It\\n\\nrehearsal: crash-story\\n", by=ann, where="test", threshold=3)
start_task(task, by=ann)
"""
ANSWER = 'Blue ☃ "; rm -rf /'


@contextmanager
def worker(portal: WebServer, own: Path, log: Path, token: str) -> Iterator[subprocess.Popen[bytes]]:
    """A worker on a host that has nothing but its own data directory."""
    own.mkdir(mode=0o700)
    env = portal.env(CATHERDER_URL=f"http://{portal.address}", CATHERDER_WORKER_TOKEN=token)
    host = ["bwrap", "--dev-bind", "/", "/", "--bind", str(own), str(portal.data_dir), "--die-with-parent"]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*host, "--", sys.executable, "manage.py", "worker"],
            cwd=REPOSITORY, env=env, stdout=output, stderr=output,
        )  # fmt: skip
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE)


def test_a_task_that_asked_goes_on_on_another_host(tmp_path: Path, server: RehearsalServer) -> None:
    database = tmp_path / "db.sqlite3"
    shutil.copyfile(sqlite_template(), database)
    portal = WebServer(
        tmp_path / "data",
        DATABASE_URL=f"sqlite:///{database}",
        ANTHROPIC_API_KEY="a-key",
        ANTHROPIC_BASE_URL=server.url,
        CATHERDER_SANDBOX="require",
        CATHERDER_LOCAL_SANDBOXES="allow",  # both hosts are sandboxes of this machine
    ).start(*server_options())
    try:
        portal.python(BEGIN.replace("SOURCE", repr(str(tmp_path / "source"))))
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
    finally:
        portal.stop()
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


def waits_without_a_lease(portal: WebServer) -> bool:
    """The question is open, and the work is recorded."""
    return portal.row("SELECT phase, lease_owner FROM tasks_app_task") == ("waiting_for_input", "")
