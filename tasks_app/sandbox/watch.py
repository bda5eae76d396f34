"""Watching what a sandbox uses: the sum over its processes, which no rlimit bounds (M7)."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tasks_app.core.errors import PassingFault
from tasks_app.sandbox.limits import Limits, ran_out_of_memory, size

#: Between two looks at processes and free space; and at folders, which takes longer the more is in them.
LOOK_SECONDS = 1.0
FOLDER_SECONDS = 15.0


#: What a file counts at least, as an empty one takes room on the disk as well.
_LEAST_OF_A_FILE = 4096
#: Of the files that a file system can have, the share that must stay free: one of so many.
_FREE_FILES = 50


@dataclass(frozen=True)
class Used:
    """Bytes of memory, shared memory included but no files, and how many processes there are."""

    memory: int
    processes: int


class Watch:
    """Looks after one sandbox, whose first process is `pid`. `folders` are those that count for `disk`."""

    def __init__(
        self, limits: Limits, pid: int, *, folders: Sequence[Path], group: Path | None = None
    ) -> None:
        self._limits = limits
        self._pid = pid
        self._folders = folders
        self._group = group
        self._next_look = 0.0
        self._next_folders = time.monotonic() + FOLDER_SECONDS

    def problem(self) -> str:
        """Which limit is passed, in a sentence; empty if none is. Cheap when asked more often than it looks.

        Raises PassingFault if the disk has less free space than it must keep: that is no fault of the
        sandbox, unless its own files are why.
        """
        now = time.monotonic()
        if now < self._next_look:
            return ""
        self._next_look = now + LOOK_SECONDS
        return self._of_processes() or self._of_disk(now)

    def last_words(self) -> str:
        """Why the sandbox's processes were ended, if the kernel did it; asked after their end."""
        if self._group is not None and ran_out_of_memory(self._group):
            return f"It used more memory than the {size(self._limits.memory)} that an agent or check may use."
        return ""

    def _of_processes(self) -> str:
        if self._group is not None or not (self._limits.memory or self._limits.processes):
            return self.last_words()
        used = usage_of(self._pid, most_processes=self._limits.processes)
        if 0 < self._limits.memory < used.memory:
            used = exact_usage_of(self._pid)
        if 0 < self._limits.memory < used.memory:
            return (
                f"It used {size(used.memory)} of memory in {used.processes} processes, more than the "
                f"{size(self._limits.memory)} that an agent or check may use (CATHERDER_AGENT_MEMORY)."
            )
        if 0 < self._limits.processes < used.processes:
            return (
                f"It had too many processes at once: more than the {self._limits.processes} that an agent or "
                "check may have (CATHERDER_AGENT_PROCESSES)."
            )
        return ""

    def _of_disk(self, now: float) -> str:
        short = self._is_short_of_space()
        if not self._limits.disk or (now < self._next_folders and not short):
            return self._complain(short)
        self._next_folders = now + FOLDER_SECONDS
        held = 0
        for folder in self._folders:
            held += size_of_folder(folder, most=self._limits.disk - held)
        if held > self._limits.disk:
            return (
                f"Its files take more than the {size(self._limits.disk)} that workspace and home of a task "
                "may hold (CATHERDER_AGENT_DISK)."
            )
        return self._complain(short)

    def _is_short_of_space(self) -> bool:
        if not self._limits.free_disk or not self._folders:
            return False
        disk = os.statvfs(self._folders[0])
        few_files = disk.f_files > 0 and disk.f_favail < disk.f_files // _FREE_FILES
        return few_files or disk.f_bavail * disk.f_frsize < self._limits.free_disk

    def _complain(self, short: bool) -> str:
        if short:
            raise PassingFault(
                f"The disk of {self._folders[0]} is nearly full: less than {size(self._limits.free_disk)} is "
                "free (CATHERDER_KEEP_FREE_DISK), or room for few more files. Make room; "
                "`manage.py clean_workspaces` helps."
            )
        return ""


