"""How long questions waited for people (Q6): on the usage page, as CSV and from the API."""

from __future__ import annotations

import csv
import re
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from tasks_app.models import (
    Action,
    Asked,
    AskedBy,
    AuditEntry,
    Project,
    Question,
    QuestionKind,
    Role,
    Rung,
    RungOutcome,
    User,
)
from tasks_app.services.usage import answer_times as module
from tasks_app.services.usage.answer_times import AnswerTimes, Waits, answer_times
from tasks_app.services.usage.statistics import Spread
from tasks_app.services.usage.usage import Period
from tests.addresses import text_of
from tests.api import Script
from tests.browser import signed_in
from tests.factories import AskedFactory, MembershipFactory, ProjectFactory, QuestionFactory, UserFactory
from tests.people import acting

pytestmark = pytest.mark.django_db

NOON = datetime(2026, 3, 10, 12, tzinfo=UTC)
MARCH = Period(date(2026, 3, 1), date(2026, 3, 31))
URL = "from=2026-03-01&to=2026-03-31"


@pytest.fixture
def viewer(project: Project) -> User:
    return MembershipFactory.create(project=project, role=Role.VIEWER).user


def asked(project: Project, minutes: float | None, *of: User, step: str = "", **fields: Any) -> Question:
    """A question that these were asked; it was answered after so many minutes, or is open."""
    if minutes is not None:
        done = NOON + timedelta(minutes=minutes)
        fields = {"state": "answered", "answered_at": done, "answered_via": "web", **fields}
    question: Question = QuestionFactory.create(task__project=project, asked_at=NOON, **fields)
    if step:
        question.step.name = step
        question.step.save()
    for user in of:
        AskedFactory.create(question=question, user=user, at=NOON)
    return question


def climbed(question: Question, *actions: str, done: int = 9) -> None:
    """The question has rungs, of which the first ones are done."""
    for position, action in enumerate(("ask", *actions)):
        is_done = {"done_at": NOON, "outcome": RungOutcome.DONE} if position <= done else {}
        Rung.objects.create(question=question, position=position, action=action, due=NOON, **is_done)


def times(viewer: User, project: str = "") -> AnswerTimes:
    return answer_times(acting(viewer), MARCH, project)


def figures(part: Any) -> dict[str, tuple[int, int, float | None]]:
    """Answered, open and the median in minutes by name."""
    return {one.name: (one.answered, one.open, one.seconds and one.seconds.median / 60) for one in part}


def one_line(response: Any) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", response.text).split())


def test_q6_median_and_ninetieth_percentile_of_all_answers(viewer: User, project: Project) -> None:
    for minutes in (*range(1, 10), 1000):
        asked(project, minutes)
    asked(project, None)
    found = times(viewer)
    assert (found.total, found.nobody_asked, found.is_cut) == (
        Waits("", 10, 1, Spread(330.0, 540.0)),
        11,
        False,
    )


def test_q6_by_kind_and_step(viewer: User, project: Project) -> None:
    asked(project, 4)
    asked(project, 6, step="review")
    plan = {"kind": QuestionKind.PLAN, "verdict": "approved"}
    asked(project, 30, **plan)
    asked(project, None, kind=QuestionKind.PLAN)
    found = times(viewer)
    assert figures(found.kinds) == {"clarification": (2, 0, 5.0), "plan": (1, 1, 30.0)}
    step = Question.objects.earliest("pk").step.name
    assert [one.name for one in found.steps] == [step, "review"]
    assert figures(found.steps)["review"] == (1, 0, 6.0)


def test_q6_each_who_was_asked_counts_but_not_a_second_opinion(viewer: User, project: Project) -> None:
    ann, bob, cat = (UserFactory.create(username=name) for name in ("ann", "bob", "cat"))
    asked(project, 10, ann)
    handed_over = asked(project, 20, ann)
    Asked.objects.filter(question=handed_over).update(ended_at=NOON)
    AskedFactory.create(question=handed_over, user=bob, asked_by=AskedBy.HAND_OVER)
    AskedFactory.create(question=handed_over, user=cat, asked_by=AskedBy.OPINION)
    asked(project, 60)
    only_opinion = asked(project, None)
    AskedFactory.create(question=only_opinion, user=cat, asked_by=AskedBy.OPINION)
    found = times(viewer)
    assert figures(found.people) == {"": (1, 1, 60.0), "ann": (2, 0, 15.0), "bob": (1, 0, 20.0)}
    assert found.nobody_asked == 2


def test_q6_what_a_rule_ended_is_counted_and_is_no_answer(viewer: User, project: Project) -> None:
    """Q3."""
    asked(project, 4)
    asked(project, 600, state="unanswered", ended_by_rule="overnight", answered_via="rule", answered_by=None)
    found = times(viewer)
    assert (found.total, found.ended_by_rule) == (Waits("", 1, 0, Spread(240.0, 240.0)), 1)
    page = one_line(signed_in(viewer).get("/usage/?from=2026-03-01&to=2026-03-31"))
    assert "Ended by a rule 1 " in page


def test_q6_by_the_rung_on_which_it_was_answered(viewer: User, project: Project) -> None:
    asked(project, 1)  # before it had a ladder
    climbed(asked(project, 3), "remind", "everybody", done=0)
    climbed(asked(project, 20), "remind", "everybody", done=1)
    climbed(asked(project, 80), "remind", "everybody", "remind")
    climbed(asked(project, None), "remind", "everybody", done=1)
    assert figures(times(viewer).stages) == {
        "at_once": (2, 0, 2.0), "reminded": (1, 1, 20.0), "everybody": (1, 0, 80.0),
    }  # fmt: skip


