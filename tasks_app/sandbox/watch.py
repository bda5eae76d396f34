"""Watching what the processes of a sandbox use together, which no rlimit can limit (M7)."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tasks_app.core.errors import TemporaryFault
from tasks_app.sandbox.limits import (
    Limits,
    format_size,
    lower_autogroups,
    ran_out_of_memory,
    ran_out_of_processes,
)

#: Seconds between two checks of processes and free space, and of folders, which take longer.
CHECK_SECONDS = 1.0
FOLDER_SECONDS = 15.0

#: Bytes that a file counts at least: an empty one takes space on the disk, too.
_MIN_FILE_SIZE = 4096
#: One in as many of the files that a file system can have must stay free.
_FREE_FILES = 50


@dataclass(frozen=True)
class Used:
    """Bytes of memory, with shared memory but without files, and the number of processes."""

    memory: int
    processes: int


class Watch:
    """Watches one sandbox, whose first process is `pid`. `folders` are those that count for `disk`."""

    def __init__(
        self, limits: Limits, pid: int, *, folders: Sequence[Path], group: Path | None = None
    ) -> None:
        self._limits = limits
        self._pid = pid
        self._folders = folders
        self._group = group
        self._next_check = 0.0
        self._next_folders = time.monotonic() + FOLDER_SECONDS

    def problem(self) -> str:
        """Return which limit is exceeded, in a sentence, or "". It may be called often: it checks rarely.

        Raises TemporaryFault if the disk has less free space than it must keep: that is no fault of the
        sandbox, unless its own files are the reason.
        """
        now = time.monotonic()
        if now < self._next_check:
            return ""
        self._next_check = now + CHECK_SECONDS
        if self._group is None:
            lower_autogroups(_descendants(self._pid))
        return self._process_problem() or self._disk_problem(now)

    def final_problem(self) -> str:
        """Return which limit the kernel has held the sandbox to, or "". To be called also after its end."""
        if self._group is None:
            return ""
        if ran_out_of_memory(self._group):
            return (
                f"It used more memory than the {format_size(self._limits.memory)} that an agent or check may"
                " use (CATHERDER_AGENT_MEMORY)."
            )
        if ran_out_of_processes(self._group):
            return self._too_many_processes()
        return ""

    def _process_problem(self) -> str:
        if self._group is not None or not (self._limits.memory or self._limits.processes):
            return self.final_problem()
        used = usage_of(self._pid, most_processes=self._limits.processes)
        if 0 < self._limits.memory < used.memory:
            used = exact_usage_of(self._pid)
        if 0 < self._limits.memory < used.memory:
            return (
                f"It used {format_size(used.memory)} of memory in {used.processes} processes, more than the "
                f"{format_size(self._limits.memory)} that an agent or check may use (CATHERDER_AGENT_MEMORY)."
            )
        if 0 < self._limits.processes < used.processes:
            return self._too_many_processes()
        return ""

    def _too_many_processes(self) -> str:
        return (
            f"It had too many processes at once: more than the {self._limits.processes} that an agent or "
            "check may have (CATHERDER_AGENT_PROCESSES)."
        )

    def _disk_problem(self, now: float) -> str:
        disk_is_full = self._disk_is_nearly_full()
        if self._limits.disk and (now >= self._next_folders or disk_is_full):
            self._next_folders = now + FOLDER_SECONDS
            used = 0
            for folder in self._folders:
                used += size_of_folder(folder, most=self._limits.disk - used)
            if used > self._limits.disk:
                return (
                    f"Its files take more than the {format_size(self._limits.disk)} that workspace and home"
                    " of a task may hold (CATHERDER_AGENT_DISK)."
                )
        if disk_is_full:
            raise TemporaryFault(
                f"The disk of {self._folders[0]} is nearly full: less than"
                f" {format_size(self._limits.free_disk)} is free (CATHERDER_KEEP_FREE_DISK), or room for few"
                " more files. Make room; `cat-herder clean_up workspaces` helps."
            )
        return ""

    def _disk_is_nearly_full(self) -> bool:
        if not self._limits.free_disk or not self._folders:
            return False
        disk = os.statvfs(self._folders[0])
        few_files = disk.f_files > 0 and disk.f_favail < disk.f_files // _FREE_FILES
        return few_files or disk.f_bavail * disk.f_frsize < self._limits.free_disk


def usage_of(pid: int, *, most_processes: int = 0) -> Used:
    """Return at most what the process and all its descendants use: shared memory counts for each of them.

    In a PID namespace no process can leave that tree. Stops after one process more than `most_processes`,
    because examining a fork bomb would take longer than its growth.
    """
    memory = processes = 0
    for process in _descendants(pid):
        if (used := _memory_of(process)) is None:
            continue
        memory += used
        processes += 1
        if 0 < most_processes < processes:
            return Used(memory, processes)
    return Used(memory + sum(_unnamed_files(pid).values()), processes)


def exact_usage_of(pid: int) -> Used:
    """Return what the processes use, with shared memory counted once, which takes the kernel longer.

    A file in memory counts as mapped or as open, whichever is more.
    """
    own = shared = processes = 0
    for process in _descendants(pid):
        sizes = _sizes_in_proc(process, "smaps_rollup")
        if not sizes:  # the file may not be read
            own += _memory_of(process) or 0
        own += sizes.get("Pss_Anon", 0) + sizes.get("SwapPss", 0)
        shared += sizes.get("Pss_Shmem", 0)
        processes += 1
    return Used(own + max(shared, sum(_unnamed_files(pid).values())), processes)


def _memory_of(pid: int) -> int | None:
    """Return the own and shared memory of a process, also what was swapped out; None if it has ended."""
    sizes = _sizes_in_proc(pid, "status")
    if not sizes:
        return None
    if "RssAnon" not in sizes:  # it has ended
        return 0
    return sizes["RssAnon"] + sizes["RssShmem"] + sizes.get("VmSwap", 0)


def _sizes_in_proc(pid: int, name: str) -> dict[str, int]:
    """Return the values in kB of a file in /proc/PID, in bytes by name; empty if it cannot be read."""
    try:
        text = Path(f"/proc/{pid}/{name}").read_text(errors="replace")
    except OSError:
        return {}
    rows = (line.split() for line in text.splitlines())
    return {row[0].rstrip(":"): int(row[1]) * 1024 for row in rows if len(row) == 3 and row[2] == "kB"}


def _unnamed_files(pid: int) -> dict[tuple[int, int], int]:
    """Return the bytes of each file without a name (memfd_create) that a process has open, mapped or not."""
    found: dict[tuple[int, int], int] = {}
    for process in _descendants(pid):
        try:
            for descriptor in os.scandir(f"/proc/{process}/fd"):
                with suppress(OSError):
                    if os.readlink(descriptor.path).startswith("/memfd:"):  # noqa: PTH115 (quick)
                        status = descriptor.stat()
                        found[status.st_dev, status.st_ino] = status.st_blocks * 512
        except OSError:
            continue
    return found


def _descendants(pid: int) -> Iterator[int]:
    waiting = [pid]
    while waiting:
        process = waiting.pop()
        yield process
        for task in _thread_ids(process):
            try:
                waiting += map(int, Path(f"/proc/{process}/task/{task}/children").read_text().split())
            except OSError:
                continue


def _thread_ids(pid: int) -> list[str]:
    try:
        return [path.name for path in Path(f"/proc/{pid}/task").iterdir()]
    except OSError:
        return []


def size_of_folder(folder: Path, *, most: int | None = None) -> int:
    """Return the bytes on disk; counting stops beyond `most`. A file with several names counts once.

    Files that disappear or cannot be read do not count.
    """
    total, waiting, linked = 0, [str(folder)], set[tuple[int, int]]()
    while waiting and (most is None or total <= most):
        for entry, status in _entries(waiting.pop()):
            if entry.is_dir(follow_symlinks=False):
                waiting.append(entry.path)
            elif status.st_nlink > 1:
                if (status.st_dev, status.st_ino) in linked:
                    continue
                linked.add((status.st_dev, status.st_ino))
            total += max(status.st_blocks * 512, _MIN_FILE_SIZE)
    return total


def _entries(folder: str) -> Iterator[tuple[os.DirEntry[str], os.stat_result]]:
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with suppress(OSError):
                yield entry, entry.stat(follow_symlinks=False)
