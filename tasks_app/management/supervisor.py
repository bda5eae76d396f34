"""Supervise the web server and the worker: one listening socket, two children, restarts.

A program of its own, which `up` becomes when everything is prepared: it needs the standard library alone, and
so a tenth of the memory that Django takes.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import NoReturn

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
    # Accepted connections inherit it. The web server takes the socket for one of another family, and would
    # let the second part of a response wait until the first is acknowledged: 40 ms.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
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
    fds: Sequence[int] = ()
    file_limit: int = 0
    process: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    failures: int = 0
    not_before: float = field(default=0.0)

    def as_dict(self) -> dict[str, object]:
        """Return what starts it, without what has become of it."""
        return {
            "name": self.name, "argv": [*self.argv], "fds": [*self.fds], "file_limit": self.file_limit,
        }  # fmt: skip

    def start(self) -> None:
        self.process = subprocess.Popen(self.argv, pass_fds=self.fds, preexec_fn=self._before_exec)
        self.started = time.monotonic()

    def _before_exec(self) -> None:
        # End with the supervisor, even if it is killed. Linux only; harmless elsewhere.
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C reaches the whole group; the supervisor decides
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        raise_file_limit(self.file_limit)

    def restart_if_ended(self, say: Callable[[str], None]) -> None:
        """Restart the process if it ended, with growing delays if it keeps ending."""
        if self.process is None:
            if time.monotonic() >= self.not_before:
                self.start()
        elif (code := self.process.poll()) is not None:
            self.failures += 1
            delay = min(MAX_RESTART_DELAY, 2.0 ** (self.failures - 1))
            if time.monotonic() - self.started > STABLE_SECONDS:
                self.failures, delay = 0, 0.0
            say(f"The {self.name} ended (exit code {code}) and restarts in {delay:g} s.")
            self.process, self.not_before = None, time.monotonic() + delay


@dataclass
class Supervisor:
    """Runs the children until SIGTERM or SIGINT, then terminates them, and kills what remains."""

    children: Sequence[Child]
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


@dataclass(frozen=True)
class Plan:
    """The children. `announcement` is printed once the web server responds at `host` and `port`."""

    children: Sequence[Child]
    host: str
    port: int
    announcement: str

    def as_json(self) -> str:
        kept = {**vars(self), "children": [child.as_dict() for child in self.children]}
        return json.dumps(kept)

    @classmethod
    def from_json(cls, text: str) -> Plan:
        given = json.loads(text)
        return cls(**{**given, "children": [Child(**child) for child in given["children"]]})


def become_supervisor(plan: Plan, *, inherited: Sequence[int]) -> NoReturn:
    """Replace this process by a supervisor with the same id, which keeps the `inherited` file descriptors."""
    for descriptor in inherited:
        os.set_inheritable(descriptor, True)
    # `-P` because the folder in which the portal was started must not supply modules.
    os.execv(sys.executable, [sys.executable, "-P", __file__, plan.as_json()])  # noqa: S606 (no shell)


def main(plan: Plan) -> None:
    supervisor = Supervisor(plan.children, say)
    supervisor.run(ready=lambda: _responds(plan), when_ready=lambda: say(plan.announcement))


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _responds(plan: Plan) -> bool:
    """Return whether the web server responds; the socket itself listens from the start."""
    try:
        with socket.create_connection((plan.host, plan.port), timeout=5) as connection:
            connection.sendall(b"GET /login/ HTTP/1.0\r\nHost: localhost\r\n\r\n")
            return connection.recv(12).startswith(b"HTTP/1.1")
    except OSError:
        return False


if __name__ == "__main__":
    main(Plan.from_json(sys.argv[1]))