def usage_of(pid: int, *, most_processes: int = 0) -> Used:
    """What the process and all its descendants use, at most: what several share counts for each of them.

    In a PID namespace none can leave that tree. Looks no further than one process beyond `most_processes`,
    as looking at a fork bomb would take longer than it takes to grow.
    """
    memory = processes = 0
    for process in _descendants(pid):
        if (used := _memory_of(process)) is None:
            continue
        memory += used
        processes += 1
        if 0 < most_processes < processes:
            break
    files = sum(_memory_files(pid).values()) if not 0 < most_processes < processes else 0
    return Used(memory + files, processes)


def exact_usage_of(pid: int) -> Used:
    """The same where what several processes share counts once, which takes the kernel longer to say.

    A file in memory counts as mapped or as open, whichever is more.
    """
    own = shared = processes = 0
    for process in _descendants(pid):
        told = _lines(process, "smaps_rollup")
        if not told:  # it may not be looked at that closely
            own += _memory_of(process) or 0
        own += told.get("Pss_Anon", 0) + told.get("SwapPss", 0)
        shared += told.get("Pss_Shmem", 0)
        processes += 1
    return Used(own + max(shared, sum(_memory_files(pid).values())), processes)


def _memory_of(pid: int) -> int | None:
    """Its own and its shared memory, also what was swapped out; None if it has ended."""
    told = _lines(pid, "status")
    if "RssAnon" not in told:  # it has ended
        return None if not told else 0
    return told["RssAnon"] + told["RssShmem"] + told.get("VmSwap", 0)


def _lines(pid: int, name: str) -> dict[str, int]:
    """The lines of a file in /proc/PID that have a number of kB, in bytes; empty if there is none."""
    try:
        text = Path(f"/proc/{pid}/{name}").read_text(errors="replace")
    except OSError:
        return {}
    rows = (line.split() for line in text.splitlines())
    return {row[0].rstrip(":"): int(row[1]) * 1024 for row in rows if len(row) == 3 and row[2] == "kB"}


def _memory_files(pid: int) -> dict[tuple[int, int], int]:
    """Bytes of each file without a name (memfd_create) that one of the processes has open, mapped or not."""
    found: dict[tuple[int, int], int] = {}
    for process in _descendants(pid):
        try:
            for descriptor in os.scandir(f"/proc/{process}/fd"):
                with suppress(OSError):
                    if os.readlink(descriptor.path).startswith("/memfd:"):  # noqa: PTH115 (quick)
                        facts = descriptor.stat()
                        found[facts.st_dev, facts.st_ino] = facts.st_blocks * 512
        except OSError:
            continue
    return found


def _descendants(pid: int) -> Iterator[int]:
    waiting = [pid]
    while waiting:
        process = waiting.pop()
        yield process
        for task in _tasks(process):
            try:
                waiting += map(int, Path(f"/proc/{process}/task/{task}/children").read_text().split())
            except OSError:
                continue


def _tasks(pid: int) -> list[str]:
    try:
        return [path.name for path in Path(f"/proc/{pid}/task").iterdir()]
    except OSError:
        return []


def size_of_folder(folder: Path, *, most: int | None = None) -> int:
    """Bytes on disk, counted no further than to beyond `most`. A file with several names counts once.

    What goes away or cannot be read meanwhile counts as nothing.
    """
    total, waiting, linked = 0, [str(folder)], set[tuple[int, int]]()
    while waiting and (most is None or total <= most):
        for entry, facts in _entries(waiting.pop()):
            if entry.is_dir(follow_symlinks=False):
                waiting.append(entry.path)
            elif facts.st_nlink > 1:
                if (facts.st_dev, facts.st_ino) in linked:
                    continue
                linked.add((facts.st_dev, facts.st_ino))
            total += max(facts.st_blocks * 512, _LEAST_OF_A_FILE)
    return total


def _entries(folder: str) -> Iterator[tuple[os.DirEntry[str], os.stat_result]]:
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with suppress(OSError):
                yield entry, entry.stat(follow_symlinks=False)
