"""The usage page (W2, P11, H11): tokens, dollars, work and waiting of a period, added up by the database."""

from __future__ import annotations

import csv
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from tasks_app.core.phases import Phase
from tasks_app.models import Action, AuditEntry, Project, QuestionState, Role, Run, Task, Transition, User
from tasks_app.services.usage.usage import Bucket, By, Period, usage_by_day, usage_in_period, waiting_times
from tests.addresses import text_of
from tests.browser import signed_in
from tests.factories import (
    MembershipFactory,
    ProjectFactory,
    QuestionFactory,
    RunFactory,
    TaskFactory,
    UserFactory,
)
from tests.people import acting

pytestmark = pytest.mark.django_db

NOON = datetime(2026, 3, 10, 12, tzinfo=UTC)
MARCH = Period(date(2026, 3, 1), date(2026, 3, 31))


@pytest.fixture
def viewer(project: Project) -> User:
    return MembershipFactory.create(project=project, role=Role.VIEWER).user


@pytest.fixture
def client(viewer: User) -> Client:
    return signed_in(viewer)


def used(project: Project, at: datetime, dollars: float, model: str = "opus", **more: Any) -> Run:
    run = RunFactory.create(
        task=TaskFactory.create(project=project), model=model, cost_usd=dollars, output_tokens=10, **more
    )
    Run.objects.filter(pk=run.pk).update(started_at=at)
    return run


def test_days_are_those_of_utc_and_both_ends_are_in(viewer: User, project: Project) -> None:
    for at, dollars in (
        (datetime(2026, 2, 28, 23, 59, 59, 999999, tzinfo=UTC), 1),
        (datetime(2026, 3, 1, tzinfo=UTC), 2),
        (datetime(2026, 3, 31, 23, 59, 59, 999999, tzinfo=UTC), 4),
        (datetime(2026, 4, 1, tzinfo=UTC), 8),
    ):
        used(project, at, dollars)
    found = usage_in_period(acting(viewer), MARCH, "", By.MODEL)
    assert found.total.cost_usd == 6 and found.before.cost_usd == 1
    assert {day: part["opus"].cost_usd for day, part in found.by_day.items()} == {
        date(2026, 3, 1): 2,
        date(2026, 3, 31): 4,
    }


def test_usage_is_split(viewer: User, project: Project) -> None:
    used(project, NOON, 1, "opus")
    used(project, NOON, 2, "haiku")
    used(ProjectFactory.create(), NOON, 100)
    found = usage_in_period(acting(viewer), MARCH, "", By.MODEL)
    assert {name: one.cost_usd for name, one in found.parts[By.MODEL].items()} == {"opus": 1, "haiku": 2}
    assert list(found.parts[By.PROJECT]) == ["shop"] and found.total.output_tokens == 20
    admin = UserFactory.create(is_superuser=True)
    assert usage_in_period(acting(admin), MARCH, "", By.MODEL).total.cost_usd == 103
    assert usage_in_period(acting(admin), MARCH, "shop", By.MODEL).total.cost_usd == 3
    assert usage_in_period(acting(viewer), MARCH, "nowhere", By.MODEL).total.cost_usd == 0


def test_a_model_without_usage_is_not_listed(viewer: User, project: Project) -> None:
    used(project, NOON, 1, "opus")
    failed = used(project, NOON, 0, "<synthetic>")
    Run.objects.filter(pk=failed.pk).update(output_tokens=0)
    assert list(usage_in_period(acting(viewer), MARCH, "", By.MODEL).parts[By.MODEL]) == ["opus"]


