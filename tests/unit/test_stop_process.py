"""git that is stopped in the middle of its output leaves nothing behind."""

from __future__ import annotations

import asyncio
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

from tasks_app.worker_api.git_service import stop_process


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.asyncio
async def test_the_pipes_of_a_process_whose_output_nobody_reads_any_more_are_closed() -> None:
    """As after a client that went away while it received a pack."""
    before = open_files()
    process = await asyncio.create_subprocess_exec(
        "sh", "-c", "yes | head -c 50000000", stdin=PIPE, stdout=PIPE, stderr=PIPE, start_new_session=True
    )
    assert process.stdout is not None and await process.stdout.read(10)
    await asyncio.sleep(0.1)  # so much has come that no more is read
    await stop_process(process)
    await asyncio.sleep(0)
    assert process.returncode is not None and open_files() == before
