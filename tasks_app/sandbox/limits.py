"""Limits of what one agent, or one check, may use of the machine, and how they are enforced (M7).

The best way is a separate cgroup (v2), if one was delegated to the portal (`systemd-run -p Delegate=yes`, or
`Delegate=yes` in a unit): the kernel then limits memory, processes and CPU of all its processes together.
Otherwise rlimits limit each process, and the portal watches their sum once a second (`watch.py`).
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

#: The portal's own processes are moved to this cgroup: a cgroup whose children have limits may hold none.
PORTAL_GROUP = "portal"
_RUN_GROUP = "sandbox-"
_CONTROLLERS = ("memory", "pids", "cpu")
#: Without this one agents have limits all the same; the kernel then goes by niceness for disks, too.
_CONTROLLER_OF_DISKS = "io"
_MOUNTS = Path("/proc/self/mountinfo")
#: Of processors and disks, from 1 to 10,000; the portal's own cgroup has 100. So agents wait for the pages,
#: and not the reverse.
_WEIGHT = 30
#: Microseconds of the period in which a cgroup gets its processor time.
_CPU_PERIOD = 100_000
#: Added to the kernel's score of up to 1,000 when memory runs out: agents are killed before the portal.
OOM_SCORE = 500
NICE = 10
#: The niceness of a sandbox's sessions among all sessions of the machine (`lower_autogroups`): a third of
#: the weight of others, as in a cgroup, so that agents still get on beside what else is done on the machine.
SESSION_NICE = 5
#: The name of the limit that bubblewrap enforces, and the value of a limit that is not set.
TEMPORARY_FILES, UNLIMITED = "Temporary files", "no limit"


@dataclass(frozen=True)
class Limits:
    """Limits in bytes, processes and processor cores; 0 means no limit.

    `memory`, `processes` and `cpus` apply to all processes of a sandbox together, `disk` to workspace and
    home together and also to each single file, `tmp` to each temporary folder. `free_disk` must stay free on
    the disk, regardless of who filled it.
    """

    memory: int = 0
    processes: int = 0
    disk: int = 0
    tmp: int = 0
    free_disk: int = 0
    cpus: float = 0


NO_LIMITS = Limits()


@dataclass(frozen=True)
class EnforcedLimit:
    """One limit for people: its name, its value, and what enforces it; `by` is "" if nothing does."""

    name: str
    value: str
    by: str

    @property
    def is_set(self) -> bool:
        return self.value != UNLIMITED


def enforced_limits(
    limits: Limits, *, cgroup: Path | None, sandboxed: bool, own_users: bool, limits_tmp: bool
) -> tuple[EnforcedLimit, ...]:
    """Return what enforces each limit on this machine.

    `own_users` says that the sandbox has a user namespace and the user is not root, whose processes the
    kernel does not count.
    """
    group = "cgroup" if cgroup else ""
    watched = "watched once a second"
    if not sandboxed:
        watched += ", but for processes that detach"
    counted = "rlimit in the sandbox, and watched" if own_users else watched
    unseen = "; shared memory that no process has open is not seen"
    in_tmpfs = "size of each tmpfs" if limits_tmp and sandboxed else ""
    niceness = f"niceness {NICE}" if sandboxed else ""
    rows = [
        ("Memory", format_size(limits.memory), limits.memory, group or watched + unseen),
        ("Processes", str(limits.processes), limits.processes, group or counted),
        (
            "Files",
            format_size(limits.disk),
            limits.disk,
            "rlimit for each file; the sum is watched every 15 s",
        ),
        (TEMPORARY_FILES, format_size(limits.tmp), limits.tmp, in_tmpfs),
        ("Free disk kept", format_size(limits.free_disk), limits.free_disk, "watched once a second"),
        ("CPU cores", f"{limits.cpus:g}", limits.cpus, group),
        ("CPU", "after the portal", 1, group or niceness),
    ]
    found = []
    for name, value, is_set, by in rows:
        if is_set:
            found.append(EnforcedLimit(name, value, by))
        else:
            found.append(EnforcedLimit(name, UNLIMITED, ""))
    return tuple(found)


def format_size(number: int) -> str:
    """Format a number of bytes for people."""
    for unit, size in (("GiB", 1024**3), ("MiB", 1024**2), ("KiB", 1024)):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number} bytes"


def rlimits(limits: Limits, *, own_users: bool) -> dict[str, int]:
    """Return the values of rlimits for one sandbox's processes, by their names without RLIMIT_.

    The address space is not limited: the agent's program and many runtimes reserve far more than they use.
    """
    found = {"CORE": 0}
    if limits.disk:
        found["FSIZE"] = limits.disk
    if limits.processes and own_users:
        found["NPROC"] = limits.processes
    return found


@cache
def delegated_cgroup() -> Path | None:
    """Return the cgroup in which this process may make others with limits, or None.

    Nothing is changed: `prepare_cgroup` must be called before groups are made in it.
    """
    if not _MOUNTS.exists() or (mount := _cgroup_mount(_MOUNTS.read_text())) is None:
        return None
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    own = next((line[3:].strip("/") for line in lines if line.startswith("0::")), "")
    if own:
        return usable_cgroup(mount / own)
    return None


def usable_cgroup(own: Path) -> Path | None:
    """Return `own`, or its parent if it is the portal's. None if no groups with limits can be made in it."""
    group = own.parent if own.name == PORTAL_GROUP else own
    try:
        controllers = (group / "cgroup.controllers").read_text().split()
    except OSError:
        return None
    ours = all(os.access(group / name, os.W_OK) for name in ("cgroup.procs", "cgroup.subtree_control"))
    if ours and set(_CONTROLLERS) <= set(controllers):
        return group
    return None


