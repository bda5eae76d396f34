"""What runs use is counted outside of them (M8, P11): the real CLI behind the API key proxy."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from tasks_app import composition
from tasks_app.agent.claude import ClaudeAgent
from tasks_app.agent.port import Ending
from tasks_app.core.amounts import dollars
from tasks_app.core.phases import Phase
from tasks_app.models import Outcome, Project, Run, Task, User
from tasks_app.rehearsal.server import RehearsalServer
from tasks_app.sandbox import Sandbox
from tasks_app.services.usage.cost_limits import end_waits_for_budgets
from tasks_app.services.usage.statistics import of_task
from tasks_app.services.usage.usage import By, usage_of_all_time
from tasks_app.services.workers.queue import queue_sentence
from tests.agents import Bench, rehearsal
from tests.fake_script import say
from tests.runner import ONE_STEP, Runner
from tests.soft_limits import without_undo


@pytest.fixture
def bench(tmp_path: Path, behind_the_proxy: Any) -> Iterator[Bench]:
    with rehearsal(tmp_path) as server:
        behind_the_proxy(server)
        yield Bench(ClaudeAgent(Sandbox(None), composition.connect), tmp_path, server)


def test_the_counts_are_those_of_the_model_s_answers(bench: Bench) -> None:
    result = bench.start("no-questions")
    assert result.ending is Ending.FINISHED
    assert result.metered
    used = [used for used, _ in bench.recorder.used]
    assert used[-1] == result.usage
    assert result.usage.any
    assert result.model.startswith("claude-")
    # The CLI counts the same with the same prices; it leaves out what a side request cost.
    assert result.reported_cost_usd == pytest.approx(result.usage.cost_usd, rel=0.05)


def test_counts_are_recorded_before_the_event_that_they_belong_to(bench: Bench) -> None:
    """What a worker's death leaves has the counts of every event that is stored."""
    at_event: list[tuple[str, int]] = []
    bench.recorder.heard = lambda event: at_event.append((event.kind, len(bench.recorder.used)))
    bench.start("no-questions")
    assert all(told for kind, told in at_event if kind in ("text", "tool_use"))


def test_what_a_script_plays_costs_nothing(tmp_path: Path, settings: Any) -> None:
    """M8: tokens are counted; no budget, sum or limit has dollars that nobody pays."""
    keys = {"anthropic_api_key": None, "claude_oauth_token": None}
    settings.ENVIRONMENT = settings.ENVIRONMENT.model_copy(update=keys)
    composition._proxy.cache_clear()
    bench = Bench(ClaudeAgent(Sandbox(None), composition.connect), tmp_path, None)
    result = bench.run(bench.order("Do it.\nrehearsal: no-questions", max_cost_usd=0.001, may_ask=False))
    composition._proxy().stop()
    composition._proxy.cache_clear()
    assert (result.ending, result.metered) == (Ending.FINISHED, True), result.error
    assert result.usage.output_tokens and result.usage.cost_usd == 0 and result.reported_cost_usd is None


def test_the_login_s_token_is_counted_too(tmp_path: Path, behind_the_proxy: Any) -> None:
    """With a subscription the CLI holds the token itself, and its requests pass the proxy all the same."""
    with rehearsal(tmp_path) as server:
        behind_the_proxy(server, claude_oauth_token="sk-ant-oat01-token")
        bench = Bench(ClaudeAgent(Sandbox(None), composition.connect), tmp_path, server)
        result = bench.start("no-questions")
    assert (result.ending, result.metered) == (Ending.FINISHED, True)
    assert result.usage.any


@pytest.mark.bubblewrap
@pytest.mark.django_db(transaction=True)
@pytest.mark.once(on="sqlite")
def test_p11_each_model_of_a_run_counts_for_itself(metered: Runner) -> None:
    """A run may use several: small ones beside the main one, or another after a fallback."""
    task = metered.advance(metered.task(text="# Ask\n\nrehearsal: ask-the-model\n"))
    [run] = Run.objects.all()
    assert run.by_model is not None and set(run.by_model) == {run.model, "claude-opus-4-1"}
    used = of_task(task)
    assert set(used.by_model) == set(run.by_model) and all(one.any for one in used.by_model.values())
    assert used.usage.cost_usd == pytest.approx(run.cost_usd)
    assert set(usage_of_all_time(By.MODEL)) == set(run.by_model)


def test_a_model_that_the_step_does_not_name_is_refused(bench: Bench) -> None:
    """The model answers nothing, and the agent's own program says why."""
    order = bench.order("Do as the script says.\nrehearsal: ask-the-model", model="sonnet", may_ask=False)
    result = bench.run(order)
    assert result.ending is Ending.FINISHED
    assert "permission_error" in json.dumps(bench.recorder.entries)
    assert bench.server
    assert {one["model"].split("-")[1] for one in bench.server.requests} <= {"sonnet", "haiku"}


BUDGET = """\
limits: {maxCostUsd: 0.07}
pipelines:
  default:
    - {name: one, command: self, check: {type: shell, command: "true"}, retry: 3}
"""


@pytest.mark.bubblewrap
@pytest.mark.django_db(transaction=True)
@pytest.mark.once(on="sqlite")
def test_dollars_are_held_against_curl(metered: Runner, server: RehearsalServer) -> None:
    """The agent's shell asks the model again and again; the task ends at its limit, with the sentence."""
    task = metered.task(text="# Ask\n\nrehearsal: ask-the-model-often\n", project=metered.project(BUDGET))
    metered.advance(task)
    task.refresh_from_db()
    assert task.phase == Phase.FAILED
    assert task.failure == "The task has cost the $0.07 that its project allows (limits.maxCostUsd)."
    spent = sum(run.cost_usd for run in Run.objects.all())
    assert 0.07 <= spent < 0.1
    results = json.dumps([event.payload for run in Run.objects.all() for event in run.events.all()])
    assert "billing_error" in results


