"""What open pages cost one web process: `python -m tests.bench.sockets`.

A whole portal as `cat-herder up` starts it, on PostgreSQL with Redis. Its browsers are sockets of this
process: members of one project with five each. Another process commits the changes, on the same clock.

The floor is a bare application behind the same web server program, with as many sockets. Both rest in the
same minute; they open sockets and send to all of them in turns.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from websockets.asyncio.client import ClientConnection, connect
from websockets.typing import Origin

from tests.bench import processes
from tests.bench.floors.bare_server import BareServer
from tests.bench.metrics import Metric, show
from tests.bench.services import own_services
from tests.portal import UpPortal

SOCKETS_PER_PERSON = 5
#: Seconds between two changes. Each socket looks again at what its user may see if that is a second old.
BETWEEN = 3.0
#: Seconds of rest. In a minute, each socket looks once at its user's session.
REST = 60.0
MAKE = """
from importlib import import_module
from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY
project = Project.objects.create(name="bench", source="/nowhere", branch="main")
task = Task.objects.create(project=project, slug="bench", title="Bench", pipeline="default")
sessions = []
for number in range(%d):
    user = User.objects.create(username=f"reader-{number}", password="!")
    Membership.objects.create(user=user, project=project)
    session = import_module(settings.SESSION_ENGINE).SessionStore()
    session[SESSION_KEY] = str(user.pk)
    session[BACKEND_SESSION_KEY] = settings.AUTHENTICATION_BACKENDS[0]
    session[HASH_SESSION_KEY] = user.get_session_auth_hash()
    session.create()
    sessions.append(session.session_key)
result = [task.pk, sessions]
"""
CHANGE = """
import time
change = Change.objects.create(task_id=%d, kind="phase").pk
result = [change, time.time()]
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sockets", type=int, default=500, help="how many are open at last (500)")
    parser.add_argument("--changes", type=int, default=10, help="changes that all of them are told of (10)")
    chosen = parser.parse_args()
    show(measure(chosen.sockets, chosen.changes))


