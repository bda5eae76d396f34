"""M1, O4: pages, sockets and the git exchanges of worker hosts pass real reverse proxies.

Caddy with the file that `deploy/` has, and nginx with the configuration in docs/operations.md.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import requests
from websockets.sync.client import connect
from websockets.typing import Origin

from tasks_app.git import Repository, mirror
from tasks_app.git.mirror import Mirror, Portal, TokenRefused
from tests import machine
from tests.deployment import DEPLOY
from tests.forkserver import PATIENCE, REPOSITORY
from tests.portal import UpPortal
from tests.waiting import wait_until

pytestmark = pytest.mark.once(on="sqlite")

LARGE = 20 * 1024**2
#: As the holder of a task on a worker host: its token, task, epoch, branch and base commit.
HOLD = """
from tasks_app.permissions import Principal
from tasks_app.services.workers.hosts import make_worker_token
admin = Principal.unrestricted(User.objects.get(username="admin"))
token = make_worker_token("build-2", by=admin)
task = Task.objects.get(pk={task})
epoch = Task.objects.claim(task.pk, owner="build-2@there:7:Worker-1", seconds=600)
result = [token, task.pk, epoch, task.branch, task.base_commit]
"""


@dataclass
class Behind:
    """A portal behind a proxy at `url`."""

    portal: UpPortal
    url: str
    folder: Path

    def socket(self) -> Any:
        prefix = "__Host-" if self.url.startswith("https:") else ""
        cookie = f"{prefix}sessionid={self.portal.session('admin')}"
        return connect(
            f"{self.url.replace('http', 'ws', 1)}/ws/live/",
            origin=Origin(self.url),
            additional_headers={"Cookie": cookie},
        )


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


@contextmanager
def running(command: list[str], folder: Path, url: str, **variables: str) -> Iterator[None]:
    """Run a proxy until the context ends. It has answered with a page of the portal before."""
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), "XDG_DATA_HOME": str(folder), **variables}
    log = folder / "log"
    with log.open("wb") as out:
        process = subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    try:
        wait_until(lambda: _answers(url), log=log)
        yield
    finally:
        process.terminate()
        process.wait(PATIENCE)


def _answers(url: str) -> bool:
    try:
        return requests.get(f"{url}/healthz", timeout=PATIENCE).ok
    except requests.ConnectionError:
        return False


@contextmanager
def caddy(portal: UpPortal, url: str, folder: Path) -> Iterator[None]:
    """Run Caddy with the file that people copy; without https, because the URL has http."""
    command = ["caddy", "run", "--adapter", "caddyfile", "--config", str(DEPLOY / "Caddyfile")]
    web = portal.url.removeprefix("http://")
    admin = f"unix/{folder}/admin"
    with running(command, folder, url, CATHERDER_URL=url, CATHERDER_WEB=web, CADDY_ADMIN=admin):
        yield


@contextmanager
def nginx(portal: UpPortal, url: str, folder: Path) -> Iterator[None]:
    """Run nginx with the documented configuration, but for addresses and certificate."""
    text = (REPOSITORY / "docs/operations.md").read_text()
    server, outside = re.findall(r"^```nginx\n(.*?)^```", text, re.M | re.S)
    server = re.sub(r"^ +ssl_.*\n", "", server, flags=re.M)
    server = server.replace("listen 443 ssl", f"listen {url.removeprefix('http://')}")
    server = server.replace("http://127.0.0.1:8000", portal.url)
    temporary = "".join(
        f"{kind}_temp_path {folder}/{kind};\n"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    config = folder / "nginx.conf"
    config.write_text(
        f"daemon off;\npid {folder}/pid;\nerror_log stderr;\n{outside}"
        f"http {{\naccess_log off;\n{temporary}{server}}}\n"
    )
    assert machine.NGINX
    with running([machine.NGINX, "-p", str(folder), "-c", str(config)], folder, url):
        yield


PROXIES = {"caddy": caddy, "nginx": nginx}


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=getattr(pytest.mark, name)) for name in PROXIES],
)
def behind(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Behind]:
    folder = tmp_path_factory.mktemp(request.param)
    url = f"http://127.0.0.1:{free_port()}"
    portal = UpPortal.migrated(folder / "portal")
    portal.variables["CATHERDER_URL"] = url
    portal.start("--no-worker")
    try:
        with PROXIES[request.param](portal, url, folder):
            yield Behind(portal, url, folder)
    finally:
        portal.stop()


def test_o4_the_page_for_logging_in_passes_a_proxy(behind: Behind) -> None:
    page = requests.get(f"{behind.url}/login/", timeout=PATIENCE)
    assert page.status_code == 200 and 'name="password"' in page.text


def test_o4_a_socket_passes_a_proxy(behind: Behind) -> None:
    with behind.socket() as live:
        behind.portal.new_task("# Paint it\n\nIn some colour.\n", started=False)
        assert live.recv(timeout=PATIENCE)


BODY_TO_COME = b"POST /login/ HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9000\r\n\r\nx"


@pytest.mark.parametrize("begun", [b"", BODY_TO_COME], ids=["nothing", "a body"])
def test_w1_300_connections_that_say_no_more_block_no_neighbour(behind: Behind, begun: bytes) -> None:
    """Somebody at the same address gets pages, though one address may have 256 connections."""
    port = int(behind.url.rpartition(":")[2])
    with ExitStack() as opened:
        for _ in range(300):
            one = opened.enter_context(socket.create_connection(("127.0.0.1", port), timeout=PATIENCE))
            one.sendall(begun)
        for _ in range(5):
            assert requests.get(f"{behind.url}/login/", timeout=PATIENCE).status_code == 200


def test_m1_git_exchanges_of_a_worker_host_pass_a_proxy(
    behind: Behind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The token is checked, and what is larger than the proxy takes at once comes in pieces."""
    with pytest.raises(TokenRefused):
        Portal(behind.url, "cathw_build-2." + 43 * "A").hello()
    task = behind.portal.new_task("# Paint it\n\nIn some colour.\n")
    token, *key, branch, base = behind.portal.rows(HOLD.format(task=task))
    portal = Portal(behind.url, token)
    assert portal.hello()["data_dir"] == str(behind.portal.data_dir)
    monkeypatch.setattr(mirror, "_FETCH_PAUSES", ())
    monkeypatch.setattr(mirror, "_PUSH_PAUSES", ())
    there = Mirror(behind.folder / "mirror.git", source=behind.url, name="mirror", portal=portal)
    snapshot = f"refs/cat-herder/{branch}/1-01-1"
    with there.held_for((key[0], key[1]), branch=branch):
        made = large_commit(there, base)
        there.set_refs(made, snapshot)
    (path,) = (behind.portal.data_dir / "repositories").glob("*.git")
    assert Repository(path, "").refs(snapshot) == (made,)


def large_commit(there: Mirror, base: str) -> str:
    assert there.has(base)
    blob = there.git.run("hash-object", "-w", "--stdin", stdin=os.urandom(LARGE)).decode().strip()
    tree = there.git.run("mktree", stdin=f"100644 blob {blob}\tpaint.bin\n".encode()).decode().strip()
    names = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    return there.git.run(*names, "commit-tree", "-p", base, "-m", "Paint", tree).decode().strip()
