"""Start the agent's program with sockets in place of pipes for its input and output.

Processes beside the CLI in its sandbox run as the same user, and may open a pipe that it holds by its name in
/proc: they could write messages into the agent's output, with any numbers they like, or read and write what
the worker tells the CLI. A socket cannot be opened by such a name (ENXIO).

What stays possible is to take over the CLI as a debugger does (ptrace), where the kernel allows that among
processes of one user (`kernel.yama.ptrace_scope=0`, or no Yama). `stream.py` bounds the numbers it reads.
"""

from __future__ import annotations

import socket
from subprocess import PIPE
from typing import Any

import anyio
from anyio.abc import Process, SocketStream
from claude_agent_sdk._internal.transport import subprocess_cli

_NAMES = ("stdin", "stdout", "stderr")


class ProcessOnSockets:
    """A process as `anyio.open_process` returns it, whose three streams are sockets."""

    def __init__(self, process: Process, streams: dict[str, SocketStream]) -> None:
        self._wrapped = process
        self.stdin, self.stdout, self.stderr = (streams.get(name) for name in _NAMES)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._wrapped, name)

    async def close_streams(self) -> None:
        """Close what nobody reads any more: a killed process's last output, for one."""
        for stream in (self.stdin, self.stdout, self.stderr):
            if stream is not None:
                await stream.aclose()


async def open_process(command: Any, **options: Any) -> ProcessOnSockets:
    """Do what `anyio.open_process` does; where it is asked for a pipe the child gets a socket."""
    piped = [name for name in _NAMES if options.get(name) == PIPE]
    pairs = {name: socket.socketpair() for name in piped}
    theirs = {name: pair[1] for name, pair in pairs.items()}
    try:
        process = await anyio.open_process(command, **{**options, **theirs})
    except BaseException:
        for ours, _ in pairs.values():
            ours.close()
        raise
    finally:
        for other in theirs.values():
            other.close()
    return ProcessOnSockets(process, {name: await _stream(pairs[name][0]) for name in piped})


async def _stream(ours: socket.socket) -> SocketStream:
    return await SocketStream.from_socket(ours)


def use_in_sdk() -> None:
    """Make the SDK start its processes this way. It has no option for that, and is pinned to one version."""
    setattr(subprocess_cli, "anyio", _AnyioOnSockets())  # noqa: B010


class _AnyioOnSockets:
    """The module `anyio` with our `open_process`, as the name `anyio` in one module of the SDK."""

    open_process = staticmethod(open_process)

    def __getattr__(self, name: str) -> Any:
        return getattr(anyio, name)
