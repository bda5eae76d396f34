"""R1, R2: a short soak. `make soak` is the long one."""

from __future__ import annotations

import random
import shlex
import subprocess
import sys

import pytest

from tests.forkserver import REPOSITORY


@pytest.mark.bubblewrap
@pytest.mark.once(on="sqlite")
def test_ten_deaths_at_random_lose_nothing() -> None:
    # Short pauses: in each of them the real agent program keeps all processors busy.
    arguments = ["--cycles", "10", "--pause", "2", "--seed", str(random.randrange(10**6))]
    print("To do it again: make soak ARGS=" + shlex.quote(shlex.join(arguments)))
    done = subprocess.run(
        [sys.executable, "-m", "tests.soak", *arguments],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=550,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "faults: 0" in done.stdout
