"""What a halt and a resume need without the portal: the agent's program, a sandbox, a row, a message."""

from __future__ import annotations

import asyncio
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from websockets.asyncio.client import connect
from websockets.asyncio.server import ServerConnection, serve

from tasks_app.rehearsal.server import RehearsalServer
from tasks_app.sandbox import Sandbox, SandboxMode, detect
from tests.bench.bare_agent import BareAgent
from tests.bench.metrics import Metric
from tests.portal import UpPortal

#: Milliseconds of transactions that write one row each to the portal's own database.
COMMITS = """
import time
task = Task.objects.filter(project__name='bench').latest('pk')
def took():
    began = time.perf_counter()
    Change.objects.create(task=task, kind='phase')
    return (time.perf_counter() - began) * 1000
took()
result = [took() for _ in range(3)]
"""


def commits(portal: UpPortal) -> list[float]:
    """Return the milliseconds of transactions of one row each. The project `bench` must have a task."""
    took: list[float] = portal.rows(COMMITS)
    return took


class Floors:
    """Measures each floor once a call of `measure`, so that it takes turns with what it is the floor of."""

    def __init__(self, folder: Path, repository: Path, portal: UpPortal) -> None:
        self._repository = repository
        self._portal = portal
        self._server = RehearsalServer()
        self._server.start()
        self._agent = BareAgent(folder / "bare", self._server, repository)
        self._sandbox: Sandbox = detect(SandboxMode.AUTO, hidden=[])
        self.started = Metric("floor: the bare agent's start → its first message", "ms")
        self.halted = Metric("floor: the bare agent's tool call → it has exited, deferred", "ms")
        self.resumed = Metric("floor: the bare agent resumed → answer is the tool's result", "ms")
        self.sandbox = Metric("floor: bubblewrap with `true`", "ms")
        self.status = Metric("floor: git status of the same repository", "ms")
        self.message = Metric("floor: one message over a web socket", "ms")
        self.commit = Metric("floor: one row in one transaction", "ms")

    @property
    def all(self) -> list[Metric]:
        return [self.started, self.halted, self.resumed, self.sandbox, self.status, self.message, self.commit]

    def measure(self) -> None:
        halt = self._agent.halt_and_resume()
        self.started.samples.append(halt.started)
        self.halted.samples.append(halt.call_to_exit)
        self.resumed.samples.append(halt.resumed)
        self.status.samples.append(_took(["git", "-C", str(self._repository), "status", "--porcelain"]))
        if self._sandbox.active:
            with tempfile.TemporaryDirectory() as workspace:
                shown = ["bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
                shown += ["--bind", workspace, workspace, "--unshare-pid", "true"]
                self.sandbox.samples.append(_took(shown))
        with ThreadPoolExecutor(1) as thread:  # in this one, the browser's event loop runs
            self.message.samples.append(thread.submit(lambda: asyncio.run(_message())).result())
        self.commit.samples += commits(self._portal)

    def stop(self) -> None:
        self._server.stop()


def _took(command: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return (time.perf_counter() - began) * 1000


async def _message() -> float:
    """Return the milliseconds of one message from a server to a client that is connected already."""
    ready, moments = asyncio.Event(), []

    async def send(connection: ServerConnection) -> None:
        await ready.wait()
        moments.append(time.perf_counter())
        await connection.send('{"task": 1}')

    async with serve(send, "127.0.0.1", 0) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        async with connect(f"ws://127.0.0.1:{port}") as client:
            await asyncio.sleep(0.01)
            ready.set()
            await client.recv()
            moments.append(time.perf_counter())
    return (moments[1] - moments[0]) * 1000