def prepare_cgroup(group: Path | None) -> Path | None:
    """Move the group's processes, also this one, into a child group, and return the group.

    Return None if that is impossible or the group is missing.
    """
    if group is None:
        return None
    try:
        portal = group / PORTAL_GROUP
        portal.mkdir(exist_ok=True)
        for process in (group / "cgroup.procs").read_text().split():
            with suppress(ProcessLookupError):
                (portal / "cgroup.procs").write_text(process)
        (group / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in _CONTROLLERS))
    except OSError:
        return None
    if _CONTROLLER_OF_DISKS in (group / "cgroup.controllers").read_text().split():
        with suppress(OSError):
            (group / "cgroup.subtree_control").write_text(f"+{_CONTROLLER_OF_DISKS}")
    return group


def _cgroup_mount(mounts: str) -> Path | None:
    """Return where cgroup v2 is mounted. Fields of a line: …, mount point (5th), …, ` - `, type, …"""
    for line in mounts.splitlines():
        fields, _, kind = line.partition(" - ")
        if kind.startswith("cgroup2 "):
            return Path(fields.split()[4])
    return None


def make_cgroup(parent: Path, limits: Limits) -> Path:
    """Make a cgroup for one sandbox, and remove the cgroups of ended sandboxes. Raises OSError."""
    for old in parent.glob(f"{_RUN_GROUP}*"):
        with suppress(OSError):  # it is busy while a process is in it
            old.rmdir()
    group = parent / f"{_RUN_GROUP}{os.getpid()}-{secrets.token_hex(4)}"
    group.mkdir()
    if limits.memory:
        (group / "memory.max").write_text(str(limits.memory))
        with suppress(OSError):  # missing without swap accounting
            (group / "memory.swap.max").write_text("0")
    if limits.processes:
        (group / "pids.max").write_text(str(limits.processes))
    (group / "cpu.weight").write_text(str(_WEIGHT))
    if (group / "io.weight").exists():
        (group / "io.weight").write_text(str(_WEIGHT))
    if limits.cpus:
        (group / "cpu.max").write_text(f"{round(limits.cpus * _CPU_PERIOD)} {_CPU_PERIOD}")
    return group


def ran_out_of_memory(group: Path) -> bool:
    """Return whether the kernel killed a process of the group because it ran out of memory."""
    return _has_happened(group / "memory.events", "oom_kill")


def ran_out_of_processes(group: Path) -> bool:
    """Return whether the kernel refused the group another process."""
    return _has_happened(group / "pids.events", "max")


def _has_happened(events: Path, name: str) -> bool:
    """Return whether the kernel counted an event of the group. A line each: name, space, number."""
    try:
        words = events.read_text().split()
    except OSError:
        return False
    return dict(zip(words[::2], words[1::2], strict=False)).get(name, "0") != "0"


# Letting the sessions of a sandbox wait for the portal, where the kernel shares the CPU among sessions.
#
# With `kernel.sched_autogroup_enabled`, which most kernels have, each session is a group (autogroup,
# sched(7)), and niceness only counts among the processes of one group. The agent has a session of its own,
# and so has each of its shells. So each would get as much CPU time as the whole portal, unless its group has
# a niceness, too. Below a cgroup with a CPU weight of its own, the kernel goes by that alone.


_ENABLED = Path("/proc/sys/kernel/sched_autogroup_enabled")


def lower_autogroups(processes: Iterable[int]) -> None:
    """Give the group of each process SESSION_NICE, unless it has it or more.

    Users other than root may change one group in 0.1 s; those that are left out need another call.
    """
    if autogroups_enabled():
        for pid in processes:
            with suppress(OSError):  # it has ended, belongs to somebody else, or it is too early
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
