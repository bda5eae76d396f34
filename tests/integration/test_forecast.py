"""M8: what a task of a pipeline is likely to cost and to take, from the project's own past."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from tasks_app.core.phases import Phase
from tasks_app.models import Project
from tasks_app.reporting import forecast
from tasks_app.reporting.forecast import Forecast, Spread, forecasts
from tests.browser import signed_in
from tests.factories import MembershipFactory, ProjectFactory, RunFactory, TaskFactory
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
    monkeypatch.setattr(forecast, "LOOKED_AT", 10)
    project = ProjectFactory.create()
    past(project, *[500] * 5, *[2] * 10)
    with CaptureQueriesContext(connection) as queries:
        found = forecasts(project)
    assert found == {"default": Forecast(10, Spread(2.0, 2.0), Spread(120.0, 120.0))}
    assert len(queries) == 1


@pytest.mark.django_db(transaction=True)
def test_the_page_shows_the_figures_beside_each_pipeline_or_why_there_are_none(runner: Runner) -> None:
    pipelines = "pipelines: {known: [{name: a, command: self}], unknown: [{name: b, command: self}]}\n"
    project = runner.project(pipelines)
    past(project, *range(1, 11), pipeline="known")
    past(project, 7, pipeline="unknown")
    client = signed_in(MembershipFactory.create(project=project).user)
    for address in ("/tasks/new/", "/tasks/new/project/"):
        page = client.get(address, {"project": project.pk}).text
        assert "10 tasks done: median $5.50 and 5 min 30 s of work, 9 of 10 up to $9.00 and 9 min" in page
        assert "No figures yet: 1 task done, 10 needed" in page
