"""A2: an agent on a worker host finds a person's token, and it is of no use to it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tasks_app.rehearsal.server import RehearsalServer
from tests.databases import sqlite_template
from tests.forkserver import PATIENCE, REPOSITORY
from tests.hosts import Host, Network
from tests.installation import PLAIN_CONFIG, Installation
from tests.waiting import wait_until

pytestmark = [pytest.mark.hosts, pytest.mark.bubblewrap, pytest.mark.once(on="sqlite")]

ADDRESS = "10.77.0.200:8000"
BEGIN = """
from pathlib import Path
from tasks_app.models import User
from tasks_app.permissions import Principal
from tasks_app.services.accounts import make_token
from tasks_app.services.projects.projects import add_project
from tasks_app.services.tasks import create_task, start_task
from tests.integration.git_repository import GitRepository
user = User.objects.create(username="ann", is_superuser=True, password="!")
ann = Principal.unrestricted(user)
token = make_token("laptop", tuple(Scope), by=ann).secret
GitRepository.make(Path(SOURCE), **{"cat-herder.yaml": CONFIG, "token": token, "try.py": TRY})
project = add_project("travels", SOURCE, by=user)
task = create_task(project, "# It\\n\\nrehearsal: try-the-network\\n", by=ann, where="test", threshold=3)
start_task(task, by=ann)
result = token
"""
#: The token is in no output, which would revoke it.
TRY = """
import http.client, json, pathlib, socket
token = pathlib.Path("token").read_text()
said = []
for source in ("", "10.77.0.99"):
    for method, path in (("GET", "/api/v1/tasks"), ("POST", "/mcp"), ("GET", "/healthz")):
        there = http.client.HTTPConnection("PORTAL", timeout=30, source_address=(source, 0))
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        headers = {
            "Authorization": "Bearer " + token,
            "Accept": "application/json, text/event-stream",
            "Content-Type": "application/json",
            "X-Forwarded-For": "198.51.100.7",
        }
        there.request(method, path, json.dumps(message) if method == "POST" else None, headers)
        said.append(there.getresponse().status)
pathlib.Path("said.txt").write_text(json.dumps(said))
"""
ASK = """
import http.client
there = http.client.HTTPConnection("PORTAL", timeout=30)
try:
    there.request("GET", "/api/v1/tasks", headers={"Authorization": "Bearer TOKEN"})
    print(there.getresponse().status)
except ConnectionError:
    pass
"""


@contextmanager
def portal_at(address: str, network: Network, portal: Installation, **variables: str) -> Iterator[None]:
    """Serve the portal in the hosts' network, where it sees their addresses."""
    host, _, port = address.partition(":")
    network.lan.run("ip", "address", "add", f"{host}/24", "dev", "bridge")
    command = ["-m", "uvicorn", "catherder_site.asgi:application", "--host", host, "--port", port]
    command += ["--no-proxy-headers", "--log-level", "warning"]
    process = subprocess.Popen(
        network.lan.command(sys.executable, *command), cwd=REPOSITORY, env=portal.env(**variables)
    )
    try:
        yield
    finally:
        process.terminate()
        process.wait(PATIENCE)


@pytest.fixture
def portal(tmp_path: Path) -> Installation:
    shutil.copyfile(sqlite_template(), tmp_path / "db.sqlite3")
    return Installation(
        tmp_path / "data",
        DATABASE_URL=f"sqlite:///{tmp_path}/db.sqlite3",
        ANTHROPIC_API_KEY="a-key",
        CATHERDER_SANDBOX="require",
        CATHERDER_URL=f"http://{ADDRESS}",
    )


@pytest.fixture
def network() -> Iterator[Network]:
    with Network() as made:
        yield made


@pytest.mark.parametrize("proxies", ["", "10.77.0.0/24"], ids=["direct", "a-trusted-network"])
def test_a_stolen_token_is_of_no_use_to_an_agent_on_a_worker_host(
    tmp_path: Path, portal: Installation, server: RehearsalServer, network: Network, proxies: str
) -> None:
    """Also from a second address of that host, and with the header of a proxy."""
    token = begun(portal, tmp_path / "source")
    with portal_at(ADDRESS, network, portal, **({"CATHERDER_PROXY": proxies} if proxies else {})):
        elsewhere = network.host("laptop", tmp_path / "laptop", portal.data_dir)
        wait_until(lambda: status_from(elsewhere, token))
        assert status_from(elsewhere, token) == "200"
        host = worker_on(network, portal, tmp_path / "build-1", network.offer_url("model", server.url))
        wait_until(lambda: said_on(host), log=host.log)
        assert said_on(host) == "[403, 403, 200, 403, 403, 200]", "only what needs no token"
        assert status_from(elsewhere, token) == "200", "the token itself is as good as before"


def begun(portal: Installation, source: Path) -> str:
    """Start a task, and return the token that its agent finds."""
    code = BEGIN.replace("SOURCE", repr(str(source))).replace("CONFIG", repr(PLAIN_CONFIG))
    token: str = portal.rows(code.replace("TRY", repr(TRY.replace("PORTAL", ADDRESS))))
    return token


def worker_on(network: Network, portal: Installation, disk: Path, model: str) -> Host:
    token = portal.manage("worker_token", disk.name).stdout.strip()
    host = network.host(disk.name, disk, portal.data_dir)
    host.python("import subprocess; subprocess.run('ip address add 10.77.0.99/24 dev eth0'.split())")
    own = portal.env(CATHERDER_WORKER_TOKEN=token, ANTHROPIC_BASE_URL=model)
    host.start("manage.py", "worker", env=own)
    return host


def said_on(host: Host) -> str:
    return "".join(path.read_text() for path in host.disk.glob("tasks/*/workspace/said.txt"))


def status_from(host: Host, token: str) -> str:
    """Return what the API answers to the token, "" if nothing listens yet."""
    return host.python(ASK.replace("PORTAL", ADDRESS).replace("TOKEN", token)).strip()
