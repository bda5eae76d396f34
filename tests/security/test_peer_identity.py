"""R4, W1: an agent cannot act as a user, whatever login it has and however it hides its socket."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from tasks_app.sandbox import Sandbox, peer_identity
from tasks_app.sandbox.peer_identity import (
    PeerSocket,
    find_peer_socket,
    is_own_address,
    maybe_sandboxed,
    sandbox_is_active,
)
from tests import machine
from tests.databases import copy_migrated
from tests.integration.test_reverse_proxies import PROXIES, free_port
from tests.portal import UpPortal
from tests.waiting import wait_until

pytestmark = pytest.mark.bubblewrap

#: A client that sends its request and at once hides its socket. `hold` says for how long, `answer` ends that
#: and returns the status of the response. Arguments: how to hide, port, request, seconds.
HIDES = r"""
import ctypes, os, socket, sys, threading, time

way, port, request, seconds = sys.argv[1], int(sys.argv[2]), sys.argv[3].encode(), float(sys.argv[4])
kernel = ctypes.CDLL(None, use_errno=True)
CLONE_FILES, PR_SET_DUMPABLE, SYS_EXIT = 0x400, 4, 60

def call(number, *arguments):
    result = kernel.syscall(number, *arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), way)
    return result

def begin():
    mine = socket.create_connection(("127.0.0.1", port))
    mine.sendall(request)
    return mine

def end(mine):
    mine.settimeout(20)
    print(mine.recv(65536).split(b" ")[1].decode() if request else "", flush=True)

def plain():
    mine = begin()
    time.sleep(seconds)
    end(mine)

def not_dumpable():
    kernel.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    plain()

def closed():
    begin().close()
    time.sleep(seconds)

def in_flight():  # sent over a Unix socket, and not yet received: in nobody's table
    here, there = socket.socketpair()
    mine = begin()
    socket.send_fds(here, [b"x"], [mine.fileno()])
    mine.close()
    time.sleep(seconds)
    _, found, _, _ = socket.recv_fds(there, 1, 1)
    end(socket.socket(fileno=found[0]))

def in_flight_twice():  # in a Unix socket that is itself in flight
    here, there = socket.socketpair()
    further, last = socket.socketpair()
    mine = begin()
    socket.send_fds(here, [b"x"], [mine.fileno()])
    mine.close()
    socket.send_fds(further, [b"x"], [here.fileno(), there.fileno()])
    here.close(), there.close()
    time.sleep(seconds)
    _, found, _, _ = socket.recv_fds(last, 1, 2)
    _, found, _, _ = socket.recv_fds(socket.socket(fileno=found[1]), 1, 1)
    end(socket.socket(fileno=found[0]))

def thread():  # with a descriptor table of its own
    def run():
        call(272, CLONE_FILES)  # unshare
        plain()
    one = threading.Thread(target=run)
    one.start()
    one.join()

def dead_main_thread():  # whose table is gone
    def run():
        time.sleep(0.2)
        plain()
        os._exit(0)
    threading.Thread(target=run).start()
    kernel.syscall(SYS_EXIT, 0)

def orphan():  # it inherits the socket, and its parent and grandparent end
    mine = begin()
    if os.fork():
        mine.close()
        time.sleep(seconds + 0.3)
        os._exit(0)
    os.setsid()
    if os.fork():
        os._exit(0)
    time.sleep(seconds)
    end(mine)

def io_uring():  # among its registered files, and in no table of descriptors
    parameters = (ctypes.c_uint32 * 30)()
    ring = call(425, 4, parameters)  # io_uring_setup
    mine = begin()
    call(427, ring, 2, (ctypes.c_int * 1)(mine.fileno()), 1)  # io_uring_register
    mine.close()
    time.sleep(seconds)

def killed():  # the connection outlives whoever sent the request
    mine = begin()
    if os.fork() == 0:
        time.sleep(seconds)
        end(mine)
        os._exit(0)
    os.kill(os.getpid(), 9)