def allow(owner: Project | User, dollars: float) -> None:
    """Set the budget of the month."""
    if isinstance(owner, Project):
        owner.overrides = {"monthly_budget_usd": dollars}
    else:
        owner.monthly_budget_usd = dollars
    owner.save()


@pytest.mark.bubblewrap
@pytest.mark.django_db(transaction=True)
@pytest.mark.once(on="sqlite")
@pytest.mark.parametrize("whose", ["project", "created_by"])
def test_m8_a_request_that_does_not_fit_below_a_budget_of_the_month_is_not_sent(
    metered: Runner, server: RehearsalServer, whose: str
) -> None:
    """The task waits until as much is there; that is no failed attempt, and the same session goes on."""
    task = metered.task(text="# Ask\n\nrehearsal: ask-the-model-often\n")
    owner = getattr(task, whose)
    allow(owner, 0.07)
    assert metered.advance(task).phase == Phase.WAITING_FOR_RESET
    assert task.waits_for_budget
    [first] = Run.objects.all()
    assert (first.outcome, first.step.failures, first.cost_usd) == (Outcome.LIMIT, 0, 0)
    assert server.requests == []
    needed = first.needed_usd
    assert needed is not None and needed > 0.07
    assert "which a budget for this month does not leave" in json.dumps(
        [one.payload for one in first.events.all()]
    )
    assert f"less than the {dollars(needed)} that the next request needs" in queue_sentence(task)
    allow(owner, needed - 0.01)
    end_waits_for_budgets()
    assert not Task.objects.due().exists()
    allow(owner, needed)
    end_waits_for_budgets()
    assert metered.advance(task).phase == Phase.WAITING_FOR_RESET
    allow(owner, 5)
    end_waits_for_budgets()
    assert metered.advance(task).phase == Phase.DONE
    first, second, third = Run.objects.order_by("number")
    assert {second.session_id, third.session_id} == {first.session_id} and second.resumed and third.resumed
    assert 0 < second.cost_usd < needed + 0.01
    assert (second.outcome, second.step.failures) == (Outcome.LIMIT, 0)


@pytest.mark.bubblewrap
@pytest.mark.django_db(transaction=True)
@pytest.mark.once(on="sqlite")
def test_a_run_stops_at_the_soft_limit_and_the_same_session_goes_on_with_the_decision(
    metered: Runner, settings: Any
) -> None:
    """M8: the proxy refuses what comes next, a human is asked, and their notes reach the session once."""
    without_undo(settings)
    project = metered.project("limits: {softCostUsd: 0.07}\n" + ONE_STEP)
    task = metered.task(text="# Ask\n\nrehearsal: ask-the-model-often\n", project=project)
    assert metered.advance(task).phase == Phase.WAITING_FOR_INPUT
    [first] = Run.objects.all()
    question = task.questions.get()
    assert (first.outcome, first.step.failures, question.run) == (Outcome.LIMIT, 0, first)
    assert 0.07 <= first.cost_usd < 0.1
    assert "The task's soft limit is reached" in json.dumps([one.payload for one in first.events.all()])
    metered.answer(question, "5", notes="Be brief.")
    assert metered.advance(task).phase == Phase.DONE
    second = Run.objects.get(number=2)
    assert second.session_id == first.session_id and second.resumed
    assert second.prompt.count("Be brief.") == 1 and "reached its soft cost limit" in second.prompt
    question.refresh_from_db()
    assert question.delivered_at is not None


@pytest.mark.bubblewrap
@pytest.mark.django_db(transaction=True)
@pytest.mark.once(on="sqlite")
def test_a_halted_session_counts_nothing_twice(metered: Runner) -> None:
    """P11: the CLI reports totals of the session; what is stored is what each run used."""
    task = metered.task(text="# Ask\n\nrehearsal: ask-and-end\n")
    metered.advance(task)
    metered.answer_all(task, "Stop")
    metered.advance(task)
    first, second = Run.objects.order_by("number")
    assert (first.outcome, second.outcome) == (Outcome.ASKED, Outcome.FINISHED)
    assert first.metered
    assert second.metered
    for run in (first, second):
        assert run.cost_usd > 0
        assert run.reported_cost_usd == pytest.approx(run.cost_usd, rel=0.3)


@pytest.mark.django_db(transaction=True)
def test_counts_outlive_the_worker_that_made_them(runner: Runner) -> None:
    """P11: what the proxy had counted when a worker died stays, whatever the agent's stream claims."""
    task = runner.task([say("Done.")])
    step = task.steps.get()
    died = Run.objects.create(
        step=step, number=1, reason="first", session_id="12345678-1234-4234-8234-123456789012",
        metered=True, input_tokens=10, output_tokens=20, cost_usd=0.5, model="claude-opus-5-5",
    )  # fmt: skip
    claim = {"type": "result", "subtype": "success", "total_cost_usd": 9.0, "usage": {"input_tokens": 10**7}}
    died.events.create(seq=0, kind="result", at=timezone.now(), raw=claim)
    runner.advance(task)
    died.refresh_from_db()
    assert died.outcome
    assert (died.input_tokens, died.output_tokens, died.cost_usd) == (10, 20, 0.5)
    assert (died.model, died.metered, died.reported_cost_usd) == ("claude-opus-5-5", True, 9.0)
