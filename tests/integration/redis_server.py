"""A Redis of a test's own: it can be stopped, and nobody else uses it."""

from __future__ import annotations

import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.processes import start_process


class RedisServer:
    """Listens on a port that was free a moment ago."""

    def __init__(self, program: str, *options: str) -> None:
        self._program = program
        self._options = options
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        command = [
            self._program,
            "--port",
            str(self.port),
            "--save",
            "",
            "--bind",
            "127.0.0.1",
            *self._options,
        ]
        self._process = start_process(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout
        patience = threading.Timer(30, self._process.kill)
        patience.start()
        said = []
        for line in self._process.stdout:
            said.append(line)
            if "Ready to accept connections" in line:
                patience.cancel()
                return
        patience.cancel()
        raise AssertionError(f"Redis did not start:\n{''.join(said)}")

    def stop(self) -> None:
        if self._process:
            self._process.kill()
            self._process.communicate()
            self._process = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"


@contextmanager
def redis_server(*options: str) -> Iterator[RedisServer]:
    """A running server; skips the test where Redis is not installed."""
    program = shutil.which("redis-server")
    if program is None:
        pytest.skip("redis-server is not installed; on Debian: apt install redis-server")
    server = RedisServer(program, *options)
    server.start()
    try:
        yield server
    finally:
        server.stop()