globals()[way]()
"""
WAYS = (
    "plain",
    "not_dumpable",
    "closed",
    "in_flight",
    "in_flight_twice",
    "thread",
    "dead_main_thread",
    "orphan",
    "io_uring",
)


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

    def start(self, way: str = "plain", *, sandboxed: bool = True, seconds: int = 60) -> None:
        argv = [sys.executable, "-c", HIDES, way, str(self.port), "", str(seconds)]
        environment = None
        if sandboxed:
            work = self.folder / "tasks" / "1"
            work.mkdir(parents=True, exist_ok=True)
            command = self.sandbox.command(argv, workspace=work, home=work, env={})
            argv, environment = list(command.argv), command.env
        self.running.append(subprocess.Popen(argv, env=environment))

    def peer(self) -> PeerSocket:
        here, client = self.server.accept()
        with here:
            time.sleep(0.3)  # until it has hidden it
            peer = find_peer_socket(client, here.getsockname())
            assert peer
            return peer

    def refuses(self, *, allow_others: bool = False) -> bool:
        return bool(maybe_sandboxed([self.peer()], folder=self.folder, allow_others=allow_others))

    def of_another_portal(self) -> Street:
        return Street(self.folder.parent / "other", self.sandbox, self.server, self.running)

    def end_agents(self) -> None:
        for process in self.running:
            process.kill()
            process.wait()


@pytest.fixture
def street(tmp_path: Path) -> Iterator[Street]:
    folder = tmp_path / "data"
    folder.mkdir()
    sandbox = machine.sandbox(folder)
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(20)
        made = Street(folder, sandbox, server, [])
        yield made
        made.end_agents()


@pytest.mark.parametrize("way", WAYS)
def test_no_way_of_hiding_a_socket_lets_an_agent_in(street: Street, way: str) -> None:
    """Neither one of this portal nor of another one; and who is outside is let in meanwhile."""
    street.start(way)
    peer = street.peer()
    for allow_others in (False, True):
        assert maybe_sandboxed([peer], folder=street.folder, allow_others=allow_others) == {peer}
    street.of_another_portal().start(way)
    assert street.refuses()
    street.start("plain", sandboxed=False)
    assert not street.refuses()
    street.start("plain", sandboxed=False)
    assert not street.refuses(allow_others=True)


def test_an_agent_of_another_portal_is_let_in_where_the_setting_says_so(street: Street) -> None:
    street.start()
    assert street.refuses(allow_others=True)
    street.of_another_portal().start()
    assert not street.refuses(allow_others=True)


def test_what_hides_outside_is_refused_only_while_a_sandbox_shares_its_cgroup(
    street: Street, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Like an SSH tunnel of the portal's user, whose files only root may look at."""
    monkeypatch.setattr(peer_identity, "_open_files", lambda *_: [])
    street.start(sandboxed=False)
    peer = street.peer()
    refused = partial(maybe_sandboxed, folder=street.folder, allow_others=True)
    assert not refused([peer])
    street.start()
    street.peer()
    assert refused([peer]) == {peer}
    cgroups = {street.running[0].pid: peer_identity._Cgroup(peer.cgroup, Path("/outside"))}
    agents = peer_identity._Cgroup(77, Path("/agents"))
    monkeypatch.setattr(peer_identity, "_cgroup_of", lambda pid: cgroups.get(pid, agents))
    assert not refused([peer])
    other_user = PeerSocket(peer.user_id + 33, peer.inode, peer.cookie, 77)
    assert not refused([other_user]), "a sandboxed process cannot make it"


