"""Q6: what blocks most comes first, in the inbox, the terminal and the API; rows say until when."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from tasks_app.core.ladder import RungAction
from tasks_app.core.phases import Phase
from tasks_app.models import AskedBy, Project, Question, Rung, Scope, User, next_rung
from tests.api import Script
from tests.browser import signed_in
from tests.factories import (
    AskedFactory,
    MembershipFactory,
    ProjectFactory,
    QuestionFactory,
    SequenceFactory,
    UserFactory,
)
from tests.integration.conftest import Manage
from tests.markup import tidy
from tests.mcp import Program, in_the_same_thread

pytestmark = pytest.mark.django_db

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


@pytest.fixture
def shop() -> Project:
    return ProjectFactory.create(name="shop")


@pytest.fixture
def ann(shop: Project) -> User:
    user: User = UserFactory.create(username="ann", first_name="Ann", time_zone="Europe/Vienna")
    MembershipFactory.create(project=shop, user=user)
    return user


def asked(shop: Project, text: str, *, hours: float = 1, **facts: Any) -> Question:
    """A question that has waited for so many hours."""
    facts = {"task__phase": Phase.WAITING_FOR_INPUT, "task__project": shop, **facts}
    question: Question = QuestionFactory.create(
        items=[{"question": text}], asked_at=NOW - hours * HOUR, **facts
    )
    return question


def ladder(question: Question, *due: float, done: int = 0) -> None:
    """Rungs that are due in so many hours: reminders, and at last everybody; the first ones are done."""
    Rung.objects.create(
        question=question, position=0, action="ask", due=question.asked_at, done_at=NOW, outcome="done"
    )
    for position, hours in enumerate(due, start=1):
        action = RungAction.EVERYBODY if position == len(due) else RungAction.REMIND
        is_done = {"done_at": NOW, "outcome": "done"} if position <= done else {}
        Rung.objects.create(
            question=question, position=position, action=action, due=NOW + hours * HOUR, **is_done
        )


@pytest.fixture
def in_order(shop: Project) -> list[int]:
    """The ids of questions, the most urgent first; they were asked in another order."""
    fresh = asked(shop, "No ladder, fresh?")
    old = asked(shop, "No ladder, old?", hours=9)
    later = asked(shop, "In three hours?", hours=5)
    ladder(later, 3, 5)
    soon = asked(shop, "In an hour?", hours=2)
    ladder(soon, -1, 1, done=1)
    over = asked(shop, "Its ladder has ended?", hours=8)
    ladder(over, -4, -2, done=2)
    sequence = SequenceFactory.create(project=shop)
    blocks = asked(shop, "More tasks behind it?", task__sequence=sequence, task__file="01.md")
    ladder(blocks, 9)
    return [one.pk for one in (blocks, over, soon, later, old, fresh)]


def rows(page: str) -> list[int]:
    return [int(number) for number in re.findall(r'data-row="([0-9]+)"', page)]


def inbox(user: User, **query: str) -> str:
    return tidy(signed_in(user).get(reverse("inbox"), query).text)


def test_the_inbox_begins_with_what_blocks_most(ann: User, in_order: list[int]) -> None:
    """Q6"""
    assert rows(inbox(ann)) == in_order


@pytest.mark.parametrize("limit", [1, 2, 4, 6])
def test_pages_of_the_api_have_the_same_order(ann: User, in_order: list[int], limit: int) -> None:
    """Q6"""
    script, found, url = Script(ann, Scope.READ), [], f"/questions?state=open&limit={limit}"
    while url:
        page = script.get(url.removeprefix("/api/v1")).json()
        found += [one["id"] for one in page["items"]]
        url = page["next"]
    assert found == in_order


def test_scripts_choose_the_order_and_get_the_oldest_first_by_default(ann: User, in_order: list[int]) -> None:
    """Q6"""
    script = Script(ann, Scope.READ)
    for query, expected in (
        ({}, sorted(in_order)),
        ({"state": "open", "sort": "oldest"}, sorted(in_order)),
        ({"sort": "newest"}, sorted(in_order, reverse=True)),
        ({"sort": "urgent"}, in_order),
    ):
        assert [one["id"] for one in script.get("/questions", **query).json()["items"]] == expected, query
    assert script.get("/questions", sort="urgent", cursor=10**6).status_code == 200


def test_a_program_reads_them_in_this_order_with_who_is_asked_and_until_when(
    ann: User, in_order: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Q6"""
    in_the_same_thread(monkeypatch)
    soon = Question.objects.get(pk=in_order[2])
    AskedFactory.create(question=soon, user=ann, why="owns pay/", asked_by=AskedBy.OWNER)
    found = Program(ann).call("questions", state="open")["items"]
    assert [one["id"] for one in found] == in_order
    assert [one["why"] for one in found[2]["asked"]] == ["owns pay/"]
    assert (found[2]["next_rung"]["action"], found[2]["next_rung"]["due"]) == (
        "everybody",
        "2026-03-02T13:00:00+00:00",
    )
    assert found[1]["next_rung"] is None and found[4]["next_rung"] is None


