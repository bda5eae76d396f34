"""Ending what an earlier agent or check left running in a workspace, so that two never work in one.

Every process of an agent or a check carries two variables in its environment, from the launcher down: the
workspace, and the claim of the task's lease under which it was started. That holds for children that
changed their session or lost their parent as well.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tasks_app.core.errors import PassingFault

WORKSPACE_VARIABLE = "CAT_HERDER_WORKSPACE"
_CLAIM = "CAT_HERDER_CLAIM"


@dataclass(frozen=True)
class Claim:
    """One claim of a task's lease: a higher epoch is a later holder."""

    task_id: int = 0
    epoch: int = 0

    def variables(self, workspace: Path) -> dict[str, str]:
        """Return the variables that mark every process started in the workspace under this claim."""
        return {WORKSPACE_VARIABLE: str(workspace), _CLAIM: f"{self.task_id}:{self.epoch}"}


def marked_processes(workspace: Path) -> list[int]:
    """Process ids that carry the workspace's cookie, of whatever claim."""
    return [pid for pid, _ in _marked(workspace)]


def kill_own_processes(workspace: Path, claim: Claim, *, patience: float = 10.0) -> int:
    """Kill what was started under this claim, and nothing else; how many processes there were.

    Allowed at any time: also a worker that came back after it had lost the task cleans up after itself.
    Raises PassingFault when a process cannot be ended within `patience` seconds.
    """
    return _end(workspace, lambda other: other == claim, patience)


def kill_earlier_processes(workspace: Path, claim: Claim, *, patience: float = 10.0) -> int:
    """Kill everything in the workspace that no later holder of the task started; how many there were.

    Only for the holder of the lease, who looked just before whether it still is. Raises PassingFault when a
    process cannot be ended within `patience` seconds.
    """
    return _end(workspace, lambda other: not _is_later(other, claim), patience)


def _is_later(other: Claim | None, claim: Claim) -> bool:
    """Another task in the same workspace is one of the same sequence, of which one has a holder."""
    return other is not None and other.task_id == claim.task_id and other.epoch > claim.epoch


def _end(workspace: Path, chosen: Callable[[Claim | None], bool], patience: float) -> int:
    """Kill them, again until none is left: they may be forking."""
    ended: set[int] = set()
    deadline = time.monotonic() + patience
    while pids := [pid for pid, claim in _marked(workspace) if chosen(claim)]:
        if time.monotonic() > deadline:
            raise PassingFault(f"processes {pids} of an earlier run in {workspace} cannot be ended")
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
            ended.add(pid)
        time.sleep(0.02)
    return len(ended)


def _marked(workspace: Path) -> list[tuple[int, Claim | None]]:
    """Processes with the workspace's cookie and the claim that each of them names, if it does."""
    cookie = f"{WORKSPACE_VARIABLE}={workspace}".encode()
    environments = ((pid, _environment(pid)) for pid in _process_ids() if pid != os.getpid())
    return [(pid, _claim_in(environment)) for pid, environment in environments if cookie in environment]


def _claim_in(environment: list[bytes]) -> Claim | None:
    prefix = f"{_CLAIM}=".encode()
    named = next((entry.removeprefix(prefix) for entry in environment if entry.startswith(prefix)), b"")
    task_id, _, epoch = named.partition(b":")
    return Claim(int(task_id), int(epoch)) if task_id.isdigit() and epoch.isdigit() else None


def _process_ids() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]


def _environment(pid: int) -> list[bytes]:
    """The variables of a process; nothing for one that ended, is a zombie, or is not ours."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []
