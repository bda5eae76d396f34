"""How soon `up` shows its first page, and what its processes keep in memory at rest."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from tests.bench import processes
from tests.bench.metrics import Metric
from tests.forkserver import REPOSITORY
from tests.portal import UpPortal

#: Seconds after which a started portal is at rest.
SETTLING = 5.0


def measure(rounds: int) -> list[Metric]:
    """Start a portal whose database is up to date `rounds` times; the first start is not counted."""
    page = Metric("`up` → its first page", "ms", "2,000")
    django = Metric("floor: Python imports Django and the portal's models", "ms")
    page.floor = [django]
    memory = {
        word: Metric(f"memory of the {name} at rest, its own", "MB", wanted)
        for word, name, wanted in (
            ("uvicorn", "web server", ""),
            ("worker", "worker", "below 100"),
            ("", "supervisor", ""),
        )
    }
    with tempfile.TemporaryDirectory() as folder:
        portal = UpPortal(Path(folder) / "data").start()
        portal.stop()
        for _ in range(rounds):
            django.samples.append(_import_django(portal))
            page.samples.append(_start(portal))
            assert portal.process
            time.sleep(SETTLING)
            for word, metric in memory.items():
                pid = processes.child(portal.process.pid, word) if word else portal.process.pid
                metric.samples.append(processes.own_memory(pid) / 1000)
            portal.stop()
    return [page, django, *memory.values()]


def _start(portal: UpPortal) -> float:
    began = time.perf_counter()
    portal.start()
    with urllib.request.urlopen(f"{portal.url}/login/", timeout=60) as page:
        page.read()
    return (time.perf_counter() - began) * 1000


def _import_django(portal: UpPortal) -> float:
    code = "import django; django.setup()"
    env = {**portal.env(), "DJANGO_SETTINGS_MODULE": "catherder_site.settings"}
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, env=env, check=True)
    return (time.perf_counter() - began) * 1000