@pytest.fixture
def cgroups(street: Street, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cgroup with three others in it. No process is looked at, even if the same inode is open outside."""
    folder = peer_identity._cgroup_root() / f"cat-herder-test-{os.getpid()}"
    inner = [folder / "outside", folder / "agents/inner", folder / "agents"]
    try:
        for one in inner:
            one.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        pytest.skip(f"no cgroup can be made here: {error}")
    monkeypatch.setattr(peer_identity, "_held_by", lambda *_: set())
    yield folder
    enter(folder.parent, os.getpid())
    street.end_agents()
    for one in (*inner, folder):
        wait_until(partial(is_removed, one))


def is_removed(cgroup: Path) -> bool:
    """Remove it, unless processes in it have still to end."""
    with suppress(OSError):
        cgroup.rmdir()
    return not cgroup.exists()


def enter(cgroup: Path, *pids: int) -> None:
    for pid in pids:
        (cgroup / "cgroup.procs").write_text(str(pid))


def below(pid: int) -> list[int]:
    """Return what the process has started: what a sandbox holds, if it is bubblewrap."""
    found = [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return found + [one for child in found for one in below(child)]


def test_the_kernel_says_in_which_cgroup_an_agent_made_its_socket(street: Street, cgroups: Path) -> None:
    enter(cgroups / "agents", os.getpid())
    street.start("in_flight", seconds=60)
    agent = street.peer()
    enter(cgroups / "outside", os.getpid())
    street.start(sandboxed=False)
    outside = street.peer()
    assert [agent.cgroup, outside.cgroup] == [(cgroups / one).stat().st_ino for one in ("agents", "outside")]
    assert maybe_sandboxed([agent, outside], folder=street.folder, allow_others=True) == {agent}


@pytest.mark.parametrize("left", ["agents/inner", "agents"], ids=["back up", "down"])
def test_an_agent_that_moves_to_another_cgroup_below_its_own_stays_known(
    street: Street, cgroups: Path, left: str
) -> None:
    """As it can where the cgroup is its user's: it makes a socket, moves away, and may remove the cgroup."""
    enter(cgroups / left, os.getpid())
    street.start("in_flight", seconds=60)
    agent = street.peer()
    enter(cgroups / "outside", os.getpid())
    bubblewrap = street.running[-1].pid
    if left == "agents":
        enter(cgroups / "agents/inner", *below(bubblewrap))  # it does not see bubblewrap outside of it
    else:
        enter(cgroups / "agents", bubblewrap, *below(bubblewrap))
    refused = partial(maybe_sandboxed, [agent], folder=street.folder, allow_others=True)
    assert refused() == {agent}
    if left != "agents":
        (cgroups / left).rmdir()
        assert refused() == {agent}


def test_a_sandbox_that_ended_has_sent_nothing(street: Street) -> None:
    """Its request is there, its socket closed, and no sandbox lives."""
    street.start("killed", seconds=0)
    peer = street.peer()
    street.end_agents()
    assert not sandbox_is_active(folder=street.folder, allow_others=True)
    assert peer.inode == 0
    assert maybe_sandboxed([peer], folder=street.folder, allow_others=True) == {peer}


def test_a_sandbox_without_our_network_refuses_nobody(street: Street) -> None:
    offline = Street(street.folder, street.sandbox.without_network(), street.server, street.running)
    offline.start()
    time.sleep(0.5)
    assert not sandbox_is_active(folder=street.folder, allow_others=True)
    street.start()
    street.peer()
    assert sandbox_is_active(folder=street.folder, allow_others=True)


def test_who_calls_from_elsewhere_is_not_known() -> None:
    for client in (("192.0.2.7", 40000), ("2001:db8::7", 40000), ("not an address", 1)):
        assert find_peer_socket(client, ("127.0.0.1", 8000)) is None
        assert not is_own_address(client[0])
    assert is_own_address("127.0.0.1") and is_own_address("127.7.7.7")


OWN_ADDRESSES = """\
import subprocess
from pathlib import Path
from tasks_app.sandbox.peer_identity import is_own_address
for words in ("link set lo up", "address add 198.51.100.1/24 dev lo", "address add 198.51.100.2/24 dev lo"):
    subprocess.run(["ip", *words.split()], check=True)
for version in ("ipv4", "ipv6"):
    Path(f"/proc/sys/net/{version}/ip_nonlocal_bind").write_text("1")
ours = ["127.0.0.1", "127.7.7.7", "::1", "::ffff:127.0.0.1", "198.51.100.1", "198.51.100.2"]
others = ["203.0.113.3", "192.0.2.7", "2001:db8::7", "fe80::7%lo", "fe80::7%1", "fe80::7%none", "none"]
print(*(one for one in ours + others if is_own_address(one) != (one in ours)))
"""


def test_what_sockets_may_be_bound_to_is_not_what_the_machine_has() -> None:
    """Hosts with keepalived or HAProxy set `ip_nonlocal_bind`: nobody is refused for that."""
    network = ["unshare", "--user", "--map-root-user", "--net"]
    if subprocess.run([*network, "ip", "link"], capture_output=True, check=False).returncode:
        pytest.skip("no network namespace can be made here, or there is no `ip`")
    program = [sys.executable, "-c", OWN_ADDRESSES]
    done = subprocess.run([*network, *program], capture_output=True, text=True, check=False)
    assert done.stdout == "\n", done.stderr


#: As in a request of the agent itself.
AGENT_HEADERS = "X-Forwarded-For: 8.8.8.8\r\nX-Forwarded-Proto: https\r\n"
TOKEN = """\
import secrets
name = secrets.token_hex(8)
from tasks_app.permissions import Principal
from tasks_app.services.accounts import make_token
admin = Principal.unrestricted(User.objects.get(username="admin"))
result = make_token(name, list(Scope), by=admin).secret
"""
ADDRESSES = (
    "result = sorted(AuditEntry.objects.filter(action='login_failed').values_list('ip_address', flat=True))"
)


@dataclass
class Attacked:
    """A portal, and what somebody sends to it or to the proxy in front of it."""

    portal: UpPortal
    port: int
    host: str

    def requests(self) -> dict[str, tuple[str, str]]:
        """Return requests by the login that they show, each with the status that a person gets."""
        cookie = f"Cookie: __Host-sessionid={self.portal.session('admin')}\r\n"
        token = f"Authorization: Bearer {self.portal.rows(TOKEN)}\r\n"
        upgrade = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        upgrade += "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
        upgrade += f"Origin: {self.portal.variables['CATHERDER_URL']}\r\n"
        return {
            "cookie": (self.request("GET", "/me/", cookie), "200"),
            "socket": (self.request("GET", "/ws/live/", cookie + upgrade), "101"),
            "token": (self.request("GET", "/api/v1/me", token), "200"),
            "mcp": (self.mcp(token), "200"),
            "none": (self.request("GET", "/login/", ""), "200"),
            "password": (self.password(), "200"),
        }

    def request(self, method: str, path: str, headers: str, body: str = "") -> str:
        return f"{method} {path} HTTP/1.1\r\nHost: {self.host}\r\n{AGENT_HEADERS}{headers}\r\n{body}"

    def mcp(self, token: str) -> str:
        body = '{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "questions"}}'
        headers = f"{token}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        headers += "Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2025-11-25\r\n"
        return self.request("POST", "/mcp", headers, body)

    def password(self) -> str:
        form = f"csrfmiddlewaretoken={'a' * 32}&username=admin&password=wrong"
        headers = f"Cookie: __Host-csrftoken={'a' * 32}\r\nReferer: https://{self.host}/login/\r\n"
        headers += f"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {len(form)}\r\n"
        return self.request("POST", "/login/", headers, form)

    def asked(self, request: str, way: str = "plain", *, sandbox: Sandbox | None = None) -> str:
        """Send it, in a sandbox of the portal if one is given, and return the status of the response."""
        argv: Sequence[str] = [sys.executable, "-c", HIDES, way, str(self.port), request, "0.5"]
        environment = None
        if sandbox is not None:
            work = self.portal.data_dir / "tasks" / "1"
            work.mkdir(parents=True, exist_ok=True)
            command = sandbox.command(argv, workspace=work, home=work, env={})
            argv, environment = command.argv, command.env
        done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False, timeout=60)
        assert not done.stderr
        return done.stdout.strip()


