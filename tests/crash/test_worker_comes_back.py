"""A worker is stopped for longer than its lease and continued: its successor goes on undisturbed (R2)."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tasks_app.agent.leftover_processes import marked_processes
from tests.agents import rehearsal
from tests.forkserver import PATIENCE, REPOSITORY
from tests.installation import Installation
from tests.waiting import wait_until

pytestmark = [pytest.mark.bubblewrap, pytest.mark.once(on="sqlite")]

TASK = """
from pathlib import Path
from tasks_app.services.projects.projects import add_project
from tasks_app.services.tasks import create_task, start_task
from tasks_app.models import User
from tasks_app.permissions import Principal
from tests.integration.git_repository import GitRepository
ann = User.objects.get(username="ann")
config = "pipelines:\\n  default:\\n    - name: do\\n      command: self\\n      retry: 0\\n      CHECK\\n"
source = Path(SOURCE)
GitRepository.make(source, **{"cat-herder.yaml": config})
project = add_project("stopped", str(source), by=ann)
task = create_task(project, "# It\\n\\nrehearsal: TEXT\\n", by=Principal.unrestricted(ann), where="test")
start_task(task, by=Principal.unrestricted(ann))
"""
CHECK = "check: {type: shell, command: 'mktemp at-work.XXXXXX; until test -e go; do sleep 0.1; done'}"


@contextmanager
def worker(installation: Installation, log: Path, env: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            [sys.executable, "manage.py", "worker"], cwd=REPOSITORY, env=env, stderr=stderr
        )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGCONT)
        process.terminate()
        assert process.wait(PATIENCE) == 0


def stop(process: subprocess.Popen[bytes], database: Path) -> None:
    """Stop it, but not in the middle of a transaction, which would keep everybody else out."""
    while True:
        process.send_signal(signal.SIGSTOP)
        try:
            with closing(sqlite3.connect(database, timeout=0.2, isolation_level=None)) as connection:
                connection.execute("BEGIN IMMEDIATE")
                connection.execute("UPDATE tasks_app_task SET lease_expires = '2020-01-01 00:00:00'")
                connection.execute("COMMIT")
            return
        except sqlite3.OperationalError:
            process.send_signal(signal.SIGCONT)
            time.sleep(0.05)


def lasting(place: Path) -> set[int]:
    """What runs there, without the sleeps of its loops, which come and go."""
    found = set(marked_processes(place))
    for _ in range(5):
        time.sleep(0.1)
        found &= set(marked_processes(place))
    return found


@pytest.mark.parametrize(
    ("text", "check"), [("wait-for-go", ""), ("no-questions", CHECK)], ids=["run", "check"]
)
def test_who_comes_back_ends_only_what_it_started_itself(
    installation: Installation, tmp_path: Path, text: str, check: str
) -> None:
    """Also with `retry: 0`: nothing of it is a failed attempt."""
    source = str(tmp_path / "source")
    code = TASK.replace("CHECK", check).replace("SOURCE", repr(source)).replace("TEXT", text)
    installation.python(code)
    place = installation.task_dir() / "workspace"
    logs = tmp_path / "first.log", tmp_path / "second.log"
    (tmp_path / "server").mkdir()
    with rehearsal(tmp_path / "server") as server:
        env = installation.env(
            ANTHROPIC_API_KEY="a-key", ANTHROPIC_BASE_URL=server.url, CATHERDER_SANDBOX="require"
        )
        with worker(installation, logs[0], env) as first:
            wait_until(lambda: len(list(place.glob("at-work.*"))) == 1)
            of_first = lasting(place)
            stop(first, installation.data_dir / "catherder.sqlite3")
            with worker(installation, logs[1], env):
                wait_until(lambda: len(list(place.glob("at-work.*"))) == 2)
                of_second = lasting(place)
                assert of_second and not of_first & of_second, (
                    "the earlier one was ended before the next began"
                )
                first.send_signal(signal.SIGCONT)
                wait_until(lambda: "was taken over" in logs[0].read_text())
                assert of_second <= set(marked_processes(place)), "the successor's processes live"
                (place / "go").touch()
                wait_until(lambda: installation.phase() not in ("pending", "running"))
    assert installation.phase() == "done"
    failures = installation.row("SELECT failures FROM tasks_app_step")
    assert failures == (0,)
    assert marked_processes(place) == []
