"""A gate that cannot judge a call stops it, by the word of the agent's program itself (R1, R4)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tasks_app.agent import run_setup
from tasks_app.agent.port import RunResult
from tests import machine
from tests.agents import Bench, real_bench

pytestmark = [pytest.mark.bubblewrap, pytest.mark.once(on="sqlite")]

#: What stands in the place of the gate: each would let the call through without `onFailure`.
BROKEN = {
    "crash": "exit 1",
    "killed": "kill -KILL $$",
    "no-decision": "echo '{\"hookSpecificOutput\": {'; exit 3",
    "time-out": "sleep 60",
    "missing": "/no/such/program",
    "not-executable": "/etc/passwd",
}


def made_calls(bench: Bench) -> RunResult:
    return bench.run(bench.order("rehearsal: approval-beside-work", ask_before=("Bash(*guarded*)",)))


@pytest.mark.parametrize("command", BROKEN.values(), ids=BROKEN)
def test_no_call_is_made_with_a_broken_gate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setattr(run_setup, "gate_command", lambda inside: command)
    monkeypatch.setattr(run_setup, "HOOK_SECONDS", 1)
    with real_bench(tmp_path, machine.sandbox(tmp_path / "data")) as bench:
        made_calls(bench)
        assert list(bench.workspace.iterdir()) == []
        assert len(bench.results()) == 3


def test_the_same_calls_are_made_with_a_gate_that_works(tmp_path: Path) -> None:
    """So that the test above shows the broken gate and nothing else."""
    with real_bench(tmp_path, machine.sandbox(tmp_path / "data")) as bench:
        made_calls(bench)
        assert {path.name for path in bench.workspace.iterdir()} == {"before.txt", "after.txt"}


#: Without pause: the gate lives for some hundredths of a second.
KILLER = """\
import os, pathlib
own = os.getpid()
pathlib.Path("started").touch()
while True:
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != own:
            try:
                if b"gate" in pathlib.Path("/proc", name, "cmdline").read_bytes():
                    os.kill(int(name), 9)
                    pathlib.Path("killed").touch()
            except OSError:
                pass
"""


def test_a_gate_that_a_process_of_the_agent_kills_stops_the_call(tmp_path: Path) -> None:
    """They are of one user in one sandbox, so nothing keeps the one from the other."""
    with real_bench(tmp_path, machine.sandbox(tmp_path / "data")) as bench:
        (bench.workspace / "killer.py").write_text(KILLER)
        bench.run(bench.order("rehearsal: kill-the-gate", ask_before=("Bash(*guarded*)",)))
        assert {path.name for path in bench.workspace.iterdir()} == {"killer.py", "started", "killed"}
