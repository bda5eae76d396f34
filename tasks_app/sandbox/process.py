"""Running a sandboxed command to its end, whatever it and its children do."""

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

from tasks_app.sandbox.bubblewrap import SandboxedCommand
from tasks_app.sandbox.watch import Watch

_CHUNK = 65_536
_STOP_LOOKS_EVERY = 0.1
# After the end, output is still taken until every writer has closed the pipe, but not for longer: a
# grandchild with a session of its own may keep it open for ever.
_LAST_WORDS_SECONDS = 1.0
_NOT_STARTED = 127

_End = Literal["exited", "timed out", "stopped"]

#: A program that crashes gets others: SIGSEGV, SIGABRT.
_FROM_OUTSIDE = {signal.SIGHUP, signal.SIGINT, signal.SIGKILL, signal.SIGTERM}


@dataclass(frozen=True)
class Finished:
    """How a command ended. `exit_code` is None if it was killed for `timed_out` or `stopped`;
    128+N means that signal N ended it, 127 that it could not be started. `over_limit` says which limit it
    passed, if that is why it was killed. `output` is standard
    output and error as they came, cut at the front where it was too long, which it then says."""

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
    """Run `command` to its end and kill what it leaves behind.

    `timeout` is in seconds, `output_limit` in bytes of UTF-8. `stop` is asked ten times a second
    and ends the command when true. The command has its own session and no input.
    """
    try:
        process = _start(command)
    except OSError as error:
        return Finished(_NOT_STARTED, f"{command.argv[0]}: {error.strerror or error}")
    tail, limits = _Tail(output_limit), _Limited(command.watch(process.pid))
    with process:
        try:
            end = _follow(process, tail, time.monotonic() + timeout, _either(stop, limits))
        finally:
            _kill_group(process)
        _take_last_words(_pipe(process), tail)
        code = process.wait()
    over_limit = limits.after_the_end()
    return Finished(
        exit_code=_shell_code(code) if end == "exited" and not over_limit else None,
        output=tail.text(),
        timed_out=end == "timed out",
        stopped=end == "stopped" and not over_limit,
        over_limit=over_limit,
    )


class _Limited:
    """Remembers which limit was passed."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._problem = ""

    def is_passed(self) -> bool:
        self._problem = self._problem or self._watch.problem()
        return bool(self._problem)

    def after_the_end(self) -> str:
        return self._problem or self._watch.last_words()


def _either(stop: Callable[[], bool] | None, limits: _Limited) -> Callable[[], bool]:
    return lambda: limits.is_passed() or (stop is not None and stop())


def _start(command: SandboxedCommand) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command.argv,
        env=command.env,
        cwd=command.cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        bufsize=0,
    )


def _follow(process: subprocess.Popen[bytes], tail: _Tail, deadline: float, stop: Callable[[], bool]) -> _End:
    """Take output until the process itself ends; its pipe may close earlier or much later."""
    pipe = _pipe(process)
    with selectors.DefaultSelector() as selector, _exit_watch(process) as ended:
        selector.register(pipe, selectors.EVENT_READ)
        selector.register(ended, selectors.EVENT_READ)
        while (left := deadline - time.monotonic()) > 0:
            ready = {key.fileobj for key, _ in selector.select(min(left, _STOP_LOOKS_EVERY))}
            if pipe in ready and not tail.take(pipe):
                selector.unregister(pipe)
            if ended in ready:
                return "exited"
            if stop():
                return "stopped"
    return "timed out"


@contextlib.contextmanager
def _exit_watch(process: subprocess.Popen[bytes]) -> Iterator[int]:
    descriptor = os.pidfd_open(process.pid)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    # The process has not been waited for, so its number cannot belong to anybody else yet.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _take_last_words(pipe: IO[bytes], tail: _Tail) -> None:
    deadline = time.monotonic() + _LAST_WORDS_SECONDS
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        while (left := deadline - time.monotonic()) > 0:
            if selector.select(left) and not tail.take(pipe):
                return


def _pipe(process: subprocess.Popen[bytes]) -> IO[bytes]:
    assert process.stdout is not None  # noqa: S101 (Popen was given PIPE)
    return process.stdout


def _shell_code(code: int) -> int:
    return code if code >= 0 else 128 - code


class _Tail:
    """The last `limit` bytes of a stream, in memory of at most twice that and one chunk."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept = bytearray()
        self._seen = 0

    def take(self, pipe: IO[bytes]) -> bool:
        """Read what is there; false at the end of the stream."""
        chunk = pipe.read(_CHUNK)
        self._seen += len(chunk)
        self._kept += chunk
        if len(self._kept) > 2 * self._limit:
            self._cut()
        return bool(chunk)

    def text(self) -> str:
        """Decoded as a whole, so that a character which came in two reads is one again."""
        self._cut()
        lost = self._seen - len(self._kept)
        kept = bytes(self._kept).lstrip(_CONTINUATIONS) if lost else bytes(self._kept)
        # PostgreSQL stores every character but NUL.
        text = kept.decode("utf-8", errors="replace").replace("\0", "\N{REPLACEMENT CHARACTER}")
        return f"[… the first {lost} bytes of output are cut …]\n{text}" if lost else text

    def _cut(self) -> None:
        del self._kept[: max(0, len(self._kept) - self._limit)]


_CONTINUATIONS = bytes(range(0x80, 0xC0))


def killed_by(exit_code: int | None) -> str:
    """The name of the signal by which somebody else ended a process; "" if it ended or broke by itself.

    A program that wraps another one, as bubblewrap does, reports a signal N as 128+N.
    """
    number = 0 if exit_code is None else -exit_code if exit_code < 0 else exit_code - 128
    return signal.Signals(number).name if number in _FROM_OUTSIDE else ""
