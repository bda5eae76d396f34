"""Python that imports what each process of the portal has to import, and does nothing."""

from __future__ import annotations

import subprocess
import sys
import time

from tests.bench import processes
from tests.forkserver import PATIENCE, REPOSITORY
from tests.portal import UpPortal
from tests.processes import start_process

WITH_DJANGO = "import django; django.setup()"
ALONE = "pass"


def import_ms(portal: UpPortal) -> float:
    """Return the milliseconds in which Python imports Django and the models, from start to end."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", WITH_DJANGO], cwd=REPOSITORY, env=portal.env(), check=True)
    return (time.perf_counter() - began) * 1000


def memory(portal: UpPortal, code: str) -> float:
    """Return the MB that a Python process has for itself after it ran the code."""
    waiting = f"{code}\nimport sys; print(flush=True); sys.stdin.read()"
    process = start_process(
        [sys.executable, "-c", waiting],
        cwd=REPOSITORY,
        env=portal.env(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout
    process.stdout.readline()
    found = processes.own_memory(process.pid)
    process.communicate(timeout=PATIENCE)
    return found / 1000