def test_work_waiting_and_answers(viewer: User, project: Project) -> None:
    ended = TaskFactory.create(
        project=project, started_at=NOON, ended_at=NOON + timedelta(hours=2), paused_seconds=600
    )
    now = timezone.now()
    paused = TaskFactory.create(
        project=project, started_at=now - timedelta(hours=1), phase=Phase.WAITING_FOR_INPUT
    )
    move = Transition.objects.create(task=paused, source="running", target=Phase.WAITING_FOR_INPUT)
    Transition.objects.filter(pk=move.pk).update(at=now - timedelta(minutes=30))
    TaskFactory.create(project=project)
    Task.objects.update(created_at=NOON)
    for number, seconds in enumerate((10, 30, 100, 5000), start=1):
        QuestionFactory.create(
            task=ended,
            run=RunFactory.create(task=ended, number=number),
            number=number,
            asked_at=NOON,
            answered_at=NOON + timedelta(seconds=seconds),
            answered_by=viewer,
            state=QuestionState.ANSWERED,
        )
    QuestionFactory.create(task=paused, asked_at=NOON)
    found = waiting_times(acting(viewer), MARCH, "")
    assert (found.tasks, found.questions, found.answered) == (2, 5, 4)
    assert found.median == pytest.approx(65, abs=0.01)
    assert found.working == pytest.approx(2 * 3600 - 600 + 1800, abs=5)
    assert found.paused == pytest.approx(600 + 1800, abs=5)


def test_weeks_begin_on_monday_and_months_on_the_first() -> None:
    period = Period(date(2026, 2, 27), date(2026, 3, 10))
    assert period.buckets(Bucket.WEEK) == [date(2026, 2, 23), date(2026, 3, 2), date(2026, 3, 9)]
    assert period.buckets(Bucket.MONTH) == [date(2026, 2, 1), date(2026, 3, 1)]
    assert len(period.buckets(Bucket.DAY)) == period.days == 12
    assert period.before == Period(date(2026, 2, 15), date(2026, 2, 26))


# ---- the page ----

PERIOD = "from=2026-03-01&to=2026-03-31"


def test_nothing_was_used(client: Client) -> None:
    page = client.get("/usage/").text
    assert "No usage from" in page and 'class="chart"' not in page


def test_the_chart_and_the_table_beside_it_have_the_same_numbers(client: Client, project: Project) -> None:
    used(project, NOON, 1.5)
    used(project, NOON + timedelta(days=3), 250.25, "haiku <b>")
    page = client.get(f"/usage/?{PERIOD}&bucket=day").text
    assert "<title>2026-03-10: opus: $1.50</title>" in page
    assert "<title>2026-03-13: haiku &lt;b&gt;: $250</title>" in page
    assert '<th scope="row">2026-03-13</th>' in page and "<td>$250</td>" in page
    assert "aria-labelledby" in page and "style=" not in page
    assert "$251.75" in page and "none in the previous period" in page


@pytest.mark.parametrize("by", ["model", "project", "person"])
@pytest.mark.parametrize("measure", ["dollars", "tokens"])
@pytest.mark.parametrize("bucket", ["day", "week", "month"])
def test_every_choice_can_be_seen(
    client: Client, project: Project, by: str, measure: str, bucket: str
) -> None:
    for number in range(9):
        used(project, NOON + timedelta(days=number), number + 1, f"model-{number}")
    page = client.get(f"/usage/?{PERIOD}&by={by}&measure={measure}&bucket={bucket}")
    assert page.context["chart"].stacks
    assert page.context["series"][-1] == ("others" if by == "model" else page.context["series"][-1])


@pytest.mark.parametrize(
    "query",
    [
        "from=%00", "from=2026-02-30", "to=never", "from=2026-03-02&to=2026-03-01", "from=0001-01-01",
        "from=0001-01-01&to=9999-12-31&bucket=day", "to=0001-01-01", "from=9999-12-31",
        "from=0001-01-01&to=0001-01-01",
    ],
)  # fmt: skip
def test_odd_periods_are_no_error(client: Client, query: str) -> None:
    assert client.get(f"/usage/?{query}").status_code == 200
    assert text_of(client.get(f"/usage/export.csv?{query}"))


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("from=2026-02-30", "must be a date such as"),
        ("from=2026-03-02&to=2026-03-01", "The two were swapped."),
        ("from=1990-01-01", "A period can be at most ten years."),
    ],
)
def test_an_unusable_period_is_reported(client: Client, query: str, said: str) -> None:
    assert said in client.get(f"/usage/?{query}").text


@pytest.mark.parametrize(
    "query", ["period=%00&bucket=%00&by=%00&measure=%00&project=%00", "period=all", "by=x"]
)
def test_garbage_is_left_out(client: Client, query: str) -> None:
    assert client.get(f"/usage/?{query}").status_code == 200


def test_all_begins_with_the_first_run(client: Client, project: Project) -> None:
    used(project, NOON, 1)
    assert client.get("/usage/?period=all").context["choice"].period.since == NOON.date()


def test_nothing_of_another_project_is_revealed(client: Client) -> None:
    secret = used(ProjectFactory.create(name="secret"), timezone.now(), 5, "secret-m")
    secret.step.task.created_by = UserFactory.create(username="secret-person")
    secret.step.task.save()
    for query in ("", "?by=project", "?by=person", "?period=all"):
        page = client.get(f"/usage/{query}").text
        assert "secret" not in page and "No usage" in page
    assert "No usage" in client.get("/usage/?project=secret").text
    assert "secret" not in text_of(client.get("/usage/export.csv"))


def test_the_export_has_a_row_for_each_bucket_and_name(
    client: Client, viewer: User, project: Project
) -> None:
    used(project, NOON, 1, "=opus")
    used(project, NOON + timedelta(days=1), 2, "=opus")
    text = text_of(client.get(f"/usage/export.csv?{PERIOD}&bucket=week"))
    (row,) = csv.DictReader(text.splitlines())
    assert (row["from"], row["to"], row["name"]) == ("2026-03-09", "2026-03-15", "'=opus")
    assert (row["cost_usd"], row["output_tokens"]) == ("3.0", "20")
    entry = AuditEntry.objects.get(action=Action.EXPORTED)
    assert entry.actor == viewer and entry.subject == "usage"


def test_the_number_of_queries_does_not_grow(client: Client, project: Project) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as asked:
            client.get("/usage/?period=90&by=project")
        return len(asked)

    task = used(project, timezone.now(), 1).step.task
    QuestionFactory.create(task=task, run=RunFactory.create(task=task, step=task.steps.last()))
    few = queries()
    for number in range(8):
        task = used(project, timezone.now() - timedelta(days=number), 1, f"model-{number}").step.task
        QuestionFactory.create(task=task, run=RunFactory.create(task=task, step=task.steps.last()))
    assert queries() == few <= 19


def test_runs_of_a_period_are_found_by_an_index(viewer: User) -> None:
    if connection.vendor == "sqlite":
        with CaptureQueriesContext(connection) as asked:
            usage_by_day(acting(viewer), MARCH, "", By.MODEL)
        (of_runs,) = (one["sql"] for one in asked if 'FROM "tasks_app_run"' in one["sql"])
        with connection.cursor() as cursor:
            cursor.execute(f"EXPLAIN QUERY PLAN {of_runs}")
            plan = str(cursor.fetchall())
        assert "SCAN tasks_app_run" not in plan, plan


def test_the_median_is_that_of_the_newest_answers_if_there_are_many(
    viewer: User, client: Client, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks_app.services.usage.usage.MOST_TIMED", 2)
    task = TaskFactory.create(project=project)
    for number, seconds in enumerate((5000, 10, 30), start=1):
        QuestionFactory.create(
            task=task,
            run=RunFactory.create(task=task, number=number),
            number=number,
            asked_at=NOON + timedelta(hours=number),
            answered_at=NOON + timedelta(hours=number, seconds=seconds),
            answered_by=viewer,
            state=QuestionState.ANSWERED,
        )
    found = waiting_times(acting(viewer), MARCH, "")
    assert (found.answered, found.timed) == (3, 2) and found.median == pytest.approx(20, abs=0.01)
    assert "the newest 2 of 3 answers" in client.get(f"/usage/?{PERIOD}").text
