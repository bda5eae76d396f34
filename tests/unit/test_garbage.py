"""Looking for garbage leaves out what a process has loaded (F: pages stay quick)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import gc, json
from tasks_app.core import process_memory

gc.disable()
loaded = [[] for _ in range(1_000)]
process_memory.keep_what_is_loaded()
frozen = [gc.get_freeze_count()]
for _ in range(process_memory.FREEZES + 1):
    loaded += [[] for _ in range(1_000)]
    gc.collect(1)
    frozen.append(gc.get_freeze_count())
    gc.collect()
    frozen.append(gc.get_freeze_count())
cycle = []
cycle.append(cycle)
del cycle
print(json.dumps([gc.isenabled(), frozen, gc.collect()]))
"""


def test_what_survives_the_first_full_collections_is_looked_at_no_more() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=Path(__file__).parents[2], check=True, capture_output=True
    )
    is_enabled, (first, *frozen), collected = json.loads(done.stdout)
    assert is_enabled and first >= 1_000
    before, after = frozen[::2], frozen[1::2]
    grown = [two - one for one, two in zip(before, after, strict=True)]
    assert all(more >= 1_000 for more in grown[:-1]), "only full collections add to it"
    assert grown[-1] <= 0, "and only the first ones"
    assert before[1:] == after[:-1] and collected == 1, "new garbage is found as before"
