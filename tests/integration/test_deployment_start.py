"""Services of the compose file start as plain processes; the worker is drained as its unit says (O4)."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.deployment import DEPLOY, compose, environment_of, unit_lines
from tests.forkserver import PATIENCE
from tests.installation import Installation
from tests.integration.redis_server import redis_server
from tests.waiting import wait_until

SERVICES = compose()["services"]


@contextmanager
def running(service: str, installation: Installation) -> Iterator[subprocess.Popen[str]]:
    process = installation.popen(*SERVICES[service]["command"], stdin=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE)


def service(name: str, data_dir: Path, **here: str) -> Installation:
    """A service with the environment of the compose file, but for what is elsewhere on this machine."""
    return Installation(data_dir, **environment_of(name) | here)


def healthy(url: str) -> subprocess.CompletedProcess[str]:
    """Run the health check of the web service against this URL."""
    *_, program = SERVICES["web"]["healthcheck"]["test"]
    return subprocess.run(
        [sys.executable, "-c", program.replace("http://127.0.0.1:8000", url)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


@pytest.mark.postgres
@pytest.mark.bubblewrap
@pytest.mark.once(on="sqlite")
def test_o4_web_and_worker_of_the_compose_file_work_together(postgres_url: str, tmp_path: Path) -> None:
    password = urlsplit(environment_of("web")["REDIS_URL"]).password or ""
    with redis_server("--requirepass", password) as redis:
        here = {
            "DATABASE_URL": postgres_url,
            "REDIS_URL": redis.url.replace("//", f"//:{password}@"),
            "CATHERDER_DATA_DIR": str(tmp_path),
            # The PostgreSQL of a test may let agents in; then none may share the network.
            "CATHERDER_NETWORK": "model",
            "PYTHONUNBUFFERED": "1",
        }
        web = service("web", tmp_path, **here, CATHERDER_BIND="127.0.0.1:0")
        worker = service("worker", tmp_path, **here)
        with running("web", web) as server:
            assert server.stdout
            said = iter(server.stdout.readline, "")
            assert any("Cat Herder is ready at https://herder.example.org" in line for line in said)
            done = healthy((tmp_path / "address").read_text().strip())
            assert done.returncode == 0, done.stderr
            assert web.row("SELECT count(*) FROM tasks_app_workerbeat") == (0,)
            with running("worker", worker) as process:
                drained = drain(worker, process)
                assert drained.returncode == 0 and "is empty" in drained.stdout, drained.stderr


def drain(installation: Installation, process: subprocess.Popen[str]) -> subprocess.CompletedProcess[str]:
    """Do what the unit of a worker does before it stops, as soon as the worker is there."""
    stop = dict(unit_lines(DEPLOY / "systemd/cat-herder-worker@.service"))["ExecStop"]
    arguments = shlex.split(stop.replace("${MAINPID}", str(process.pid)))[1:]
    wait_until(lambda: installation.row("SELECT count(*) FROM tasks_app_workerbeat") == (1,))
    return installation.manage(*arguments)