def measure(sockets: int, changes: int) -> list[Metric]:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # this process has the sockets of both servers
    with tempfile.TemporaryDirectory() as folder, own_services() as services:
        portal = UpPortal(Path(folder) / "data", CATHERDER_CONNECTIONS_PER_ADDRESS="2000", **services).start()
        try:
            task, sessions = portal.rows(MAKE % -(-sockets // SOCKETS_PER_PERSON))
            with BareServer() as bare:
                return asyncio.run(_Measuring(portal, task, sessions, bare).measure(sockets, changes))
        finally:
            portal.stop()


class _Sockets:
    """Open sockets of one web server."""

    def __init__(self, server: int, open_one: Callable[[int], connect], greeting: str) -> None:
        """`open_one` gets the socket's number; `greeting` is in its first message."""
        self.server = server
        self.open: list[ClientConnection] = []
        self._open_one = open_one
        self._greeting = greeting

    async def add(self, count: int, stack: AsyncExitStack) -> None:
        for _ in range(count):
            self.open.append(await stack.enter_async_context(self._open_one(len(self.open))))
            assert self._greeting in str(await self.open[-1].recv())

    async def add_measured(self, count: int, stack: AsyncExitStack, memory: Metric, opening: Metric) -> None:
        kilobytes, seconds = processes.own_memory(self.server), processes.cpu_seconds(self.server)
        await self.add(count, stack)
        opening.samples.append((processes.cpu_seconds(self.server) - seconds) / count * 1000)
        memory.samples.append((processes.own_memory(self.server) - kilobytes) / count)

    async def tell(self, change: Callable[[], Awaitable[float]], metrics: Sequence[Metric]) -> None:
        """Measure the first and the last socket that is told of a change, and the CPU time.

        `change` makes it and returns when.
        """
        first, last, cpu = metrics
        before = processes.cpu_seconds(self.server)
        arrivals = [asyncio.create_task(_arrival(socket)) for socket in self.open]
        changed = await change()
        moments = sorted(await asyncio.gather(*arrivals))
        cpu.samples.append((processes.cpu_seconds(self.server) - before) * 1000)
        first.samples.append((moments[0] - changed) * 1000)
        last.samples.append((moments[-1] - changed) * 1000)


class _Measuring:
    """The open sockets of a portal, and as many of a bare server."""

    def __init__(self, portal: UpPortal, task: int, sessions: list[str], bare: BareServer) -> None:
        assert portal.process
        self._portal = portal
        self._task = task
        self._stack = AsyncExitStack()

        def open_one(number: int) -> connect:
            return _connect(portal.url, "/ws/live/", sessions[number // SOCKETS_PER_PERSON])

        web_server = processes.child(portal.process.pid, "uvicorn")
        self._sockets = _Sockets(web_server, open_one, '"hello"')
        self._bare = _Sockets(bare.pid, lambda number: _connect(f"http://{bare.address}", "/"), "hello")

    async def measure(self, wanted: int, changes: int) -> list[Metric]:
        both = (self._sockets, self._bare)
        async with self._stack:
            for sockets in both:  # What is loaded only once is not the cost of a socket.
                await sockets.add(10, self._stack)
            no_more = await self._at_rest("CPU time of the web server at rest, 10 sockets")
            memory = _with_floor("memory of the web server, per socket", "kB")
            opening = _with_floor("opening a socket, CPU time of the web server", "ms")
            while (missing := wanted - len(self._sockets.open)) > 0:
                for sockets, size, time_used in zip(both, memory, opening, strict=True):
                    await sockets.add_measured(min(98, missing), self._stack, size, time_used)
            total = _with_floor(f"memory of the web server, {wanted} sockets", "MB")
            for sockets, metric in zip(both, total, strict=True):
                metric.samples = [processes.own_memory(sockets.server) / 1000]
            at_rest = await self._at_rest(f"CPU time of the web server at rest, {wanted} sockets")
            return [*memory, *total, *opening, *no_more, *at_rest, *await self._told(changes)]

    async def _at_rest(self, name: str) -> list[Metric]:
        """Measure both servers in the same time."""
        metrics = _with_floor(name, "ms/s")
        servers = (self._sockets.server, self._bare.server)
        for _ in range(2):
            before = [processes.cpu_seconds(server) for server in servers]
            await asyncio.sleep(REST)
            for server, metric, seconds in zip(servers, metrics, before, strict=True):
                metric.samples.append((processes.cpu_seconds(server) - seconds) / REST * 1000)
        return metrics

    async def _told(self, changes: int) -> list[Metric]:
        count = len(self._sockets.open)
        metrics = [
            _with_floor(f"change committed → first of {count} browsers is told", "ms"),
            _with_floor(f"change committed → last of {count} browsers is told", "ms"),
            _with_floor(f"a change told to {count} browsers: CPU time of the web server", "ms"),
        ]
        told, floors = zip(*metrics, strict=True)
        for _ in range(changes):
            await asyncio.sleep(BETWEEN)
            await self._sockets.tell(self._commit, told)
            await self._bare.tell(self._send, floors)
        return [metric for pair in metrics for metric in pair]

    async def _commit(self) -> float:
        _, committed = await asyncio.to_thread(self._portal.rows, CHANGE % self._task)
        return float(committed)

    async def _send(self) -> float:
        """Let the bare server send what one of its sockets says to all of them."""
        sent = time.time()
        await self._bare.open[0].send('{"task": 1}')
        return sent


def _with_floor(name: str, unit: str) -> list[Metric]:
    """Return a metric, and its floor: the same of the bare server, which sends without a commit before."""
    floor = Metric(f"  floor: {name}", unit)
    for words in (
        ("the web server", "a bare server"),
        ("change committed", "message sent"),
        ("a change", "a message"),
    ):
        floor.name = floor.name.replace(*words)
    return [Metric(name, unit, floor=[floor]), floor]


def _connect(url: str, path: str, session: str = "") -> connect:
    return connect(
        f"{url.replace('http', 'ws', 1)}{path}",
        origin=Origin(url),
        additional_headers={"Cookie": f"sessionid={session}"},
        compression=None,
        ping_interval=None,
    )


async def _arrival(socket: ClientConnection) -> float:
    async with asyncio.timeout(120):
        await socket.recv()
    return time.time()


if __name__ == "__main__":
    main()
