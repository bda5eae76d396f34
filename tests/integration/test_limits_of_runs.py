"""P1: the limits of a project hold: turns, dollars, time."""

from __future__ import annotations

from pathlib import Path

import pytest

from tasks_app.agent.port import Ending
from tasks_app.core.phases import Phase
from tasks_app.models import Run
from tests import machine
from tests.agents import real_bench
from tests.fake_script import say
from tests.runner import Runner

LIMITED = """\
limits: {maxTurns: 7, maxCostUsd: 0.01, stepTimeout: 20m, checkTimeout: 90s}
pipelines:
  default:
    - {name: one, command: self, check: {type: shell, command: "true"}}
"""


@pytest.mark.bubblewrap
@pytest.mark.parametrize(
    ("limit", "said"), [({"max_turns": 2}, "number of turns"), ({"max_cost_usd": 0.05}, "maximum budget")]
)
def test_a_run_ends_at_its_limit_with_the_reason(tmp_path: Path, limit: dict[str, float], said: str) -> None:
    with real_bench(tmp_path, machine.sandbox(tmp_path / "data")) as bench:
        result = bench.run(bench.order("rehearsal: chatty", **limit))
    assert result.ending is Ending.FAILED
    assert said in result.error


@pytest.mark.django_db(transaction=True)
def test_the_limits_of_the_project_reach_the_run_and_the_check(runner: Runner) -> None:
    task = runner.task([say("Done.")], project=runner.project(LIMITED))
    config = task.steps.get().config
    assert (task.max_turns, task.max_cost_usd) == (7, 0.01)
    assert (config["timeout"], config["check"][0]["timeout"]) == (1200, 90)


@pytest.mark.django_db(transaction=True)
def test_a_task_that_has_cost_what_it_may_is_not_run_again(runner: Runner) -> None:
    task = runner.task([say("Done.")], project=runner.project(LIMITED))
    Run.objects.create(
        step=task.steps.get(), number=1, reason="first", outcome="failed", cost_usd=0.02,
        session_id="12345678-1234-4234-8234-123456789012",
    )  # fmt: skip
    runner.advance(task)
    task.refresh_from_db()
    assert task.phase == Phase.FAILED
    assert "$0.01" in task.failure
    assert Run.objects.count() == 1
