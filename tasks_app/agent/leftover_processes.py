"""Killing what an agent or a check left running, this one or an earlier one: two never work in one workspace.

Every process of an agent or a check has two variables in its environment from its start on: the
workspace, and the claim of the task's lease under which it was started. Children inherit them, even those
that changed their session or lost their parent.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tasks_app.core.errors import TemporaryFault
from tasks_app.core.files import process_ids, read_process_file

WORKSPACE_VARIABLE = "CAT_HERDER_WORKSPACE"
_CLAIM_VARIABLE = "CAT_HERDER_CLAIM"
#: How often the variables of a process that seems to have none are read, and the pause between two reads.
_READS = 5
_READ_SECONDS = 0.002


@dataclass(frozen=True)
class Claim:
    """One claim of a task's lease: a higher epoch is a later holder."""

    task_id: int = 0
    epoch: int = 0

    def variables(self, workspace: Path) -> dict[str, str]:
        """Return the variables that mark every process started in the workspace under this claim."""
        return {WORKSPACE_VARIABLE: str(workspace), _CLAIM_VARIABLE: f"{self.task_id}:{self.epoch}"}


def marked_processes(workspace: Path) -> list[int]:
    """Return the ids of all processes that are marked with the workspace, under any claim."""
    return [pid for pid, _ in _processes_with_claims(workspace)]


def kill_own_processes(workspace: Path, claim: Claim, *, patience: float = 10.0) -> int:
    """Kill the processes that were started under this claim. Return their number.

    Allowed at any time: a worker that has lost the task cleans up after itself, too. Raises TemporaryFault
    if a process cannot be killed within `patience` seconds.
    """
    return _kill(workspace, lambda other: other == claim, patience)


def kill_earlier_processes(workspace: Path, claim: Claim, *, patience: float = 10.0) -> int:
    """Kill all processes of the workspace except a later holder's. Return how many were killed.

    Only the holder of the lease may call it, directly after a check that it still holds the lease. Processes
    of other tasks are killed, too: these belong to the same sequence, in which only one task has a holder.
    Raises TemporaryFault if a process cannot be killed within `patience` seconds.
    """

    def is_not_later(other: Claim | None) -> bool:
        return other is None or other.task_id != claim.task_id or other.epoch <= claim.epoch

    return _kill(workspace, is_not_later, patience)


def _kill(workspace: Path, is_chosen: Callable[[Claim | None], bool], patience: float) -> int:
    """Kill the chosen processes. Repeat until none is left: they may be forking."""
    ended: set[int] = set()
    deadline = time.monotonic() + patience
    while pids := [pid for pid, claim in _processes_with_claims(workspace) if is_chosen(claim)]:
        if time.monotonic() > deadline:
            raise TemporaryFault(f"processes {pids} of an earlier run in {workspace} cannot be killed")
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
            ended.add(pid)
        time.sleep(0.02)
    return len(ended)


def _processes_with_claims(workspace: Path) -> list[tuple[int, Claim | None]]:
    """Return the processes that are marked with the workspace, each with its claim if it has one."""
    mark = f"{WORKSPACE_VARIABLE}={workspace}".encode()
    environments = ((pid, _environment(pid)) for pid in process_ids() if pid != os.getpid())
    marked = ((pid, content.split(b"\0")) for pid, content in environments if mark in content)
    return [(pid, _claim_in(variables)) for pid, variables in marked if mark in variables]


def _claim_in(variables: list[bytes]) -> Claim | None:
    prefix = f"{_CLAIM_VARIABLE}=".encode()
    value = next((entry.removeprefix(prefix) for entry in variables if entry.startswith(prefix)), b"")
    task_id, _, epoch = value.partition(b":")
    if task_id.isdigit() and epoch.isdigit():
        return Claim(int(task_id), int(epoch))
    return None


def _environment(pid: int) -> bytes:
    """Return the variables of a process, each with a zero byte after it.

    None for one that ended, is a zombie, or is not ours. A process that is just starting another program has
    none for a moment, so it is read again.
    """
    try:
        for _ in range(_READS):
            if content := read_process_file(pid, "environ"):
                return content
            Path(f"/proc/{pid}/exe").readlink()  # raises for a thread of the kernel, which never has any
            time.sleep(_READ_SECONDS)
    except OSError:
        pass
    return b""
