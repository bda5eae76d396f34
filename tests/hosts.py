"""Hosts of a test's own on this machine: each has a network address, a host name, processes and a disk.

A host is a set of namespaces (network, UTS, PID, mount). Its data directory lies over that of the portal, at
the same path. Bridge and cables (veth) are the kernel's, so what is cut off loses its packets, and no
connection ends. PostgreSQL, Redis, the portal and the model listen on loopback addresses of the machine; this
module passes connections on to them, from an address each in the hosts' network.

For tests with the mark `hosts`.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from tasks_app.agent.leftover_processes import WORKSPACE_VARIABLE
from tests.forkserver import PATIENCE, REPOSITORY

_CLONE_NEWNET = 0x40000000
_SUBNET = "10.77.0"
#: No host has it: what is sent there is lost.
_NOBODY = "02:00:00:00:00:01"
#: Without an address of its own a bridge takes the lowest of its cables', and another one once that host is
#: destroyed. All other hosts then send to an address that is gone, for up to 50 seconds.
_BRIDGE = "02:00:00:00:00:02"
#: Reads from the test, and so ends with it; SIGCHLD is ignored, so that the kernel clears up orphans.
_FIRST_PROCESS = "trap '' CHLD; echo ready; exec cat"
_PIECE = 64 * 1024
_POSTGRES_PORT = 5432


class _Namespaces:
    """Namespaces that live as long as their first process, which ends with the test."""

    def __init__(self, *kinds: str) -> None:
        options = [f"--{kind}" for kind in kinds]
        if "pid" in kinds:
            options += ["--fork", "--kill-child=KILL", "--mount-proc"]
        self._kinds = kinds
        self._holder = subprocess.Popen(
            ["unshare", *options, "sh", "-c", _FIRST_PROCESS],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        assert self._holder.stdout and self._holder.stdout.readline() == b"ready\n", "no namespaces"
        self.pid = _child(self._holder.pid) if "pid" in kinds else self._holder.pid

    def command(self, *words: str) -> list[str]:
        return ["nsenter", f"--target={self.pid}", *(f"--{kind}" for kind in self._kinds), "--", *words]

    def run(self, *words: str) -> str:
        done = subprocess.run(self.command(*words), capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{' '.join(words)}: {done.stderr}"
        return done.stdout

    def end(self) -> None:
        """Kill the first process: with a PID namespace, the kernel kills all the others with it."""
        if self._holder.poll() is None:
            os.kill(self.pid, signal.SIGKILL)
            self._holder.communicate()


def _child(pid: int) -> int:
    """Return the only child of a process."""
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text())


class Network:
    """A network of hosts, and the services that they reach there, by name."""

    def __init__(self) -> None:
        self._cleanup = ExitStack()
        self.services: dict[str, str] = {}
        self._hosts: list[Host] = []
        self._used = 1

    def __enter__(self) -> Self:
        self.lan = _Namespaces("net")
        self._cleanup.callback(self.lan.end)
        self.lan.run("ip", "link", "add", "bridge", "address", _BRIDGE, "type", "bridge")
        self.lan.run("ip", "link", "set", "bridge", "up")
        self._passing_on = _PassingOn()
        self._cleanup.callback(self._passing_on.stop)
        self._cleanup.callback(self.destroy_hosts)
        return self

    def __exit__(self, *exc: object) -> None:
        self._cleanup.close()

    def offer(self, name: str, upstream: tuple[str, int]) -> str:
        """Let hosts reach a service under an address of its own; return that, with the port."""
        address = self._address()
        self.lan.run("ip", "address", "add", f"{address}/24", "dev", "bridge")
        listener = _listen_in(self.lan.pid, (address, upstream[1]))
        self._passing_on.add(listener, upstream)
        self.services[name] = address
        return f"{address}:{upstream[1]}"

    def offer_url(self, name: str, url: str) -> str:
        """Do as `offer`, for a service of this machine; return the URL under which hosts reach it."""
        parts = urlsplit(url)
        login, at, place = parts.netloc.rpartition("@")
        port = parts.port or int(place.partition(":")[2] or _POSTGRES_PORT)
        there = self.offer(name, (parts.hostname or "", port))
        return parts._replace(netloc=f"{login}{at}{there}").geturl()

    def host(self, name: str, disk: Path, data_dir: Path) -> Host:
        """Start a host whose data directory is the new folder `disk`."""
        host = Host(self, name, self._address(), disk, data_dir)
        self._hosts.append(host)
        return host

    def destroy_hosts(self) -> None:
        while self._hosts:
            self._hosts.pop().destroy()

    def _address(self) -> str:
        self._used += 1
        return f"{_SUBNET}.{self._used}"


class Host:
    """A host that runs one program at a time, usually a worker."""

    def __init__(self, network: Network, name: str, address: str, disk: Path, data_dir: Path) -> None:
        self.network, self.name, self.address, self.disk = network, name, address, disk
        disk.mkdir(mode=0o700)
        self.log = disk.with_name(f"{disk.name}.log")
        self._namespaces = _Namespaces("net", "uts", "mount", "pid")
        self._program: subprocess.Popen[bytes] | None = None
        run, cable = self._namespaces.run, f"to-{address.rpartition('.')[2]}"
        network.lan.run(
            "ip", "link", "add", cable, "type", "veth",
            "peer", "name", "eth0", "netns", str(self._namespaces.pid),
        )  # fmt: skip
        network.lan.run("ip", "link", "set", cable, "master", "bridge", "up")
        run("hostname", name)
        run("ip", "link", "set", "lo", "up")
        run("ip", "address", "add", f"{address}/24", "dev", "eth0")
        run("ip", "link", "set", "eth0", "up")
        run("mount", "--bind", str(disk), str(data_dir))

    def start(self, *arguments: str, env: Mapping[str, str], version: Path = REPOSITORY) -> None:
        """Start `python ARGUMENTS` in the folder of a version, with nothing of this process's environment."""
        with self.log.open("ab") as output:
            self._program = subprocess.Popen(
                self._namespaces.command("env", f"--chdir={version}", sys.executable, *arguments),
                env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
            )  # fmt: skip

    @property
    def pid(self) -> int:
        """The process id of the program, as this machine counts."""
        assert self._program
        return _child(self._program.pid)

    def python(self, code: str) -> str:
        """Run code on this host to its end and return what it printed."""
        return self._namespaces.run(sys.executable, "-c", code)

    def send_signal(self, number: int) -> None:
        """Send a signal to the program alone, and not to what it has started."""
        assert self._program
        program = self.pid
        self._program.send_signal(signal.SIGCONT)  # nsenter stops with its child
        os.kill(program, number)

    def end(self) -> int:
        """End the program in order; return its exit code."""
        assert self._program
        self.send_signal(signal.SIGTERM)
        code = self._program.wait(PATIENCE)
        self._program = None
        return code

    def kill(self) -> None:
        """Kill all processes of the host at once. Its disk stays."""
        if self._program:
            self._program.kill()  # nsenter, which would not collect its child while it is stopped
        self._namespaces.end()
        if self._program:
            self._program.wait(PATIENCE)
            self._program = None

    def destroy(self) -> None:
        """Do as `kill`, and remove the disk."""
        self.kill()
        shutil.rmtree(self.disk, ignore_errors=True)

    def cut_off(self, *services: str) -> None:
        """Lose every packet to these services from now on. No connection is closed."""
        for service in services:
            self._neighbour("replace", service, "lladdr", _NOBODY, "nud", "permanent")

    def reconnect(self, *services: str) -> None:
        for service in services:
            self._neighbour("del", service)

    def _neighbour(self, action: str, service: str, *words: str) -> None:
        address = self.network.services[service]
        self._namespaces.run("ip", "neighbour", action, address, *words, "dev", "eth0")

    def agents(self) -> list[int]:
        """Return the ids of the processes of agents on this host."""
        mine = _network_of(self._namespaces.pid)
        return [pid for pid in _marked() if _network_of(pid) == mine]


def _marked() -> list[int]:
    """Return the ids of all processes of agents, of any host."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if f"{WORKSPACE_VARIABLE}=".encode() in path.read_bytes():
                found.append(int(path.parent.name))
    return found


def _network_of(pid: int) -> str:
    with suppress(OSError):
        return str(Path(f"/proc/{pid}/ns/net").readlink())
    return ""


def _listen_in(pid: int, address: tuple[str, int]) -> socket.socket:
    """Return a listening socket in the network of a process. A socket stays in the network it was made in."""
    made: list[socket.socket] = []

    def enter_and_listen() -> None:
        with Path(f"/proc/{pid}/ns/net").open() as network:
            if ctypes.CDLL(None, use_errno=True).setns(network.fileno(), _CLONE_NEWNET) == 0:
                made.append(socket.create_server(address))

    thread = threading.Thread(target=enter_and_listen)  # only this thread is in that network
    thread.start()
    thread.join()
    assert made, "the network could not be entered"
    return made[0]


class _PassingOn:
    """Passes connections on, in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="passing-on", daemon=True)
        self._thread.start()
        self._servers: list[asyncio.Server] = []
        self._connections: set[asyncio.Task[None]] = set()

    def add(self, listener: socket.socket, upstream: tuple[str, int]) -> None:
        async def serve() -> None:
            server = await asyncio.start_server(
                lambda reader, writer: self._connected(reader, writer, upstream), sock=listener
            )
            self._servers.append(server)

        asyncio.run_coroutine_threadsafe(serve(), self._loop).result(PATIENCE)

    async def _connected(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, upstream: tuple[str, int]
    ) -> None:
        task = asyncio.current_task()
        assert task
        self._connections.add(task)
        back: asyncio.StreamWriter | None = None
        try:
            there, back = await asyncio.open_connection(*upstream)
            await asyncio.gather(_pump(reader, back), _pump(there, writer))
        except (OSError, asyncio.CancelledError):
            pass  # the service is away, or the test ends
        finally:
            for end in filter(None, (writer, back)):
                end.close()
            self._connections.discard(task)

    def stop(self) -> None:
        async def cancel() -> None:
            for server in self._servers:
                server.close()
            connections = list(self._connections)
            for connection in connections:
                connection.cancel()
            await asyncio.gather(*connections, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(cancel(), self._loop).result(PATIENCE)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while piece := await reader.read(_PIECE):
            writer.write(piece)
            await writer.drain()
        writer.write_eof()
