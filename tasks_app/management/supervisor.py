"""Supervise the web server and the worker: one listening socket, two children, restarts."""

from __future__ import annotations

import ctypes
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from tasks_app.core import environment

POLL_SECONDS = 0.1
#: A child that ran this long starts again without a delay.
STABLE_SECONDS = 30.0
MAX_RESTART_DELAY = 30.0
#: Longer than the worker's own time for putting runs back.
STOP_SECONDS = 30.0
PR_SET_PDEATHSIG = 1


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket, which survives restarts of the web server. Raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(512)
    except OSError:
        listener.close()
        raise
    listener.set_inheritable(True)
    return listener


@dataclass
class Child:
    """A supervised process that inherits `fds` and may open `file_limit` files."""

    name: str
    argv: Sequence[str]
    fds: tuple[int, ...] = ()
    file_limit: int = 0
    process: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    failures: int = 0
    not_before: float = field(default=0.0)

    def start(self) -> None:
        self.process = subprocess.Popen(self.argv, pass_fds=self.fds, preexec_fn=self._before_exec)
        self.started = time.monotonic()

    def _before_exec(self) -> None:
        _end_with_parent()
        raise_file_limit(self.file_limit)

    def restart_if_ended(self, say: Callable[[str], None]) -> None:
        """Restart the process if it ended, with growing delays if it keeps ending."""
        if self.process is None:
            if time.monotonic() >= self.not_before:
                self.start()
        elif (code := self.process.poll()) is not None:
            self.failures = 0 if time.monotonic() - self.started > STABLE_SECONDS else self.failures + 1
            delay = min(MAX_RESTART_DELAY, 2.0 ** (self.failures - 1)) if self.failures else 0.0
            say(f"The {self.name} ended (exit code {code}) and restarts in {delay:g} s.")
            self.process, self.not_before = None, time.monotonic() + delay


@dataclass
class Supervisor:
    """Runs the children until SIGTERM or SIGINT, then terminates them, and kills what remains."""

    children: list[Child]
    say: Callable[[str], None]
    _stop: bool = False

    def run(self, *, ready: Callable[[], bool], when_ready: Callable[[], None]) -> None:
        """`when_ready` is called once, as soon as `ready` is true."""
        for signum in (signal.SIGTERM, signal.SIGINT):
            signal.signal(signum, self._on_signal)
        announced = False
        try:
            while not self._stop:
                for child in self.children:
                    child.restart_if_ended(self.say)
                if not announced and ready():
                    announced = True
                    when_ready()
                time.sleep(POLL_SECONDS)
        finally:
            self._terminate_children()

    def _on_signal(self, signum: int, frame: FrameType | None) -> None:
        self._stop = True

    def _terminate_children(self) -> None:
        running = [child.process for child in self.children if child.process is not None]
        for process in running:
            process.terminate()
        deadline = time.monotonic() + STOP_SECONDS
        for process in running:
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def raise_file_limit(limit: int) -> None:
    """Raise this process's limit of open files to `limit` or its hard limit; never lower it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def _end_with_parent() -> None:
    """End with the supervisor, even if it is killed. Linux only; harmless elsewhere."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C reaches the whole group; the supervisor decides
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def in_new_process(*arguments: str) -> list[str]:
    """Return the command line that runs a command of this installation in a process of its own.

    `-P` because the folder in which the portal was started must not supply modules.
    """
    manage = Path(environment.BASE_DIR, "manage.py")
    program = [str(manage)] if environment.in_checkout() else ["-P", "-m", "catherder_site"]
    return [sys.executable, *program, *arguments]
