"""R1, R2: a short soak. `make soak` is the long one."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.forkserver import REPOSITORY


@pytest.mark.bubblewrap
@pytest.mark.once(on="sqlite")
def test_ten_deaths_at_random_lose_nothing() -> None:
    """The seed is in the output of a run that failed."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.soak", "--cycles", "10"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=550,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "faults: 0" in done.stdout
