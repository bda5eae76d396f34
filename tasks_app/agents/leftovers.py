"""Ending what an earlier agent left running in a workspace, so that two never work in one.

Every process of an agent carries the cookie in its environment, from the launcher down; that holds
for children that changed their session or lost their parent as well.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

COOKIE = "CAT_HERDER_WORKSPACE"


def leftovers(workspace: Path) -> list[int]:
    """Process ids that carry the workspace's cookie."""
    cookie = f"{COOKIE}={workspace}".encode()
    return [pid for pid in _process_ids() if pid != os.getpid() and cookie in _environment(pid)]


def end_leftovers(workspace: Path, *, patience: float = 10.0) -> int:
    """Kill them, again until none is left (they may be forking); how many there were.

    Raises TimeoutError when one cannot be ended within `patience` seconds.
    """
    ended: set[int] = set()
    deadline = time.monotonic() + patience
    while pids := leftovers(workspace):
        if time.monotonic() > deadline:
            raise TimeoutError(f"processes {pids} of an earlier run cannot be ended")
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
            ended.add(pid)
        time.sleep(0.02)
    return len(ended)


def _process_ids() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]


def _environment(pid: int) -> list[bytes]:
    """The variables of a process; nothing for one that ended, is a zombie, or is not ours."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []
