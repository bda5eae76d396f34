"""M8: what a task of a pipeline is likely to cost and to take, from the project's own past."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from tasks_app.cli.command import Exit
from tasks_app.core.phases import Phase
from tasks_app.management.commands import run_task
from tasks_app.models import Project, Role, Run
from tasks_app.services.usage import statistics
from tasks_app.services.usage.statistics import Forecast, Spread, forecasts
from tests.api import Script
from tests.browser import signed_in
from tests.factories import MembershipFactory, ProjectFactory, RunFactory, TaskFactory, UserFactory
from tests.integration.conftest import Manage
from tests.markup import tidy
from tests.runner import Runner

pytestmark = pytest.mark.django_db

ENDED = datetime(2026, 3, 1, 12, tzinfo=UTC)


def past(project: Project, *minutes: int, pipeline: str = "default", phase: Phase = Phase.DONE) -> None:
    """Make ended tasks that each worked so many minutes at a dollar a minute, in two runs, with a pause."""
    for worked in minutes:
        task = TaskFactory.create(
            project=project, pipeline=pipeline, phase=phase, paused_seconds=3600,
            started_at=ENDED - timedelta(minutes=worked + 60), ended_at=ENDED,
        )  # fmt: skip
        first, second = task.steps.all()
        RunFactory.create(task=task, step=first, cost_usd=worked / 4)
        RunFactory.create(task=task, step=second, cost_usd=worked * 3 / 4)


def test_median_and_nine_of_ten_are_of_the_done_tasks_of_each_pipeline() -> None:
    project = ProjectFactory.create()
    past(project, *range(1, 11))
    past(project, 100, 200, pipeline="large")
    past(project, 9000, phase=Phase.FAILED)
    past(ProjectFactory.create(), 9000)
    assert forecasts(project) == {
        "default": Forecast(10, Spread(5.5, 9.0), Spread(330.0, 540.0)),
        "large": Forecast(2),
    }


def test_only_the_newest_tasks_count_and_one_query_reads_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "LOOKED_AT", 10)
    project = ProjectFactory.create()
    past(project, *[500] * 5, *[2] * 10)
    with CaptureQueriesContext(connection) as queries:
        found = forecasts(project)
    assert found == {"default": Forecast(10, Spread(2.0, 2.0), Spread(120.0, 120.0))}
    assert len(queries) == 1


@pytest.mark.django_db(transaction=True)
def test_the_page_shows_the_figures_beside_each_pipeline_that_has_some(runner: Runner) -> None:
    pipelines = "pipelines: {known: [{name: a, command: self}], unknown: [{name: b, command: self}]}\n"
    project = runner.project(pipelines)
    past(project, *range(1, 11), pipeline="known")
    past(project, 7, pipeline="unknown")
    client = signed_in(MembershipFactory.create(project=project).user)
    for address in ("/tasks/new/", "/tasks/new/project/"):
        page = tidy(client.get(address, {"project": project.pk}).text)
        assert "10 tasks done: median $5.50 and 5 min 30 s of work, 9 of 10 up to $9.00 and 9 min" in page
        assert page.count('class="forecast"') == 1


#: What the API says of a pipeline with ten tasks of one to ten minutes, each at a dollar a minute.
KNOWN = {
    "tasks": 10,
    "cost_usd": {"median": 5.5, "p90": 9.0},
    "working_seconds": {"median": 330.0, "p90": 540.0},
}
PIPELINE = "pipelines: {default: [{name: a, command: self}]}\n"


@pytest.fixture
def limited(runner: Runner) -> Project:
    """A project with figures and 40 dollars a month, of which a failed task has spent 30."""
    project = runner.project(PIPELINE)
    past(project, *range(1, 11))
    Run.objects.update(started_at=ENDED)
    Project.objects.filter(pk=project.pk).update(overrides={"monthly_budget_usd": 40})
    spend(project, 30)
    project.refresh_from_db()
    return project


def spend(project: Project, dollars: float) -> None:
    """Make a run of this month that has cost this."""
    run = RunFactory.create(task=TaskFactory.create(project=project, phase=Phase.FAILED), cost_usd=dollars)
    Run.objects.filter(pk=run.pk).update(started_at=timezone.now())


@pytest.mark.django_db(transaction=True)
def test_the_api_says_of_a_new_task_and_of_a_preview_what_it_may_cost(limited: Project) -> None:
    member = MembershipFactory.create(project=limited, role=Role.MEMBER).user
    member.monthly_budget_usd = 0
    member.save()
    script, body = Script(member), {"project": limited.name, "text": "# Round the prices"}
    created, preview = script.post("/tasks", body).json(), script.post("/tasks/preview", body).json()
    budgets = {
        "project": {"budget_usd": 40.0, "spent_usd": 30.0, "left_usd": 10.0, "used_up": False},
        "person": {"budget_usd": 0.0, "spent_usd": 0.0, "left_usd": 0.0, "used_up": True},
    }
    assert created["forecast"] == preview["forecast"] == KNOWN
    assert created["budgets"] == preview["budgets"] == budgets
    assert "forecast" not in script.get(f"/tasks/{created['task']}").json()


@pytest.mark.django_db(transaction=True)
def test_a_new_task_of_a_pipeline_without_enough_tasks_has_no_figures(runner: Runner) -> None:
    project = runner.project(PIPELINE)
    past(project, 7)
    member = MembershipFactory.create(project=project, role=Role.MEMBER).user
    created = Script(member).post("/tasks", {"project": project.name, "text": "# Round the prices"}).json()
    assert created["forecast"] == {"tasks": 1, "cost_usd": None, "working_seconds": None}
    assert created["budgets"] == {"project": None, "person": None}


@pytest.mark.django_db(transaction=True)
def test_run_task_says_what_a_task_may_cost_when_it_creates_it(
    limited: Project, manage: Manage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the run: the command would wait for the budget, which is spent."""
    monkeypatch.setattr(run_task, "run_task_locally", lambda *_, **__: Exit.WAITING)
    spend(limited, 12)
    UserFactory.create(username="admin", is_superuser=True)
    path = tmp_path / "rounding.md"
    path.write_text("# Round the prices\n")
    command = ("run_task", str(path), "--project", limited.name, "--as", "admin", "--no-input")
    told = manage(*command)[1]
    assert "10 tasks of this pipeline done: median $5.50 and 5 min 30 s of work" in told
    assert "9 of 10 up to $9.00 and 9 min." in told
    assert "Project budget: $42.00 of $40.00 spent this month (UTC). No run begins until next month" in told
    assert "Your budget" not in told
    assert "tasks of this pipeline done" not in manage(*command)[1], "the task is resumed, not created"

    printed = json.loads(manage(*command, "--new", "--json")[1])
    assert (printed["forecast"], printed["budgets"]["project"]["left_usd"]) == (KNOWN, -2.0)
    again = json.loads(manage(*command, "--json")[1])
    assert (again["forecast"], again["budgets"]) == (None, None)
