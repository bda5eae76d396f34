"""What an agent left running is found by its cookie and ended, however it hid (R2)."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tasks_app.agents.leftovers import COOKIE, end_leftovers, leftovers
from tests.integration.fifo import Fifo


@pytest.fixture
def fifo(tmp_path: Path) -> Fifo:
    return Fifo(tmp_path / "alive")


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "work space"
    path.mkdir()
    yield path
    end_leftovers(path)


def start(workspace: Path, fifo: Path, script: str) -> subprocess.Popen[bytes]:
    """Run a shell with the cookie. Whoever holds descriptor 9 counts as alive for the fifo."""
    env = {"PATH": os.environ["PATH"], COOKIE: str(workspace)}
    return subprocess.Popen(["sh", "-c", f"exec 9>'{fifo}'\n{script}"], env=env)


def test_where_nothing_runs_nothing_is_ended(workspace: Path) -> None:
    assert leftovers(workspace) == []
    assert end_leftovers(workspace) == 0


def test_an_agent_and_its_children_are_ended(workspace: Path, fifo: Fifo, tmp_path: Path) -> None:
    agent = start(workspace, tmp_path / "alive", "sleep 600 & echo up >&9; wait")
    fifo.wait_for("up")
    assert agent.pid in leftovers(workspace)
    assert end_leftovers(workspace) >= 1
    fifo.wait_for_end()
    assert agent.wait() == -9
    assert leftovers(workspace) == []


def test_a_grandchild_with_a_session_of_its_own_is_ended(workspace: Path, fifo: Fifo, tmp_path: Path) -> None:
    """Fault of the reference tool: killed with -9, the orphan went on working beside its successor."""
    agent = start(workspace, tmp_path / "alive", "setsid sh -c 'echo up >&9; sleep 600' & sleep 600")
    fifo.wait_for("up")
    agent.kill()
    agent.wait()
    assert leftovers(workspace)
    end_leftovers(workspace)
    fifo.wait_for_end()


def test_who_ignores_signals_is_ended(workspace: Path, fifo: Fifo, tmp_path: Path) -> None:
    agent = start(
        workspace, tmp_path / "alive", "trap '' TERM INT HUP; echo up >&9; while :; do sleep 600; done"
    )
    fifo.wait_for("up")
    end_leftovers(workspace)
    fifo.wait_for_end()
    agent.wait()


def test_who_keeps_forking_is_ended(workspace: Path, fifo: Fifo, tmp_path: Path) -> None:
    runaway = "f() { (setsid sleep 0.05; f) & }; f; f; echo up >&9; wait"
    agent = start(workspace, tmp_path / "alive", runaway)
    fifo.wait_for("up")
    end_leftovers(workspace)
    fifo.wait_for_end()
    agent.wait()
    assert leftovers(workspace) == []


def test_the_agent_of_another_workspace_goes_on(workspace: Path, fifo: Fifo, tmp_path: Path) -> None:
    """Fault of the reference tool: two tasks with similar paths shared one state."""
    other = Path(f"{workspace}-2")
    agent = start(other, tmp_path / "alive", "echo up >&9; exec sleep 600")
    fifo.wait_for("up")
    assert end_leftovers(workspace) == 0
    assert agent.poll() is None
    assert end_leftovers(other) == 1
    fifo.wait_for_end()
    agent.wait()


def test_the_caller_itself_is_never_a_leftover(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(COOKIE, str(workspace))
    assert end_leftovers(workspace) == 0


def test_what_cannot_be_ended_in_time_is_an_error(workspace: Path, fifo: Fifo, tmp_path: Path) -> None:
    agent = start(workspace, tmp_path / "alive", "echo up >&9; exec sleep 600")
    fifo.wait_for("up")
    with pytest.raises(TimeoutError, match=str(agent.pid)):
        end_leftovers(workspace, patience=-1)
    agent.kill()
    agent.wait()
