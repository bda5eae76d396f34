"""`make bench`: every figure of the specification's section F that this machine can measure."""

from __future__ import annotations

import argparse
import json
import os
import platform
from collections.abc import Callable
from pathlib import Path

from tests.bench import answering, halting, history, memory, pages, starting, storing, undoing, writing
from tests.bench.metrics import Metric, show

#: The parts of the benchmark; each takes the options and returns what it found.
PARTS: dict[str, Callable[[argparse.Namespace], list[Metric]]] = {
    "starting": lambda chosen: starting.measure(chosen.rounds),
    "halting": lambda chosen: halting.measure(chosen.tasks),
    "undoing": lambda chosen: undoing.measure(chosen.tasks),
    "storing": lambda chosen: storing.measure(chosen.rounds),
    "answering": lambda chosen: answering.measure(chosen.rounds),
    "writing": lambda chosen: writing.measure(chosen.rounds),
    "memory": lambda chosen: memory.measure(chosen.memory_tasks),
    "pages": lambda chosen: pages.measure(requests=30),
    "history": lambda chosen: history.measure(chosen.history, requests=30),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=15, help="tasks that halt once each (15)")
    parser.add_argument(
        "--rounds", type=int, default=3, help="starts, and rounds of many agents writing at once (3)"
    )
    parser.add_argument(
        "--history", type=int, default=100_000, help="tasks in the history that is asked for (100,000)"
    )
    parser.add_argument(
        "--memory-tasks", type=int, default=1_000, help="tasks after which memory is measured last (1,000)"
    )
    parser.add_argument("--json", metavar="FILE", type=Path, help="also write all samples to a file")
    parser.add_argument("--only", choices=sorted(PARTS), nargs="+", default=list(PARTS), help="(all parts)")
    chosen = parser.parse_args()
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, SQLite"
    print(machine)
    print(f"{'':<66} {'median':>10} {'':<6} {'least to most':<22} {'':<6} {'floor ×, rate ÷':<18} wanted")
    found = [metric for part in chosen.only for metric in show(PARTS[part](chosen))]
    if chosen.json:
        figures = {"machine": machine, "metrics": [metric.as_json() for metric in found]}
        chosen.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
