"""How soon `up` shows its first page, and what its processes keep in memory at rest."""

from __future__ import annotations

import tempfile
import time
import urllib.request
from pathlib import Path

from tests.bench import processes
from tests.bench.floors import bare_python
from tests.bench.metrics import Metric
from tests.portal import UpPortal

#: Seconds after which a started portal is at rest.
SETTLING = 5.0


def measure(rounds: int) -> list[Metric]:
    """Start a portal whose database is up to date `rounds` times; the first start is not counted."""
    page = Metric("`up` → its first page", "ms", "2,000")
    django = Metric("floor: Python imports Django and the portal's models", "ms")
    page.floor = [django]
    with_django = Metric("floor: memory of Python with Django and the portal's models", "MB")
    python = Metric("floor: memory of Python alone", "MB")
    memory = {
        word: Metric(f"memory of the {name} at rest, its own", "MB", wanted, floor=[floor])
        for word, name, wanted, floor in (
            ("uvicorn", "web server", "", with_django),
            ("worker", "worker", "below 100", with_django),
            ("", "supervisor", "", python),
        )
    }
    with tempfile.TemporaryDirectory() as folder:
        portal = UpPortal(Path(folder) / "data").start()
        portal.stop()
        for _ in range(rounds):
            django.samples.append(bare_python.import_ms(portal))
            page.samples.append(_start(portal))
            assert portal.process
            time.sleep(SETTLING)
            for word, metric in memory.items():
                pid = processes.child(portal.process.pid, word) if word else portal.process.pid
                metric.samples.append(processes.own_memory(pid) / 1000)
            with_django.samples.append(bare_python.memory(portal, bare_python.WITH_DJANGO))
            python.samples.append(bare_python.memory(portal, bare_python.ALONE))
            portal.stop()
    return [page, django, *memory.values(), with_django, python]


def _start(portal: UpPortal) -> float:
    began = time.perf_counter()
    portal.start()
    with urllib.request.urlopen(f"{portal.url}/login/", timeout=60) as page:
        page.read()
    return (time.perf_counter() - began) * 1000
