"""The agent's program, Claude Code's CLI, and where it lies."""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from tasks_app.core.errors import CatHerderError, TemporaryFault


def bundled_cli() -> Path:
    """Return the CLI from the SDK's wheel or, if it has none, from PATH.

    The SDK is not imported: that takes half a second and 30 MB, and only runs need it.
    """
    sdk = find_spec("claude_agent_sdk")
    bundled = Path(sdk.origin if sdk and sdk.origin else "").parent / "_bundled" / "claude"
    if bundled.exists():
        return bundled
    return Path(shutil.which("claude") or bundled)


# Starting the agent's program in place of what the SDK would start.
#
# The worker starts it directly, with no process between: sandboxed, with a listed environment instead of the
# worker's, which the SDK always passes on, and never while another agent works in the workspace.


#: Seconds for which an agent that is just ending is waited for.
PATIENCE = 10.0
_PAUSE = 0.02


class WorkspaceBusy(TemporaryFault):
    """Another agent still runs in the workspace."""


class NoProgram(CatHerderError):
    """The program that was to be started does not exist; the text names it."""


@dataclass(frozen=True)
class Launch:
    """The command of one run: `argv`, followed by the SDK's arguments, with `env` as its environment.

    `inherit` names the variables that are taken from the SDK. `lock` is a file that is locked while any
    process of the agent lives.
    """

    argv: Sequence[str]
    env: Mapping[str, str]
    lock: Path
    inherit: Sequence[str] = ()

    def words(self, command: Sequence[str]) -> list[str]:
        """Return the words of the process. `command` is the SDK's, whose first word is its program."""
        return [*self.argv, *command[1:]]

    def variables(self, from_sdk: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of the process."""
        return {**self.env, **{name: from_sdk[name] for name in self.inherit if name in from_sdk}}


@asynccontextmanager
async def locked(path: Path) -> AsyncIterator[int]:
    """Lock the file and yield its descriptor, for a child process that keeps the lock.

    The lock belongs to all descriptors of this one opening: it is free when this context has ended and the
    last process that inherited it is gone. Raises WorkspaceBusy.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        await _lock(descriptor)
        yield descriptor
    finally:
        os.close(descriptor)


async def _lock(descriptor: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise WorkspaceBusy("Another agent still runs in this workspace.") from None
            await asyncio.sleep(_PAUSE)
