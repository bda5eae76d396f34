"""What processes of this machine use: memory and CPU time, read from /proc."""

from __future__ import annotations

import os
import re
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def own_memory(pid: int) -> float:
    """Return the kB that only this process has: what would be free without it."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return float(sum(int(size) for size in re.findall(r"^Private_\w+: +(\d+) kB", rollup, re.MULTILINE)))


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process, its threads and its children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / _TICKS


def cpu_seconds_of_this_machine() -> tuple[float, float]:
    """Return the CPU time that all processes together have used, and what all cores had to give."""
    used, idle = 0, 0
    for position, ticks in enumerate(Path("/proc/stat").read_text().splitlines()[0].split()[1:9]):
        if position in (3, 4):
            idle += int(ticks)
        else:
            used += int(ticks)
    return used / _TICKS, (used + idle) / _TICKS


def child(pid: int, word: str) -> int:
    """Return the child of a process that has this word in its command line."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    (found,) = (one for one in children if word in Path(f"/proc/{one}/cmdline").read_text())
    return int(found)
