"""Running a sandboxed command to its end, whatever it or its children do."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import IO, Literal

from tasks_app.core.text import storable_text
from tasks_app.sandbox.bubblewrap import SandboxedCommand

_CHUNK = 65_536
_STOP_POLL_SECONDS = 0.1
# After the end, output is still read until every writer has closed the pipe, but not for longer: a grandchild
# in its own session may keep it open for ever.
_REMAINING_OUTPUT_SECONDS = 1.0
_NOT_STARTED = 127

_End = Literal["exited", "timed out", "stopped"]

#: Signals from outside. A program that crashes gets others: SIGSEGV, SIGABRT.
_FROM_OUTSIDE = {signal.SIGHUP, signal.SIGINT, signal.SIGKILL, signal.SIGTERM}


@dataclass(frozen=True)
class Finished:
    """The end of a command.

    `exit_code` is None if it was killed because of `timed_out` or `stopped`; 128+N means that signal N ended
    it, 127 that it could not be started. `over_limit` says which limit it exceeded if it was killed for that.
    `output` is standard output and error in the order written; if it was too long, its beginning is cut, and
    a line says so.
    """

    exit_code: int | None
    output: str
    timed_out: bool = False
    stopped: bool = False
    over_limit: str = ""


def run(
    command: SandboxedCommand,
    *,
    timeout: float,
    output_limit: int = 200_000,
    stop: Callable[[], bool] | None = None,
) -> Finished:
    """Run `command` to its end and kill the processes that it leaves behind.

    `timeout` is in seconds, `output_limit` in bytes of UTF-8. `stop` is called ten times a second and ends
    the command when it returns true. The command has its own session and no input.
    """
    try:
        process = subprocess.Popen(
            command.argv,
            env=command.env,
            cwd=command.cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            bufsize=0,
        )
    except OSError as error:
        return Finished(_NOT_STARTED, f"{command.argv[0]}: {error.strerror or error}")
    tail, watch, over_limit = _OutputTail(output_limit), command.watch(process.pid), ""

    def should_stop() -> bool:
        nonlocal over_limit
        over_limit = over_limit or watch.problem()
        return bool(over_limit) or (stop is not None and stop())

    with process:
        try:
            end = _follow(process, tail, time.monotonic() + timeout, should_stop)
        finally:
            # The process was not waited for, so no other process can have its id yet.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        _read_remaining_output(_output_pipe(process), tail)
        code = process.wait()
    over_limit, exit_code = over_limit or watch.final_problem(), None
    if end == "exited" and not over_limit:
        exit_code = code if code >= 0 else 128 - code
    return Finished(
        exit_code=exit_code,
        output=tail.text(),
        timed_out=end == "timed out",
        stopped=end == "stopped" and not over_limit,
        over_limit=over_limit,
    )


def _follow(
    process: subprocess.Popen[bytes], tail: _OutputTail, deadline: float, should_stop: Callable[[], bool]
) -> _End:
    """Read output until the process itself ends; its pipe may close earlier or much later."""
    pipe = _output_pipe(process)
    with selectors.DefaultSelector() as selector, _exit_descriptor(process) as ended:
        selector.register(pipe, selectors.EVENT_READ)
        selector.register(ended, selectors.EVENT_READ)
        while (left := deadline - time.monotonic()) > 0:
            ready = {key.fileobj for key, _ in selector.select(min(left, _STOP_POLL_SECONDS))}
            if pipe in ready and not tail.read_from(pipe):
                selector.unregister(pipe)
            if ended in ready:
                return "exited"
            if should_stop():
                return "stopped"
    return "timed out"


@contextlib.contextmanager
def _exit_descriptor(process: subprocess.Popen[bytes]) -> Iterator[int]:
    """Yield a descriptor that becomes readable when the process ends."""
    descriptor = os.pidfd_open(process.pid)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _read_remaining_output(pipe: IO[bytes], tail: _OutputTail) -> None:
    deadline = time.monotonic() + _REMAINING_OUTPUT_SECONDS
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        while (left := deadline - time.monotonic()) > 0:
            if selector.select(left) and not tail.read_from(pipe):
                return


def _output_pipe(process: subprocess.Popen[bytes]) -> IO[bytes]:
    assert process.stdout is not None  # noqa: S101 (Popen was given PIPE)
    return process.stdout


class _OutputTail:
    """The last `limit` bytes of a stream. It takes memory for at most twice the limit and one chunk."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept = bytearray()
        self._seen = 0

    def read_from(self, pipe: IO[bytes]) -> bool:
        """Read a chunk. Return false at the end of the stream."""
        chunk = pipe.read(_CHUNK)
        self._seen += len(chunk)
        self._kept += chunk
        if len(self._kept) > 2 * self._limit:
            self._cut()
        return bool(chunk)

    def text(self) -> str:
        """Decode everything at once, so that a character whose bytes came in two chunks stays whole."""
        self._cut()
        lost = self._seen - len(self._kept)
        kept = bytes(self._kept)
        if not lost:
            return storable_text(kept.decode("utf-8", errors="replace"))
        text = storable_text(kept.lstrip(_CONTINUATION_BYTES).decode("utf-8", errors="replace"))
        return f"[… the first {lost} bytes of output are cut …]\n{text}"

    def _cut(self) -> None:
        del self._kept[: max(0, len(self._kept) - self._limit)]


_CONTINUATION_BYTES = bytes(range(0x80, 0xC0))


def killed_by(exit_code: int | None) -> str:
    """Return the name of the signal that killed a process from outside; "" if it ended or crashed by itself.

    A program that wraps another one, like bubblewrap, reports a signal N as 128+N.
    """
    if exit_code is None:
        return ""
    number = -exit_code if exit_code < 0 else exit_code - 128
    if number in _FROM_OUTSIDE:
        return signal.Signals(number).name
    return ""
