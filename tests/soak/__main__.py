"""`make soak`: kill web server, worker and agents at random while people answer, and count what was lost.

The real program, its model a script. Tasks are created and answered through the API, by a client that sends
again what was not acknowledged. The seed is printed, so that a bad round can be played once more.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
from pathlib import Path

from tests import machine


def main() -> int:
    parser = argparse.ArgumentParser(prog="make soak", description=__doc__)
    parser.add_argument("--cycles", type=int, default=200, help="how many processes are killed (200)")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="of the choices (random)")
    parser.add_argument("--tasks", type=int, default=4, help="tasks at work at the same time (4)")
    parser.add_argument("--pause", type=float, default=6.0, help="most seconds between two kills (6)")
    parser.add_argument("--database", default="", help="a PostgreSQL address to use (SQLite)")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="cat-herder-soak-", ignore_cleanup_errors=True) as folder:
        _use_data_dir(Path(folder) / "data", chosen.database)
        import django

        django.setup()
        from tests.soak.soak import Soak

        print(f"seed {chosen.seed}, {chosen.cycles} cycles", flush=True)
        soak = Soak(Path(folder), seed=chosen.seed, tasks=chosen.tasks, longest_pause=chosen.pause)
        return soak.run(chosen.cycles)


def _use_data_dir(data_dir: Path, database: str) -> None:
    machine.forget_this_machine(os.environ)
    os.environ["DJANGO_SETTINGS_MODULE"] = "catherder_site.settings"
    os.environ["CATHERDER_DATA_DIR"] = str(data_dir)
    os.environ["CATHERDER_API_RATE"] = "0"
    os.environ["ANTHROPIC_API_KEY"] = "a-key"
    if database:
        os.environ["DATABASE_URL"] = database


if __name__ == "__main__":
    sys.exit(main())
