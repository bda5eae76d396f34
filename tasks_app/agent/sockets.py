"""Starting processes with sockets instead of pipes for their input and output, in place of the SDK.

Other processes in the CLI's sandbox run as the same user, and can open the CLI's pipes by their names in
/proc. They could write messages with any numbers into the agent's output, or read and write what the worker
sends to the CLI. A socket cannot be opened by such a name (ENXIO).

They can still take over the CLI like a debugger (ptrace) if the kernel allows that between processes of one
user (`kernel.yama.ptrace_scope=0`, or no Yama). `stream.py` limits the numbers that it reads.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from subprocess import PIPE
from typing import Any

import anyio
from anyio.abc import Process, SocketStream
from claude_agent_sdk._internal.transport import subprocess_cli

from tasks_app.agent.launch import Launch, NoProgram, locked

_launch: ContextVar[Launch] = ContextVar("launch")
_NAMES = ("stdin", "stdout", "stderr")


class ProcessOnSockets:
    """A process as `anyio.open_process` returns it, whose three streams are sockets."""

    def __init__(self, process: Process, streams: dict[str, SocketStream]) -> None:
        self._wrapped = process
        self.stdin, self.stdout, self.stderr = (streams.get(name) for name in _NAMES)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._wrapped, name)

    async def close_streams(self) -> None:
        """Close the streams although they may hold unread output, for example of a killed process."""
        for stream in (self.stdin, self.stdout, self.stderr):
            if stream is not None:
                await stream.aclose()


@contextmanager
def launching(launch: Launch) -> Iterator[None]:
    """Let what the SDK starts in this context be `launch`."""
    former = _launch.set(launch)
    try:
        yield
    finally:
        _launch.reset(former)


async def open_process(command: Sequence[str], **options: Any) -> ProcessOnSockets:
    """Open what `launching` says in place of the SDK's command, on sockets instead of pipes.

    It has a session of its own: a Ctrl+C in the terminal must reach the portal alone, which then stops its
    agent. Raises WorkspaceBusy, NoProgram or OSError.
    """
    launch = _launch.get()
    async with locked(launch.lock) as lock:
        options |= {
            "env": launch.variables(options["env"]),
            "pass_fds": (lock,),
            "start_new_session": True,
        }
        try:
            return await _open_on_sockets(launch.words(command), **options)
        except FileNotFoundError as error:
            if error.filename != launch.argv[0]:  # the working directory
                raise
            raise NoProgram(f"{launch.argv[0]} cannot be started: {error.strerror}") from error


async def _open_on_sockets(command: Sequence[str], **options: Any) -> ProcessOnSockets:
    """Open a process like `anyio.open_process`, but give the child sockets instead of pipes."""
    piped = [name for name in _NAMES if options.get(name) == PIPE]
    pairs = {name: socket.socketpair() for name in piped}
    of_child = {name: pair[1] for name, pair in pairs.items()}
    try:
        process = await anyio.open_process(command, **{**options, **of_child})
    except BaseException:
        for ours, _ in pairs.values():
            ours.close()
        raise
    finally:
        for theirs in of_child.values():
            theirs.close()
    streams = {name: await SocketStream.from_socket(pairs[name][0]) for name in piped}
    return ProcessOnSockets(process, streams)


def use_in_sdk() -> None:
    """Make the SDK start its processes this way. It has no option for that; its version is pinned."""
    setattr(subprocess_cli, "anyio", _AnyioOnSockets())  # noqa: B010


class _AnyioOnSockets:
    """Replaces the module `anyio` in one module of the SDK: it has our `open_process`."""

    open_process = staticmethod(open_process)

    def __getattr__(self, name: str) -> Any:
        return getattr(anyio, name)