@pytest.fixture(scope="module")
def portal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UpPortal]:
    """A portal behind https: it believes what a proxy on this machine says of its clients."""
    folder = tmp_path_factory.mktemp("portal") / "data"
    folder.mkdir()
    copy_migrated(folder)
    url = "https://herder.example"
    made = UpPortal(folder, CATHERDER_URL=url, CATHERDER_LOCAL_SANDBOXES="allow").start()
    yield made
    made.stop()


def test_the_portal_refuses_agents_with_every_login_and_every_way_of_hiding(portal: UpPortal) -> None:
    """A page, a socket, the API and the login form; and the audit log gets no invented address."""
    attacked = Attacked(portal, int(portal.port), "herder.example")
    sandbox = machine.sandbox(portal.data_dir)
    requests = attacked.requests()
    ways = [way for way in WAYS if way not in ("closed", "io_uring")]  # these get no response
    got = {
        (way, login): attacked.asked(request, way, sandbox=sandbox)
        for way in ways
        for login, (request, _) in requests.items()
    }
    assert {one: status for one, status in got.items() if status != "403"} == {}
    assert portal.rows(ADDRESSES) == []
    served = {login: attacked.asked(request) for login, (request, _) in requests.items()}
    assert served == {login: status for login, (_, status) in requests.items()}
    assert portal.rows(ADDRESSES) == ["8.8.8.8"]


