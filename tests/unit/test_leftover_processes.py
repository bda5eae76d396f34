"""What an agent left running is found by its cookie and ended, however it hid (R2)."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tasks_app.agent.leftover_processes import (
    WORKSPACE_VARIABLE,
    Claim,
    kill_earlier_processes,
    kill_own_processes,
    marked_processes,
)
from tasks_app.core.errors import TemporaryFault
from tests.integration.fifo import Fifo

CLAIM = Claim(task_id=7, epoch=3)


@pytest.fixture
def fifo(tmp_path: Path) -> Fifo:
    return Fifo(tmp_path / "alive")


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "work space"
    path.mkdir()
    yield path
    kill_earlier_processes(path, Claim(7, 99))


def start(workspace: Path, fifo: Path, script: str, claim: Claim | None = CLAIM) -> subprocess.Popen[bytes]:
    """Run a shell with the cookie. Whoever holds descriptor 9 counts as alive for the fifo."""
    marks = {WORKSPACE_VARIABLE: str(workspace)} if claim is None else claim.variables(workspace)
    env = {"PATH": os.environ["PATH"], **marks}
    return subprocess.Popen(["sh", "-c", f"exec 9>'{fifo}'\n{script}"], env=env)


def test_where_nothing_runs_nothing_is_ended(workspace: Path) -> None:
    assert marked_processes(workspace) == []
    assert kill_earlier_processes(workspace, CLAIM) == 0


def test_an_agent_and_its_children_are_ended(workspace: Path, fifo: Fifo, tmp_path: Path) -> None:
    agent = start(workspace, tmp_path / "alive", "sleep 600 & echo up >&9; wait")
    fifo.wait_for("up")
    assert agent.pid in marked_processes(workspace)
    assert kill_earlier_processes(workspace, CLAIM) >= 1
    fifo.wait_for_end()
    assert agent.wait() == -9
    assert marked_processes(workspace) == []


def test_a_grandchild_with_a_session_of_its_own_is_ended(workspace: Path, fifo: Fifo, tmp_path: Path) -> None:
    """Fault of the reference tool: killed with -9, the orphan went on working beside its successor."""
    agent = start(workspace, tmp_path / "alive", "setsid sh -c 'echo up >&9; sleep 600' & sleep 600")
    fifo.wait_for("up")
    agent.kill()
    agent.wait()
    assert marked_processes(workspace)
    kill_earlier_processes(workspace, CLAIM)
    fifo.wait_for_end()


def test_who_ignores_signals_is_ended(workspace: Path, fifo: Fifo, tmp_path: Path) -> None:
    agent = start(
        workspace, tmp_path / "alive", "trap '' TERM INT HUP; echo up >&9; while :; do sleep 600; done"
    )
    fifo.wait_for("up")
    kill_earlier_processes(workspace, CLAIM)
    fifo.wait_for_end()
    agent.wait()


def test_who_keeps_forking_is_ended(workspace: Path, fifo: Fifo, tmp_path: Path) -> None:
    runaway = "f() { (setsid sleep 0.05; f) & }; f; f; echo up >&9; wait"
    agent = start(workspace, tmp_path / "alive", runaway)
    fifo.wait_for("up")
    kill_earlier_processes(workspace, CLAIM)
    fifo.wait_for_end()
    agent.wait()
    assert marked_processes(workspace) == []


def test_the_agent_of_another_workspace_continues(workspace: Path, fifo: Fifo, tmp_path: Path) -> None:
    """Fault of the reference tool: two tasks with similar paths shared one state."""
    other = Path(f"{workspace}-2")
    agent = start(other, tmp_path / "alive", "echo up >&9; exec sleep 600")
    fifo.wait_for("up")
    assert kill_earlier_processes(workspace, CLAIM) == 0
    assert agent.poll() is None
    assert kill_earlier_processes(other, CLAIM) == 1
    fifo.wait_for_end()
    agent.wait()


def test_the_caller_itself_is_never_a_leftover(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(WORKSPACE_VARIABLE, str(workspace))
    assert kill_earlier_processes(workspace, CLAIM) == 0


def test_what_cannot_be_ended_in_time_is_an_error(workspace: Path, fifo: Fifo, tmp_path: Path) -> None:
    agent = start(workspace, tmp_path / "alive", "echo up >&9; exec sleep 600")
    fifo.wait_for("up")
    with pytest.raises(TemporaryFault, match=str(agent.pid)):
        kill_earlier_processes(workspace, CLAIM, patience=-1)
    agent.kill()
    agent.wait()


@pytest.mark.parametrize(
    "other",
    [None, Claim(7, 2), Claim(7, 3), Claim(6, 9), Claim(8, 1)],
    ids=["unmarked", "earlier", "own", "task-before", "task-after"],
)
def test_the_holder_of_a_workspace_ends_its_leftover_processes(
    workspace: Path, fifo: Fifo, tmp_path: Path, other: Claim | None
) -> None:
    """Tasks of a sequence share a workspace, and one of them has a holder."""
    agent = start(workspace, tmp_path / "alive", "echo up >&9; exec sleep 600", other)
    fifo.wait_for("up")
    assert kill_earlier_processes(workspace, CLAIM) == 1
    assert agent.wait() == -9


def test_a_later_holder_is_spared(workspace: Path, fifo: Fifo, tmp_path: Path) -> None:
    """R2: a worker that comes back after its lease must not end its successor's agent."""
    agent = start(workspace, tmp_path / "alive", "echo up >&9; exec sleep 600", Claim(7, 4))
    fifo.wait_for("up")
    assert kill_earlier_processes(workspace, CLAIM) == 0
    assert agent.poll() is None
    kill_own_processes(workspace, Claim(7, 4))
    agent.wait()


@pytest.mark.parametrize("other", [None, Claim(7, 2), Claim(7, 4), Claim(8, 3)])
def test_after_a_run_only_what_it_started_itself_is_ended(
    workspace: Path, fifo: Fifo, tmp_path: Path, other: Claim | None
) -> None:
    agent = start(workspace, tmp_path / "alive", "echo up >&9; exec sleep 600", other)
    fifo.wait_for("up")
    assert kill_own_processes(workspace, CLAIM) == 0
    assert agent.poll() is None
    agent.kill()
    agent.wait()
