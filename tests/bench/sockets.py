"""What open pages cost one web process: `python -m tests.bench.sockets`.

A whole portal as `manage.py up` starts it, on PostgreSQL with Redis. Its browsers are sockets of this
process: members of one project with five each. Another process commits the changes, on the same clock.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path

from websockets.asyncio.client import ClientConnection, connect
from websockets.typing import Origin

from tests.bench import processes
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
    with tempfile.TemporaryDirectory() as folder, own_services() as services:
        portal = UpPortal(Path(folder) / "data", CATHERDER_CONNECTIONS_PER_ADDRESS="2000", **services).start()
        try:
            task, sessions = portal.rows(MAKE % -(-sockets // SOCKETS_PER_PERSON))
            return asyncio.run(_Open(portal, task, sessions).measure(sockets, changes))
        finally:
            portal.stop()


class _Open:
    """The open sockets of a portal."""

    def __init__(self, portal: UpPortal, task: int, sessions: list[str]) -> None:
        assert portal.process
        self._portal = portal
        self._task = task
        self._sessions = sessions
        self._server = processes.child(portal.process.pid, "uvicorn")
        self._stack = AsyncExitStack()
        self._sockets: list[ClientConnection] = []

    async def measure(self, wanted: int, changes: int) -> list[Metric]:
        async with self._stack:
            await self._add(10)  # What is loaded only once is not the cost of a socket.
            no_more = await self._at_rest("CPU time of the web server at rest, 10 sockets")
            memory = Metric("memory of the web server, per socket", "kB")
            opening = Metric("opening a socket, CPU time of the web server", "ms")
            while (missing := wanted - len(self._sockets)) > 0:
                await self._add_measured(min(98, missing), memory, opening)
            total = Metric(f"memory of the web server, {wanted} sockets", "MB")
            total.samples = [processes.own_memory(self._server) / 1000]
            at_rest = await self._at_rest(f"CPU time of the web server at rest, {wanted} sockets")
            return [memory, total, opening, no_more, at_rest, *await self._told(changes)]

    async def _add(self, count: int) -> None:
        for _ in range(count):
            session = self._sessions[len(self._sockets) // SOCKETS_PER_PERSON]
            connection = connect(
                f"{self._portal.url.replace('http', 'ws', 1)}/ws/live/",
                origin=Origin(self._portal.url),
                additional_headers={"Cookie": f"sessionid={session}"},
                compression=None,
                ping_interval=None,
            )
            self._sockets.append(await self._stack.enter_async_context(connection))
            assert "hello" in json.loads(await self._sockets[-1].recv())

    async def _add_measured(self, count: int, memory: Metric, opening: Metric) -> None:
        kilobytes, seconds = processes.own_memory(self._server), processes.cpu_seconds(self._server)
        await self._add(count)
        opening.samples.append((processes.cpu_seconds(self._server) - seconds) / count * 1000)
        memory.samples.append((processes.own_memory(self._server) - kilobytes) / count)

    async def _at_rest(self, name: str) -> Metric:
        metric = Metric(name, "ms/s")
        for _ in range(2):
            before = processes.cpu_seconds(self._server)
            await asyncio.sleep(REST)
            metric.samples.append((processes.cpu_seconds(self._server) - before) / REST * 1000)
        return metric

    async def _told(self, changes: int) -> list[Metric]:
        count = len(self._sockets)
        first = Metric(f"change committed → first of {count} browsers is told", "ms")
        last = Metric(f"change committed → last of {count} browsers is told", "ms")
        cpu = Metric(f"a change told to {count} browsers: CPU time of the web server", "ms")
        for _ in range(changes):
            await asyncio.sleep(BETWEEN)
            before = processes.cpu_seconds(self._server)
            arrivals = [asyncio.create_task(_arrival(socket)) for socket in self._sockets]
            _, committed = await asyncio.to_thread(self._portal.rows, CHANGE % self._task)
            moments = sorted(await asyncio.gather(*arrivals))
            cpu.samples.append((processes.cpu_seconds(self._server) - before) * 1000)
            first.samples.append((moments[0] - committed) * 1000)
            last.samples.append((moments[-1] - committed) * 1000)
        return [first, last, cpu]


async def _arrival(socket: ClientConnection) -> float:
    async with asyncio.timeout(120):
        await socket.recv()
    return time.time()


if __name__ == "__main__":
    main()
