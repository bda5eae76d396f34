"""R4: an agent cannot act as a user, even with the cookie that a browser sent to a page of its."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from tasks_app.sandbox import Sandbox, peer_identity
from tasks_app.sandbox.peer_identity import Peer, find_peer_socket, identify
from tests import machine
from tests.databases import copy_migrated
from tests.portal import UpPortal

pytestmark = pytest.mark.bubblewrap

CALLS = """\
import ctypes, socket, sys, time
if "hidden" in sys.argv:
    ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE: nobody of its user may look at its files
wait = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
if "closed" in sys.argv:
    wait.close()
time.sleep(60)
"""


@dataclass
class Street:
    """A server, the data directory of a portal, and its agents."""

    folder: Path
    sandbox: Sandbox
    server: socket.socket
    running: list[subprocess.Popen[bytes]]

    @property
    def port(self) -> int:
        return int(self.server.getsockname()[1])

    def start(self, *how: str, sandboxed: bool = True) -> None:
        argv = [sys.executable, "-c", CALLS, str(self.port), *how]
        environment = None
        if sandboxed:
            work = self.folder / "tasks" / "1"
            work.mkdir(parents=True, exist_ok=True)
            command = self.sandbox.command(argv, workspace=work, home=work, env={})
            argv, environment = list(command.argv), command.env
        self.running.append(subprocess.Popen(argv, env=environment))

    def called_by(self) -> Peer:
        here, client = self.server.accept()
        with here:
            time.sleep(0.3)  # for who closes at once to have closed
            peer_socket = find_peer_socket(client, here.getsockname())
            assert peer_socket
            return identify(peer_socket, folder=self.folder)

    def called_by_agent(self) -> bool:
        return self.called_by() is Peer.AGENT


@pytest.fixture
def street(tmp_path: Path) -> Iterator[Street]:
    folder = tmp_path / "data"
    folder.mkdir()
    sandbox = machine.sandbox(folder)
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(20)
        made = Street(folder, sandbox, server, [])
        yield made
        for process in made.running:
            process.kill()
            process.wait()


@pytest.mark.parametrize("how", [[], ["hidden"], ["closed"]], ids=["plain", "hidden", "closed"])
def test_an_agent_is_known(street: Street, how: list[str]) -> None:
    street.start(*how)
    assert street.called_by_agent()


def test_who_hides_is_one_unless_somebody_else_is_seen(
    street: Street, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root sees through what an agent hides. Here it does not, as any other user would not."""
    seen = peer_identity._has_socket
    agents = cache(lambda: peer_identity._agent_pids(street.folder))

    def hidden(pid: int, inode: int) -> bool | None:
        return None if pid in agents() else seen(pid, inode)

    monkeypatch.setattr(peer_identity, "_has_socket", hidden)
    street.start()
    assert street.called_by_agent()
    street.start(sandboxed=False)
    assert not street.called_by_agent()


def test_no_other_process_is_mistaken_for_an_agent(street: Street) -> None:
    """Although there are agents, and one hides."""
    street.start("hidden")
    assert street.called_by_agent()
    street.start(sandboxed=False)
    assert street.called_by() is Peer.OTHER


@pytest.mark.parametrize("how", [[], ["hidden"], ["closed"]], ids=["plain", "hidden", "closed"])
def test_an_agent_of_another_portal_is_known(street: Street, tmp_path: Path, how: list[str]) -> None:
    """Nothing of it names our data directory; it lives in another PID namespace."""
    other = Street(tmp_path / "other", street.sandbox, street.server, street.running)
    other.start(*how)
    assert street.called_by() is Peer.SANDBOXED
    street.start(sandboxed=False)
    assert street.called_by() is Peer.OTHER


