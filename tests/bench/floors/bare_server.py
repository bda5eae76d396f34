"""The bare application behind the same web server program as the portal's, in a process of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from types import TracebackType
from typing import Self

from tests.bench.floors.bare_application import DATABASE, ROWS, TASK
from tests.forkserver import PATIENCE, REPOSITORY
from tests.processes import start_process

#: uvicorn's own protocols, of which the portal's are subclasses.
_OPTIONS = (
    "--http",
    "h11",
    "--ws",
    "websockets-sansio",
    "--lifespan",
    "off",
    "--no-access-log",
    "--port",
    "0",
)


class BareServer:
    """Listens at `address` while the context is open; `pid` is its process."""

    def __init__(self, **variables: str) -> None:
        command = [sys.executable, "-m", "uvicorn", "--factory", "tests.bench.floors.bare_application:make"]
        env = {"PATH": os.environ["PATH"], **variables}
        self._process = start_process(
            [*command, *_OPTIONS], cwd=REPOSITORY, env=env, stderr=subprocess.PIPE, text=True
        )
        self.address = self._listening()

    @classmethod
    def storing(cls, database: str, *, task: int, rows: int) -> Self:
        """Start one that stores so many rows of the task, in one transaction, for each POST."""
        return cls(**{DATABASE: database, TASK: str(task), ROWS: str(rows)})

    @property
    def pid(self) -> int:
        return self._process.pid

    def _listening(self) -> str:
        assert self._process.stderr
        said = []
        for line in self._process.stderr:
            said.append(line)
            if found := re.search(r"running on http://(\S+)", line):
                return found[1]
        raise AssertionError("the bare server did not start:\n" + "".join(said))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        assert self._process.stderr
        self._process.terminate()
        self._process.wait(PATIENCE)
        self._process.stderr.close()