def test_q6_only_people_count_and_only_of_the_period_and_projects_that_one_sees(
    viewer: User, project: Project
) -> None:
    asked(project, 5, answered_via="decision")
    asked(project, None, state="withdrawn")
    Question.objects.filter(pk=asked(project, 5).pk).update(asked_at=NOON - timedelta(days=40))
    other = ProjectFactory.create(name="other")
    asked(other, 5)
    assert times(viewer).total == Waits() and not any(times(viewer).parts.values())
    MembershipFactory.create(user=viewer, project=other)
    assert times(viewer).total.answered == 1 and times(viewer, "shop").total.questions == 0


def test_q6_the_newest_are_looked_at_in_three_queries(
    viewer: User, project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_QUESTIONS", 3)
    for minutes in (1, 2, 3, 4):
        question = asked(project, minutes, UserFactory.create())
        Question.objects.filter(pk=question.pk).update(asked_at=NOON - timedelta(minutes=minutes))
    with CaptureQueriesContext(connection) as seen:
        found = times(viewer)
    assert len(seen) == 3
    assert (found.is_cut, found.total.answered, len(found.people)) == (True, 3, 3)
    assert "The newest 1000 questions" in one_line(signed_in(viewer).get(f"/usage/?{URL}"))


def test_q6_the_page_has_a_table_for_each(viewer: User, project: Project) -> None:
    ann = UserFactory.create(username="ann")
    climbed(asked(project, 10, ann), "remind")
    asked(project, None)
    page = signed_in(viewer).get(f"/usage/?{URL}")
    assert page.text.count("<table>") >= 4
    words = one_line(page)
    for part in (
        "How long questions waited", "Median 10 min", "1 answer of people", "Still open 1 of 2",
        "Nobody was asked 1 of 2", "A question 10 min 10 min 1 1", "ann 10 min 10 min 1 0",
        "Nobody in particular – – 0 1", "Before a reminder – – 0 1", "After a reminder 10 min 10 min 1 0",
    ):  # fmt: skip
        assert part in words, part


def test_q6_many_steps_are_cut_on_the_page_and_not_in_the_export(viewer: User, project: Project) -> None:
    for number in range(12):
        asked(project, 5, step=f"step-{number:02}")
    client = signed_in(viewer)
    words = one_line(client.get(f"/usage/?{URL}"))
    assert "step-09" in words and "step-10" not in words and "2 more in the CSV" in words
    rows = csv.DictReader(text_of(client.get(f"/usage/answer-times.csv?{URL}")).lstrip("\ufeff").splitlines())
    assert len([row for row in rows if row["by"] == "step"]) == 12


def test_q6_a_period_without_questions_says_so(viewer: User, project: Project) -> None:
    words = one_line(signed_in(viewer).get(f"/usage/?{URL}&project=shop"))
    assert "No question waited for people from 2026-03-01 to 2026-03-31 in shop." in words


def test_q6_the_csv_has_the_same_numbers(viewer: User, project: Project) -> None:
    asked(project, 10, UserFactory.create(username="ann"))
    asked(project, None)
    asked(project, 600, state="unanswered", ended_by_rule="overnight", answered_via="rule", answered_by=None)
    text = text_of(signed_in(viewer).get(f"/usage/answer-times.csv?{URL}"))
    rows = list(csv.DictReader(text.lstrip("\ufeff").splitlines()))
    ten = {"median_seconds": "600.0", "p90_seconds": "600.0"}
    assert rows[0] == {"by": "all", "name": "", "answered": "1", "open": "1", "unanswered": "1", **ten}
    ten["unanswered"] = ""
    assert {"by": "person", "name": "ann", "answered": "1", "open": "0", **ten} in rows
    none = {"median_seconds": "", "p90_seconds": ""}
    assert {"by": "person", "name": "", "answered": "0", "open": "1", "unanswered": "", **none} in rows
    assert {
        "by": "rule", "name": "overnight", "answered": "0", "open": "0", "unanswered": "1", **none
    } == rows[-1]  # fmt: skip
    assert {"by": "rung", "name": "at_once", "answered": "1", "open": "1", **ten} in rows
    entry = AuditEntry.objects.filter(action=Action.EXPORTED).latest("pk")
    assert (entry.actor, entry.subject) == (viewer, "answer times")


def test_q6_the_api_returns_them(viewer: User, project: Project) -> None:
    asked(project, 10, UserFactory.create(username="ann"))
    asked(project, None)
    script = Script(viewer)
    said = script.get("/usage", **{"from": "2026-03-01", "to": "2026-03-31"}).json()["answer_times"]
    ten = {"median_seconds": 600.0, "p90_seconds": 600.0}
    assert said["total"] == {"name": "", "answered": 1, "open": 1, **ten}
    assert (said["nobody_asked"], said["is_cut"], len(said["kinds"]), len(said["steps"])) == (1, False, 1, 1)
    assert said["people"][1] == {"name": "ann", "answered": 1, "open": 0, **ten}
    assert said["people"][0] == {
        "name": "",
        "answered": 0,
        "open": 1,
        "median_seconds": None,
        "p90_seconds": None,
    }
    assert said["rungs"] == [{"name": "at_once", "answered": 1, "open": 1, **ten}]