def test_a_request_whose_sender_has_ended_or_hung_up_changes_nothing(portal: UpPortal) -> None:
    attacked = Attacked(portal, int(portal.port), "herder.example")
    before = portal.rows(ADDRESSES)
    sandbox = machine.sandbox(portal.data_dir)
    for way in ("closed", "killed", "io_uring"):
        attacked.asked(attacked.password(), way, sandbox=sandbox)
    assert portal.rows(ADDRESSES) == before


@pytest.mark.parametrize("name", [pytest.param(name, marks=getattr(pytest.mark, name)) for name in PROXIES])
def test_an_agent_gets_nothing_through_a_proxy_of_this_machine(
    portal: UpPortal, name: str, tmp_path: Path
) -> None:
    """The portal cannot see which program called the proxy, so while agents run it refuses all of them.

    People on other machines are served, and so is everybody without agents.
    """
    url = f"http://127.0.0.1:{free_port()}"
    with PROXIES[name](portal, url, tmp_path):
        attacked = Attacked(portal, int(url.rpartition(":")[2]), url.removeprefix("http://"))
        sandbox = machine.sandbox(portal.data_dir)
        requests = attacked.requests()
        del requests["password"]
        people = {login: attacked.asked(one) for login, (one, _) in requests.items()}
        assert people["cookie"] == people["token"] == people["none"] == "200"
        agents = {login: attacked.asked(one, sandbox=sandbox) for login, (one, _) in requests.items()}
        assert agents == dict.fromkeys(requests, "403")
        direct = Attacked(portal, int(portal.port), "herder.example")
        with running_agent(portal, sandbox):
            assert attacked.asked(requests["token"][0]) == "403"
            elsewhere = {login: direct.asked(one) for login, (one, _) in direct.requests().items()}
        assert elsewhere == {login: status for login, (_, status) in direct.requests().items()}


@contextmanager
def running_agent(portal: UpPortal, sandbox: Sandbox) -> Iterator[None]:
    work = portal.data_dir / "tasks" / "1"
    command = sandbox.command(["sleep", "60"], workspace=work, home=work, env={})
    with subprocess.Popen(command.argv, env=command.env) as process:
        time.sleep(0.5)
        yield
        process.kill()
