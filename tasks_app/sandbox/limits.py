"""What one agent, or one check, may use of the machine, and what holds it to that (M7).

Best is a cgroup (v2) of its own, where the portal was given one to divide (`systemd-run -p Delegate=yes`, or
`Delegate=yes` in a unit): the kernel then bounds memory, processes and CPU of all its processes together.
Elsewhere rlimits bound each process, and the portal watches the sum once a second (`watch.py`).
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

#: The portal's own processes are moved here, as a cgroup with limits may only be made beside processes.
PORTAL_GROUP = "portal"
_RUN_GROUP = "sandbox-"
_CONTROLLERS = ("memory", "pids", "cpu")
_MOUNTS = Path("/proc/self/mountinfo")
#: Of 1 to 10,000, where the portal's own has 100: agents wait for the pages, not the other way round.
_CPU_WEIGHT = 30
#: Added to what the kernel reckons when memory is out, of 1,000: agents are ended before the portal.
OOM_SCORE = 500
NICE = 10
#: The row of `holding` that bubblewrap holds, and the value of one that nobody wants.
TEMPORARY_FILES, UNLIMITED = "Temporary files", "no limit"


@dataclass(frozen=True)
class Limits:
    """In bytes and processes; 0 means no limit.

    `memory` and `processes` are those of all processes of a sandbox together, `disk` what workspace and home
    may hold, which also bounds each single file, `tmp` the size of each temporary folder. `free_disk` must
    stay free on the disk, whoever filled it.
    """

    memory: int = 0
    processes: int = 0
    disk: int = 0
    tmp: int = 0
    free_disk: int = 0


NO_LIMITS = Limits()


@dataclass(frozen=True)
class Held:
    """One limit as people are told of it: what, how much, and by what; `by` is empty if nothing holds it."""

    name: str
    value: str
    by: str

    @property
    def is_set(self) -> bool:
        """Whether the installation wants one."""
        return self.value != UNLIMITED


def holding(
    limits: Limits, *, cgroup: Path | None, sandboxed: bool, own_users: bool, bounds_tmp: bool
) -> tuple[Held, ...]:
    """What holds each limit on this machine. `own_users`: the sandbox has a user namespace, and not for root,
    whose processes the kernel does not count."""
    group = "cgroup" if cgroup else ""
    watched = "watched once a second" if sandboxed else "watched once a second, but for processes that detach"
    counted = "rlimit in the sandbox, and watched" if own_users else watched
    unseen = "; shared memory that no process has open is not seen"
    rows = [
        (
            "Memory",
            size(limits.memory),
            limits.memory,
            group or watched + unseen,
        ),
        ("Processes", str(limits.processes), limits.processes, group or counted),
        ("Files", size(limits.disk), limits.disk, "rlimit for each file; the sum is watched every 15 s"),
        (
            TEMPORARY_FILES,
            size(limits.tmp),
            limits.tmp,
            "size of each tmpfs" if bounds_tmp and sandboxed else "",
        ),
        ("Free disk kept", size(limits.free_disk), limits.free_disk, "watched once a second"),
        ("CPU", "after the portal", 1, group or f"niceness {NICE}"),
    ]
    return tuple(
        Held(name, value if wanted else UNLIMITED, by if wanted else "") for name, value, wanted, by in rows
    )


def size(number: int) -> str:
    """Bytes for people."""
    for unit, size in (("GiB", 1024**3), ("MiB", 1024**2), ("KiB", 1024)):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number} bytes"


def rlimits(limits: Limits, *, own_users: bool) -> dict[str, int]:
    """Names of the module `resource` without RLIMIT_, and their values, for one sandbox's processes.

    Not the address space: the agent's program and many runtimes reserve far more than they use.
    """
    found = {"CORE": 0}
    if limits.disk:
        found["FSIZE"] = limits.disk
    if limits.processes and own_users:
        found["NPROC"] = limits.processes
    return found


@cache
def delegated_group() -> Path | None:
    """The cgroup below which this process may make others with limits; None where there is none.

    Nothing is changed: who wants to make groups there has to divide it first.
    """
    mount = _cgroup_mount(_MOUNTS.read_text()) if _MOUNTS.exists() else None
    if mount is None:
        return None
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    own = next((line[3:].strip("/") for line in lines if line.startswith("0::")), "")
    return usable_group(mount / own) if own else None


def usable_group(own: Path) -> Path | None:
    """`own`, or its parent if it is the portal's; None if no groups with limits can be made below it."""
    group = own.parent if own.name == PORTAL_GROUP else own
    try:
        controllers = (group / "cgroup.controllers").read_text().split()
    except OSError:
        return None
    ours = all(os.access(group / name, os.W_OK) for name in ("cgroup.procs", "cgroup.subtree_control"))
    return group if ours and set(_CONTROLLERS) <= set(controllers) else None


def divided(group: Path | None) -> Path | None:
    """The group, made ready: its processes, this one among them, are moved into one below it.

    None if that cannot be done, or if there is no group.
    """
    if group is None:
        return None
    try:
        _move_portal(group)
        (group / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in _CONTROLLERS))
    except OSError:
        return None
    return group


def _move_portal(group: Path) -> None:
    """A group whose children have limits may hold no process itself."""
    portal = group / PORTAL_GROUP
    portal.mkdir(exist_ok=True)
    for process in (group / "cgroup.procs").read_text().split():
        with suppress(ProcessLookupError):
            (portal / "cgroup.procs").write_text(process)


def _cgroup_mount(mounts: str) -> Path | None:
    """Where cgroup v2 is mounted. Fields of a line: …, mount point (5th), …, ` - `, type, ….”"""
    for line in mounts.splitlines():
        fields, _, kind = line.partition(" - ")
        if kind.startswith("cgroup2 "):
            return Path(fields.split()[4])
    return None


def make_group(parent: Path, limits: Limits) -> Path:
    """A cgroup for one sandbox. Those of sandboxes that have ended are removed on the way. Raises OSError."""
    for old in _run_groups(parent):
        with suppress(OSError):  # one that is in use is busy
            old.rmdir()
    group = parent / f"{_RUN_GROUP}{os.getpid()}-{secrets.token_hex(4)}"
    group.mkdir()
    if limits.memory:
        (group / "memory.max").write_text(str(limits.memory))
        with suppress(OSError):  # not there without swap accounting
            (group / "memory.swap.max").write_text("0")
    if limits.processes:
        (group / "pids.max").write_text(str(limits.processes))
    (group / "cpu.weight").write_text(str(_CPU_WEIGHT))
    return group


def _run_groups(parent: Path) -> Iterator[Path]:
    return parent.glob(f"{_RUN_GROUP}*")


def ran_out_of_memory(group: Path) -> bool:
    """Whether the kernel ended a process of the group for want of memory."""
    try:
        events = (group / "memory.events").read_text().split()
    except OSError:
        return False
    return dict(zip(events[::2], events[1::2], strict=False)).get("oom_kill", "0") != "0"
