"""When questions came and what they brought (D8): on the usage page, as CSV and from the API."""

from __future__ import annotations

import csv
import re
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from tasks_app.core.phases import Phase
from tasks_app.models import Action, AuditEntry, Project, Question, Role, Step, StepKind, Task, User
from tasks_app.services.usage.usage import Period, QuestionFigures, Timing, question_figures
from tests.addresses import text_of
from tests.api import Script
from tests.browser import signed_in
from tests.factories import MembershipFactory, ProjectFactory, QuestionFactory, RunFactory, TaskFactory
from tests.people import acting

pytestmark = pytest.mark.django_db

NOON = datetime(2026, 3, 10, 12, tzinfo=UTC)
MARCH = Period(date(2026, 3, 1), date(2026, 3, 31))
URL = "from=2026-03-01&to=2026-03-31"
#: Two hours from start to end, 20 minutes of them paused: 100 minutes of work.
DONE: dict[str, Any] = {
    "started_at": NOON,
    "ended_at": NOON + timedelta(hours=2),
    "paused_seconds": 1200,
    "phase": Phase.DONE,
}


@pytest.fixture
def viewer(project: Project) -> User:
    return MembershipFactory.create(project=project, role=Role.VIEWER).user


def task_of(project: Project, **fields: Any) -> Task:
    task = TaskFactory.create(project=project, steps=("clarify", "plan", "implement"), **fields)
    Step.objects.filter(task=task, position=1).update(kind=StepKind.CLARIFY)
    return task


def asked(task: Task, step: str, minutes: float | None, **fields: Any) -> Question:
    number = task.questions.count() + 1
    run = RunFactory.create(step=task.steps.get(name=step), number=number)
    settled = {"state": "answered", "answered_at": NOON} if fields.pop("answered", False) else {}
    return QuestionFactory.create(
        task=task, run=run, number=number, asked_at=NOON,
        worked_seconds=None if minutes is None else minutes * 60, **settled, **fields,
    )  # fmt: skip


def figures(viewer: User, project: str = "") -> QuestionFigures:
    return question_figures(acting(viewer), MARCH, project)


def one_line(response: Any) -> str:
    """Return the words of a page, however its template breaks lines."""
    return " ".join(re.sub(r"<[^>]*>", " ", response.text).split())


def test_d8_questions_are_counted_by_the_share_of_the_work(viewer: User, project: Project) -> None:
    task = task_of(project, **DONE)
    asked(task, "clarify", 2, about_goal=True)
    asked(task, "clarify", 10.5, about_goal=True)
    asked(task, "plan", 39.5, about_goal=True, is_late=True)
    asked(task, "implement", 40.5)
    asked(task, "implement", 70.5)
    asked(task, "implement", 99.5, about_goal=True, is_late=True)
    found = figures(viewer)
    assert (found.questions, found.before_work, found.late, found.others) == (6, 2, 2, 2)
    assert found.timings == (
        Timing("First 10 %", before_work=1),
        Timing("10 to 40 %", before_work=1, late=1),
        Timing("40 to 70 %", others=1),
        Timing("Last 30 %", late=1, others=1),
    )
    assert found.timed == 6


def test_d8_the_page_says_if_tasks_asked_on_more_than_one_card(viewer: User, project: Project) -> None:
    for task in (task_of(project, **DONE), task_of(project, **DONE)):
        asked(task, "clarify", 2, about_goal=True)
    asked(task, "clarify", 3, about_goal=True)
    found = figures(viewer)
    assert (found.before_work, found.tasks_before_work) == (3, 2)
    assert "cards before the first step, in 2 tasks" in one_line(signed_in(viewer).get(f"/usage/?{URL}"))


def test_only_done_tasks_say_how_early_a_question_came(viewer: User, project: Project) -> None:
    asked(task_of(project, **{**DONE, "phase": Phase.FAILED}), "plan", 5)
    asked(task_of(project, **DONE), "plan", None)
    asked(task_of(project, **{**DONE, "ended_at": NOON, "paused_seconds": 0}), "plan", 0)
    asked(task_of(project, phase=Phase.RUNNING, started_at=NOON), "plan", 5)
    found = figures(viewer)
    assert (found.questions, found.timed) == (4, 0)


def test_recommendations_and_repetitions_are_counted(viewer: User, project: Project) -> None:
    task = task_of(project, **DONE)
    asked(task, "plan", 1, answered=True, recommended=3, recommended_taken=2, item_keys="a b c")
    asked(task, "plan", 1, recommended=1, item_keys="d", asked_before=True)
    asked(task, "plan", 1)
    found = figures(viewer)
    assert (found.recommended, found.recommended_taken, found.percent_taken) == (3, 2, 67)
    assert (found.compared, found.asked_before) == (2, 1)


def test_approvals_other_periods_and_other_projects_do_not_count(viewer: User, project: Project) -> None:
    task = task_of(project, **DONE)
    asked(task, "plan", 1, kind="approval")
    Question.objects.filter(pk=asked(task, "plan", 1).pk).update(asked_at=NOON - timedelta(days=40))
    other = ProjectFactory.create()
    asked(task_of(other, **DONE), "plan", 1)
    assert figures(viewer).questions == 0 and figures(viewer).percent_taken is None
    MembershipFactory.create(user=viewer, project=other)
    assert figures(viewer).questions == 1 and figures(viewer, "shop").questions == 0


def test_the_figures_take_two_queries(viewer: User, project: Project) -> None:
    for _ in range(3):
        asked(task_of(project, **DONE), "plan", 1)
    with CaptureQueriesContext(
        connection,
    ) as seen:
        assert figures(viewer).questions == 3
    assert len(seen) == 2, "which days were added up, and the others"


def test_the_page_shows_them(viewer: User, project: Project) -> None:
    task = task_of(project, **DONE)
    asked(task, "clarify", 2, about_goal=True, answered=True, recommended=1, recommended_taken=1)
    asked(task, "implement", 80, about_goal=True, is_late=True, item_keys="a", asked_before=True)
    page = one_line(signed_in(viewer).get(f"/usage/?{URL}"))
    for words in ("When agents asked", "100 %", "1 of 1 answer ", "2 questions of done tasks", "First 10 %"):
        assert words in page, words


def test_the_page_says_what_is_not_known(viewer: User, project: Project) -> None:
    client = signed_in(viewer)
    assert "No agent asked from 2026-03-01 to 2026-03-31." in one_line(client.get(f"/usage/?{URL}"))
    asked(task_of(project, phase=Phase.RUNNING, started_at=NOON), "plan", 5)
    page = one_line(client.get(f"/usage/?{URL}"))
    assert "No task of these questions is done yet" in page
    assert "no answered question recommended one" in page


def test_the_csv_has_the_same_numbers(viewer: User, project: Project) -> None:
    task = task_of(project, **DONE)
    asked(task, "clarify", 2, about_goal=True, answered=True, recommended=2, recommended_taken=1)
    text = text_of(signed_in(viewer).get(f"/usage/questions.csv?{URL}"))
    rows = list(csv.DictReader(text.lstrip("\ufeff").splitlines()))
    assert len(rows) == 18 and rows[0] == {"figure": "asked", "part": "before work", "count": "1", "of": "1"}
    assert {"figure": "tasks asked before work", "part": "", "count": "1", "of": "1"} in rows
    assert {"figure": "when asked", "part": "first 10 %, before work", "count": "1", "of": "1"} in rows
    assert {"figure": "recommended option taken", "part": "", "count": "1", "of": "2"} in rows
    entry = AuditEntry.objects.filter(action=Action.EXPORTED).latest("pk")
    assert (entry.actor, entry.subject) == (viewer, "questions asked")


def test_the_api_returns_them(viewer: User, project: Project) -> None:
    task = task_of(project, **DONE)
    late = asked(task, "implement", 80, about_goal=True, is_late=True)
    script = Script(viewer)
    said = script.get("/usage", **{"from": "2026-03-01", "to": "2026-03-31"}).json()["asked"]
    assert (said["questions"], said["late"], said["timings"][3]) == (
        *(1, 1),
        {"share": "Last 30 %", "before_work": 0, "late": 1, "others": 0},
    )
    question = script.get(f"/questions/{late.pk}").json()
    assert question["late"] is True and question["about_goal"] is True
    steps = script.get(f"/tasks/{task.pk}/steps").json()["items"]
    assert [step["kind"] for step in steps] == ["clarify", "work", "work"]
