"""R2: a worker whose queue breaks while it runs takes up due tasks all the same, and its log stays short."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.forkserver import REPOSITORY
from tests.installation import Installation
from tests.integration.redis_server import redis_server
from tests.waiting import wait_until

pytestmark = [pytest.mark.bubblewrap, pytest.mark.once(on="sqlite")]

START = """
from tasks_app.services.tasks import create_task, start_task
from tasks_app.models import Project, User
from tasks_app.permissions import Principal
ann = Principal.unrestricted(User.objects.get(username="ann"))
plain = Project.objects.get(name="plain")
start_task(create_task(plain, "# It\\n\\nrehearsal: no-questions\\n", by=ann, where="test"), by=ann)
"""


@contextmanager
def worker(installation: Installation, log: Path, **variables: str) -> Iterator[None]:
    """A worker that has begun: its first sign of life is in the rows."""
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            [sys.executable, "manage.py", "worker"],
            cwd=REPOSITORY,
            env=installation.env(**variables),
            stderr=stderr,
        )
    try:
        wait_until(lambda: installation.row("SELECT count(*) FROM tasks_app_workerbeat") != (0,))
        yield
    finally:
        process.terminate()
        assert process.wait(60) == 0


def test_without_redis_due_tasks_are_found(installation: Installation, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with redis_server() as redis, worker(installation, log, REDIS_URL=redis.url):
        redis.stop()
        installation.python(START, REDIS_URL=redis.url)
        wait_until(lambda: installation.phase() == "done")
    assert "Traceback" not in log.read_text()


@pytest.mark.parametrize("damage", ["dropped", "overwritten"])
def test_with_a_damaged_queue_file_due_tasks_are_found(
    installation: Installation, tmp_path: Path, damage: str
) -> None:
    log, file = tmp_path / "log", installation.data_dir / "huey.sqlite3"
    with worker(installation, log):
        if damage == "dropped":
            with closing(sqlite3.connect(file, timeout=10)) as queue:
                queue.execute("DROP TABLE task")
        else:
            file.write_bytes(b"this is no database\n" * 2000)
        installation.python(START)
        wait_until(lambda: installation.phase() == "done")
        installation.python(START)
        wait_until(lambda: installation.phase(2) == "done")
    said = log.read_text()
    assert "Traceback" not in said and said.count("was damaged") <= 1
