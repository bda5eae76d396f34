"""Letting the sessions of a sandbox wait for the portal, where the kernel shares the CPU among sessions.

With `kernel.sched_autogroup_enabled`, which most kernels have, each session is a group (autogroup, sched(7)),
and niceness only counts among the processes of one group. The agent has a session of its own, and so has each
of its shells. So each would get as much CPU time as the whole portal, unless its group has a niceness, too.
Below a cgroup with a CPU weight of its own, the kernel goes by that alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path

from tasks_app.sandbox.limits import SESSION_NICE

_ENABLED = Path("/proc/sys/kernel/sched_autogroup_enabled")


def lower_autogroups(processes: Iterable[int]) -> None:
    """Give the group of each process SESSION_NICE, unless it has it or more.

    Users other than root may change one group in 0.1 s; those that are left out need another call.
    """
    if autogroups_enabled():
        for pid in processes:
            with suppress(OSError):  # it has ended, belongs to somebody else, or it is too early
                _lower(pid)


def _lower(pid: int) -> None:
    group = Path(f"/proc/{pid}/autogroup")
    words = group.read_text().split()  # /autogroup-123 nice 0
    if len(words) == 3 and int(words[2]) < SESSION_NICE:
        group.write_text(str(SESSION_NICE))


@cache
def autogroups_enabled() -> bool:
    """Return whether the kernel shares the CPU among sessions."""
    try:
        return _ENABLED.read_text().strip() == "1"
    except OSError:
        return False