def test_the_terminal_has_the_same_order_and_says_who_is_asked_and_until_when(
    manage: Manage, ann: User, in_order: list[int]
) -> None:
    """Q6"""
    soon = Question.objects.get(pk=in_order[2])
    for user in (ann, UserFactory.create(username="bob")):
        AskedFactory.create(question=soon, user=user, why="owns pay/", asked_by=AskedBy.OWNER)
    out = manage("inbox", "--no-input", "--as", "ann")[1]
    assert [int(number) for number in re.findall(r"cat-herder answer (\d+) ", out)] == in_order
    assert "asked of Ann: owns pay/" in out
    assert "if nobody answers: everybody from 2026-03-02 13:00 UTC" in out
    tasks = list(Question.objects.in_bulk(in_order).values())
    of_tasks = [next(one.task_id for one in tasks if one.pk == number) for number in in_order]
    out = manage("status")[1]
    lines = [line for line in out.splitlines() if "waiting for input" in line]
    assert [int(line.split()[0]) for line in lines] == of_tasks
    assert f"{soon.pk} (ann +1)" in out
    assert [one["task"] for one in json.loads(manage("status", "--json")[1])["tasks"]] == of_tasks


def test_a_row_says_why_one_is_asked_and_until_when_in_ones_own_zone(shop: Project, ann: User) -> None:
    """Q6"""
    question = asked(shop, "Round up?")
    ladder(question, 2, 5, done=1)
    AskedFactory.create(question=question, user=ann)
    row = inbox(ann)
    assert "started the task" in row
    assert re.search(r"everybody from <time [^>]*>2026-03-02 18:00</time>", row), "Vienna is an hour ahead"
    Rung.objects.filter(action="everybody").update(due=timezone.now() + timedelta(seconds=1))
    assert re.search(r"everybody from <time [^>]*>[0-9]{2}:[0-9]{2}</time>", inbox(ann)), "today: no date"
    Question.objects.update(state="withdrawn")
    assert "inbox-until" not in inbox(ann, state="withdrawn")


def test_reminders_of_others_are_not_announced_but_when_everybody_is_asked(shop: Project, ann: User) -> None:
    """Q6"""
    question = asked(shop, "Round up?")
    ladder(question, 2, 5)
    rung = next_rung(question, ann)
    assert rung and rung.announcement == "reminder at", "it is asked of all"
    asked_row = AskedFactory.create(question=question)
    found = [next_rung(Question.objects.get(), user) for user in (asked_row.user, ann, None)]
    assert [one and one.announcement for one in found] == ["reminder at", "everybody from", "reminder at"]
    AskedFactory.create(question=question, user=ann, asked_by=AskedBy.OPINION)
    opinion = next_rung(Question.objects.get(), ann)
    assert opinion and opinion.announcement == "everybody from"


def test_after_the_last_reminder_nothing_is_announced(shop: Project, ann: User) -> None:
    """Q6"""
    question = asked(shop, "Round up?")
    ladder(question, -2, -1, done=2)
    assert next_rung(question) is None and "inbox-until" not in inbox(ann)


def test_queries_do_not_grow_with_thirty_questions(shop: Project, ann: User, manage: Manage) -> None:
    """Q6"""
    client, script = signed_in(ann), Script(ann, Scope.READ)
    looks = [
        lambda: client.get(reverse("inbox")),
        lambda: script.get("/questions", state="open"),
        lambda: manage("status"),
    ]
    counts: list[list[int]] = []
    for many in (2, 0, 30):  # the first time, sessions and tokens are looked at closely
        for number in range(many):
            question = asked(shop, f"Number {number}?")
            ladder(question, 1, 2)
            AskedFactory.create(question=question, user=ann)
        counts.append([])
        for look in looks:
            with CaptureQueriesContext(connection) as queries:
                look()
            counts[-1].append(len(queries))
    assert counts[1] == counts[2]
