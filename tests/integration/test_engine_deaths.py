"""Workers and agents that are killed: what counts against a step, and what does not (R2)."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from tasks_app.agent.leftover_processes import marked_processes
from tasks_app.agent.outcome import run_result
from tasks_app.agent.port import AgentEvent, Ending, RunResult
from tasks_app.agent.stream import Stream
from tasks_app.core.phases import Phase
from tasks_app.engine.runs import recovery
from tasks_app.engine.runs.recovery import DEATHS
from tasks_app.models import Outcome, Task
from tasks_app.sandbox import SandboxMode, detect, killed_by
from tasks_app.services.tasks import resume_task
from tests.agents import Bench, real_bench
from tests.fake_agent import FakeAgent
from tests.fake_script import Act, Die, Turn, say, shell
from tests.people import acting
from tests.runner import Runner, runs, step

NO_RETRY = """\
pipelines:
  default:
    - name: do
      command: self
      retry: 0
"""


def die_after(runner: Runner, kind: str) -> None:
    """The worker dies in each run as soon as an event of that kind is stored."""
    original = runner.fake.run

    def run(order: Any, recorder: Any) -> RunResult:
        record = recorder.record

        def dying(events: list[AgentEvent]) -> None:
            record(events)
            if any(event.kind == kind for event in events):
                raise SystemExit(137)

        recorder.record = dying
        return original(order, recorder)

    runner.fake.run = run  # type: ignore[method-assign]


def worker_dies(runner: Runner, task: Task, times: int) -> None:
    for _ in range(times):
        with pytest.raises(SystemExit):
            runner.advance(task)


@pytest.mark.parametrize("kind", ["text", "tool_result"])
def test_deaths_with_progress_in_between_are_not_counted(runner: Runner, kind: str) -> None:
    """A task that comes further each time goes on, also as a bystander of one that kills the worker."""
    turns = [Turn(f"Turn {n}.", (shell(f"echo {n}"),)) for n in range(DEATHS + 3)]
    task = runner.task([*turns, say("Done.")], config=NO_RETRY)
    original = runner.fake.run
    die_after(runner, kind)
    worker_dies(runner, task, DEATHS + 2)
    runner.fake.run = original  # type: ignore[method-assign]
    assert runner.advance(task).phase == Phase.DONE
    assert step(task).failures == 0


def test_the_same_call_again_and_again_is_no_progress(runner: Runner) -> None:
    """It says something each time, and dies each time in the same command."""

    def script(prompt: str) -> list[Act]:
        return [Turn(f"Try {n}.", (shell("exhaust the memory"),)) for n in range(DEATHS + 5)]

    task = runner.task(script)
    die_after(runner, "tool_use")
    worker_dies(runner, task, DEATHS + 1)
    assert runner.advance(task).phase == Phase.FAILED
    assert f"died {DEATHS} times in a row" in task.failure
    assert "resume the task" in task.failure


def test_deaths_in_one_step_do_not_count_for_the_next(runner: Runner) -> None:
    config = """\
pipelines:
  default:
    - {name: one, command: implement}
    - {name: two, command: implement}
"""
    task = runner.task([say("Done.")], config=config)
    original, left = runner.fake.run, {"one": DEATHS - 1, "two": DEATHS - 1}

    def run(order: Any, recorder: Any) -> RunResult:
        if left[order.step]:
            left[order.step] -= 1
            raise SystemExit(137)
        return original(order, recorder)

    runner.fake.run = run  # type: ignore[method-assign]
    worker_dies(runner, task, 2 * (DEATHS - 1))
    assert runner.advance(task).phase == Phase.DONE


def due_now() -> None:
    Task.objects.exclude(retry_at=None).update(retry_at=timezone.now())


@pytest.mark.parametrize("code", [-9, 137, -15, 143])
def test_an_agent_killed_from_outside_is_resumed_and_no_attempt_has_failed(runner: Runner, code: int) -> None:
    """P6: with `retry: 0`, whether the signal is seen itself or as bubblewrap reports it."""
    task = runner.task([Die(code), say("Done.")], config=NO_RETRY)
    assert runner.advance(task).phase == Phase.DONE
    first, second = runs(task)
    assert (first.outcome, second.outcome) == (Outcome.CRASHED, Outcome.FINISHED)
    assert second.resumed
    assert second.session_id == first.session_id
    assert "ended from outside by SIG" in first.error
    assert step(task).failures == 0


@pytest.mark.parametrize("code", [1, 255, -11, 134, 139])
def test_an_agent_that_ends_or_breaks_by_itself_is_a_failed_attempt(runner: Runner, code: int) -> None:
    task = runner.task([Die(code)], config=NO_RETRY)
    assert runner.advance(task).phase == Phase.FAILED
    assert f"exit code {code}" in task.failure


def always_killed(prompt: str) -> list[Act]:
    return [Die(-9) for _ in range(100)]


def test_an_agent_that_is_always_killed_fails_in_the_end_and_says_why(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not for ever, with growing pauses; and when a human lets it go on, it is counted anew."""
    task = runner.task(always_killed, config=NO_RETRY)
    monkeypatch.setattr("tasks_app.engine.runs.recovery._SPOKE", ())  # killed before it says a word
    pauses = []
    while runner.advance(task).phase == Phase.PENDING:
        assert task.retry_at and task.fault_at
        pauses.append(round((task.retry_at - task.fault_at).total_seconds()))
        due_now()
    assert task.phase == Phase.FAILED
    assert len(runs(task)) == DEATHS
    assert pauses == [5, 10, 20]
    assert f"killed from outside (SIGKILL) {DEATHS} times in a row" in task.failure
    assert "Out of memory" in task.failure
    resume_task(task, by=acting(runner.user), notify=False)
    assert runner.advance(task).phase == Phase.PENDING


def test_an_agent_that_is_killed_however_far_it_got_fails_in_the_end(
    runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recovery, "KILLS", 7)
    task = runner.task(always_killed, config=NO_RETRY)
    while runner.advance(task).phase == Phase.PENDING:
        due_now()
    assert (task.phase, len(runs(task))) == (Phase.FAILED, 7)
    assert "(SIGKILL) 7 times." in task.failure


def test_which_exit_codes_mean_that_somebody_else_ended_it() -> None:
    assert [killed_by(code) for code in (-9, 137, -15, 143, -2, 129)] == [
        "SIGKILL", "SIGKILL", "SIGTERM", "SIGTERM", "SIGINT", "SIGHUP",
    ]  # fmt: skip
    assert [killed_by(code) for code in (None, 0, 1, 75, 127, 128, 134, 139, -6, -11, 255)] == [""] * 11


@pytest.mark.parametrize(
    ("result", "ending"),
    [
        (None, Ending.KILLED),
        ({"type": "result", "subtype": "success", "is_error": False}, Ending.KILLED),
        ({"type": "result", "subtype": "error_max_turns", "is_error": True}, Ending.FAILED),
    ],
)
def test_an_agent_that_is_killed_after_its_last_word_is_interrupted_all_the_same(
    tmp_path: Path, result: dict[str, Any] | None, ending: Ending
) -> None:
    """Its session may lack what it said last. What it reported as failed did fail."""
    stream = Stream()
    if result:
        stream.read(result)
    order = Bench(FakeAgent(lambda prompt: []), tmp_path).order("go")
    assert run_result(stream, order, problem="exit code -9", exit_code=-9).ending is ending


@pytest.mark.once(on="sqlite")
@pytest.mark.parametrize(
    ("mode", "name"),
    [
        pytest.param(SandboxMode.REQUIRE, "claude", marks=pytest.mark.bubblewrap),
        pytest.param(SandboxMode.REQUIRE, "bwrap", marks=pytest.mark.bubblewrap),
        (SandboxMode.OFF, "claude"),
    ],
)
def test_a_killed_real_agent_is_distinguished_from_a_failed_one(
    tmp_path: Path, mode: SandboxMode, name: str
) -> None:
    """The kernel takes the agent inside the sandbox, an operator perhaps the sandbox itself."""
    with real_bench(tmp_path, detect(mode, hidden=[tmp_path / "data"])) as bench:

        def heard(event: AgentEvent) -> None:
            if event.kind == "tool_use":
                os.kill(
                    min(pid for pid in marked_processes(bench.workspace) if program(pid) == name),
                    signal.SIGKILL,
                )

        bench.recorder.heard = heard
        result = bench.start("slow")
    assert (result.ending, "SIGKILL" in result.error) == (Ending.KILLED, True)


def program(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""
