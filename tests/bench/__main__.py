"""`make bench`: every figure of the specification's section F that this machine can measure."""

from __future__ import annotations

import argparse
import os
import platform

from tests.bench import halting, history, storing
from tests.bench.metrics import show


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, default=15, help="tasks that halt once each (15)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of many agents writing at once (3)")
    parser.add_argument(
        "--history", type=int, default=100_000, help="tasks in the history that is asked for (100,000)"
    )
    chosen = parser.parse_args()
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, SQLite")
    print(f"{'':<66} {'median':>10} {'':<6} {'least to most':<22} {'':<6} wanted")
    show(halting.measure(chosen.tasks))
    show(storing.measure(chosen.rounds))
    show(history.measure(chosen.history, requests=30))


if __name__ == "__main__":
    main()
