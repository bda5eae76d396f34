"""Files in /proc about the processes of this machine.

They are read of every process, for each connection and before each run of an agent, so not with pathlib,
which takes three times as long.
"""

from __future__ import annotations

import os

_READ_BYTES = 1 << 16


def process_ids() -> list[int]:
    with os.scandir("/proc") as entries:
        return [int(entry.name) for entry in entries if entry.name.isdecimal()]


def read_process_file(pid: int | str, name: str) -> bytes:
    """Return the content of /proc/PID/NAME. Raises OSError if the process has ended or is not ours."""
    descriptor = os.open(f"/proc/{pid}/{name}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        content = b""
        while part := os.read(descriptor, _READ_BYTES):
            content += part
        return content
    finally:
        os.close(descriptor)
