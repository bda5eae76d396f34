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

from tasks_app.jail import Jail, SandboxMode, callers, detect
from tasks_app.jail.callers import caller_of, is_guest
from tests.e2e.portal import UpPortal

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
    """A server, the data directory of a portal, and its guests."""

    folder: Path
    jail: Jail
    server: socket.socket
    running: list[subprocess.Popen[bytes]]

    @property
    def port(self) -> int:
        return int(self.server.getsockname()[1])

    def start(self, *how: str, jailed: bool = True) -> None:
        argv = [sys.executable, "-c", CALLS, str(self.port), *how]
        environment = None
        if jailed:
            work = self.folder / "tasks" / "1"
            work.mkdir(parents=True, exist_ok=True)
            command = self.jail.command(argv, workspace=work, home=work, env={})
            argv, environment = list(command.argv), command.env
        self.running.append(subprocess.Popen(argv, env=environment))

    def called_by_guest(self) -> bool:
        here, client = self.server.accept()
        with here:
            time.sleep(0.3)  # for who closes at once to have closed
            caller = caller_of(client, here.getsockname())
            assert caller
            return is_guest(caller, folder=self.folder)


@pytest.fixture
def street(tmp_path: Path) -> Iterator[Street]:
    folder = tmp_path / "data"
    folder.mkdir()
    jail = detect(SandboxMode.AUTO, hidden=[folder])
    if not jail.active:
        pytest.skip(jail.reason)
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(20)
        made = Street(folder, jail, server, [])
        yield made
        for process in made.running:
            process.kill()
            process.wait()


@pytest.mark.parametrize("how", [[], ["hidden"], ["closed"]], ids=["plain", "hidden", "closed"])
def test_a_guest_is_known(street: Street, how: list[str]) -> None:
    street.start(*how)
    assert street.called_by_guest()


def test_who_hides_is_one_unless_somebody_else_is_seen(
    street: Street, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root sees through what a guest hides. Here it does not, as any other user would not."""
    seen = callers._has
    guests = cache(lambda: callers._guests(street.folder))

    def hidden(pid: int, inode: int) -> bool | None:
        return None if pid in guests() else seen(pid, inode)

    monkeypatch.setattr(callers, "_has", hidden)
    street.start()
    assert street.called_by_guest()
    street.start(jailed=False)
    assert not street.called_by_guest()


def test_nobody_else_is_taken_for_a_guest(street: Street, tmp_path: Path) -> None:
    """Though there are guests; and not who is in a sandbox of somebody else, as browsers may be."""
    street.start("hidden")
    assert street.called_by_guest()
    street.start(jailed=False)
    assert not street.called_by_guest()
    other = Street(tmp_path / "other", street.jail, street.server, street.running)
    other.start()
    assert not street.called_by_guest()


def test_without_guests_a_closed_connection_is_nobodys(street: Street) -> None:
    street.start("closed", jailed=False)
    assert not street.called_by_guest()


def test_who_calls_from_elsewhere_is_not_known() -> None:
    for client in (("192.0.2.7", 40000), ("2001:db8::7", 40000), ("not an address", 1)):
        assert caller_of(client, ("127.0.0.1", 8000)) is None


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


def test_the_portal_refuses_a_guest_with_a_persons_cookie(street: Street) -> None:
    """The portal, a login and a jail as they are: a page, the API, a socket."""
    portal = UpPortal(street.folder).start()
    try:
        host, port = portal.url.removeprefix("http://").split(":")
        cookie = f"sessionid={portal.session('admin')}"
        argv = [sys.executable, "-c", ASKS, host, port, cookie, "/me/", "/api/v1/me", "/ws/live/"]
        work = street.folder / "tasks" / "1"
        work.mkdir(parents=True, exist_ok=True)
        guest = street.jail.command(argv, workspace=work, home=work, env={})
        assert _said(argv) == ["200", "200", "101"]
        assert _said(guest.argv, guest.env) == ["403", "403", "403"]
    finally:
        portal.stop()


def _said(argv: Sequence[str], env: dict[str, str] | None = None) -> list[str]:
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.split()