def test_an_agent_of_another_portal_is_known_to_a_user_who_cannot_look_at_it(
    street: Street, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root sees through what a process hides. Here it does not, as any other user would not."""
    seen = peer_identity._has_socket
    depth = len(peer_identity._status("self", "NSpid"))

    def hidden(pid: int, inode: int) -> bool | None:
        return seen(pid, inode) if peer_identity._nested_user_id(pid, depth) is None else None

    monkeypatch.setattr(peer_identity, "_has_socket", hidden)
    other = Street(street.folder / "other", street.sandbox, street.server, street.running)
    other.start()
    assert Street.called_by(other) is not Peer.OTHER
    street.start(sandboxed=False)
    assert street.called_by() is Peer.OTHER


@pytest.mark.parametrize(("users", "found"), [({1: 33, 2: 33}, Peer.OTHER), ({1: 33, 2: 1}, Peer.SANDBOXED)])
def test_of_another_user_a_proxy_is_believed_and_what_only_sandboxes_can_be_is_not(
    users: dict[int, int], found: Peer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Process 1 is in a sandbox, process 2 is not, and only root could look which of them called."""
    monkeypatch.setattr(peer_identity, "process_ids", lambda: list(users))
    monkeypatch.setattr(peer_identity, "_user_id", users.get)
    monkeypatch.setattr(peer_identity, "_nested_user_id", lambda pid, depth: users[pid] if pid == 1 else None)
    monkeypatch.setattr(peer_identity, "_has_socket", lambda pid, inode: None)
    assert identify(peer_identity.PeerSocket(user_id=33, inode=5), folder=tmp_path) is found


def test_without_agents_a_closed_connection_is_nobodys(street: Street) -> None:
    street.start("closed", sandboxed=False)
    assert not street.called_by_agent()


def test_who_calls_from_elsewhere_is_not_known() -> None:
    for client in (("192.0.2.7", 40000), ("2001:db8::7", 40000), ("not an address", 1)):
        assert find_peer_socket(client, ("127.0.0.1", 8000)) is None


ASKS = """\
import http.client, sys
host, port, cookie, *paths = sys.argv[1:]
known = {"Cookie": cookie, "Origin": f"http://{host}:{port}"}
socket = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13"}
socket["Sec-WebSocket-Key"] = "AAAAAAAAAAAAAAAAAAAAAA=="
for path in paths:
    portal = http.client.HTTPConnection(host, int(port), timeout=20)
    portal.request("GET", path, headers={**known, **(socket if path.startswith("/ws/") else {})})
    print(portal.getresponse().status)
    portal.close()
"""


def test_the_portal_refuses_an_agent_with_a_persons_cookie(street: Street) -> None:
    """The portal, a login and a sandbox as they are: a page, the API, a socket."""
    copy_migrated(street.folder)
    portal = UpPortal(street.folder).start()
    try:
        host, port = portal.url.removeprefix("http://").split(":")
        cookie = f"sessionid={portal.session('admin')}"
        argv = [sys.executable, "-c", ASKS, host, port, cookie, "/me/", "/api/v1/me", "/ws/live/"]
        assert _said(argv) == ["200", "200", "101"]
        assert _from(street.folder, street.sandbox, argv) == ["403", "403", "403"]
        assert _from(street.folder.parent / "another portal", street.sandbox, argv) == ["403", "403", "403"]
    finally:
        portal.stop()


TRIES = """\
import http.client, sys
host, port, token = sys.argv[1:]
for number in range(8):
    portal = http.client.HTTPConnection(host, int(port), timeout=20)
    told = {"X-Forwarded-For": f"8.8.8.{number}", "X-Forwarded-Proto": "https", "Host": "herder.example"}
    if number == 0:
        portal.request("GET", "/api/v1/me", headers={**told, "Authorization": f"Bearer {token}"})
    else:
        form = f"csrfmiddlewaretoken={'a' * 32}&username=admin&password={number}"
        told |= {"Cookie": f"csrftoken={'a' * 32}", "Referer": "https://herder.example/login/"}
        told |= {"Content-Type": "application/x-www-form-urlencoded"}
        portal.request("POST", "/login/", form, told)
    print(portal.getresponse().status)
    portal.close()
"""
TOKEN = """\
from tasks_app.permissions import Principal
from tasks_app.services.accounts.tokens import make_token
admin = Principal.unrestricted(User.objects.get(username="admin"))
result = make_token("t", list(Scope), by=admin).secret
"""
ADDRESSES = (
    "result = sorted(AuditEntry.objects.filter(action='login_failed').values_list('ip_address', flat=True))"
)


def test_behind_https_no_agent_passes_for_somebody_elsewhere(street: Street) -> None:
    """Loopback is where the proxy is, so its headers are believed; but not when an agent writes them.

    A token does not work for it, it cannot try a password, and the audit log gets no false address.
    """
    copy_migrated(street.folder)
    portal = UpPortal(street.folder, CATHERDER_URL="https://herder.example").start()
    try:
        host, port = "127.0.0.1", portal.port
        argv = [sys.executable, "-c", TRIES, host, port, portal.rows(TOKEN)]
        for folder in (street.folder, street.folder.parent / "another portal"):
            assert _from(folder, street.sandbox, argv) == ["403"] * 8
        assert portal.rows(ADDRESSES) == []
        assert _said(argv) == ["200", *["200"] * 7]
        assert portal.rows(ADDRESSES) == [f"8.8.8.{number}" for number in range(1, 8)]
    finally:
        portal.stop()


def _from(folder: Path, sandbox: Sandbox, argv: Sequence[str]) -> list[str]:
    """What `argv` prints in a sandbox of the portal with this data directory."""
    work = folder / "tasks" / "1"
    work.mkdir(parents=True, exist_ok=True)
    command = sandbox.command(argv, workspace=work, home=work, env={})
    return _said(command.argv, command.env)


def _said(argv: Sequence[str], env: dict[str, str] | None = None) -> list[str]:
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.split()
