"""Starting without what is demanded: the sandbox (R4), the database, Redis."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests import forkserver


@pytest.mark.parametrize("command", ["up", "worker"])
def test_nothing_starts_without_the_sandbox_that_is_demanded(command: str, tmp_path: Path) -> None:
    """With a sentence, not with a traceback; a PATH without bubblewrap is a machine without it."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("git", "sh"):
        (programs / name).symlink_to(str(shutil.which(name)))
    done = _started(command, tmp_path, PATH=str(programs), CATHERDER_SANDBOX="require")
    assert done.returncode == 2
    assert "CATHERDER_SANDBOX=require, but there is no sandbox: bubblewrap is not installed" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", ["up", "worker"])
@pytest.mark.parametrize(
    ("variable", "address"),
    [
        ("DATABASE_URL", "postgresql://ann:secret@127.0.0.1:1/herd"),
        ("REDIS_URL", "redis://:secret@127.0.0.1:1"),
    ],
)
def test_a_service_that_does_not_answer_stops_the_start_and_is_named(
    command: str, variable: str, address: str, tmp_path: Path
) -> None:
    done = _started(command, tmp_path, **{variable: address})
    assert done.returncode == 2
    assert f"{variable}: " in done.stderr and "cannot be used: " in done.stderr
    assert "Traceback" not in done.stderr and "secret" not in done.stderr


def _started(command: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    kept = {"PATH": os.environ["PATH"], "CATHERDER_BIND": "127.0.0.1:0"}
    env = {**kept, "CATHERDER_DATA_DIR": str(folder / "data"), **variables}
    return forkserver.run(["manage.py", command], env)
