"""Options of `answer` about decisions: how far an answer holds, which earlier one it is (D2, D4)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tasks_app.models import Decision, Question
from tests.factories import ROUNDING, DecisionFactory, QuestionFactory, UserFactory
from tests.integration.conftest import Manage

pytestmark = pytest.mark.django_db

NAME = {"question": "Which npm scope?", "options": []}


def asked(*items: dict[str, Any]) -> Question:
    return QuestionFactory.create(items=list(items or (ROUNDING,)))


def test_d2_statements_of_several_items(manage: Manage) -> None:
    UserFactory.create(username="ann", is_superuser=True)
    question = asked(ROUNDING, NAME)
    said = ["--as", "ann", question.pk, "--item", "1=2", "--item", "2=acme", "--remember", "project"]
    assert "N from 1 to 2" in manage("answer", *said, "--statement", "Round up.")[2]
    assert manage("answer", *said, "--statement", "1=Round up.")[0] == 0
    assert [one.statement for one in Decision.objects.all()] == ["Round up."]


@pytest.mark.parametrize("way", [["--dismiss"], ["--deny", "No."]])
def test_d2_only_an_answer_is_remembered(manage: Manage, way: list[str]) -> None:
    UserFactory.create(username="ann", is_superuser=True)
    question = asked()
    code, _, err = manage("answer", "--as", "ann", question.pk, *way, "--remember", "project")
    assert code == 2 and "--remember: goes with an answer" in err
    question.refresh_from_db()
    assert question.is_open


def test_d4_take_gives_each_item_its_earlier_answer(manage: Manage) -> None:
    UserFactory.create(username="ann", is_superuser=True)
    earlier = asked(ROUNDING)
    manage("answer", "--as", "ann", earlier.pk, "2")
    question = QuestionFactory.create(task__project=earlier.task.project, items=[ROUNDING, NAME])
    code, _, err = manage("answer", "--as", "ann", question.pk, "--take")
    assert code == 2 and "“Which npm scope?” was not asked before in the same words" in err
    name = QuestionFactory.create(task__project=earlier.task.project, items=[NAME])
    manage("answer", "--as", "ann", name.pk, "acme")
    assert manage("answer", "--as", "ann", question.pk, "--take")[0] == 0
    question.refresh_from_db()
    assert list(question.answers.values()) == ["Half up", "acme"]


def test_an_answer_says_which_decisions_it_made_and_replaced(manage: Manage) -> None:
    UserFactory.create(username="ann", is_superuser=True)
    earlier = asked()
    made = manage("answer", "--as", "ann", earlier.pk, "2", "--remember", "project")[1]
    assert "Decided as D-1 (whole project): Half up" in made
    question = QuestionFactory.create(task__project=earlier.task.project, items=[ROUNDING])
    said = ["--as", "ann", question.pk, "1", "--remember", "project", "--decision", "D-1=supersede"]
    replaced = manage("answer", *said)[1]
    assert "Decided as D-2" in replaced and "Replaced D-1 (whole project): Half up" in replaced


def test_a_superseded_decision_names_the_one_that_replaces_it(manage: Manage) -> None:
    UserFactory.create(username="ann", is_superuser=True)
    old = DecisionFactory.create(state="superseded")
    new = DecisionFactory.create(project=old.project, replaces=old)
    asked = ["decisions", "--as", "ann", "--project", old.project.name, old.label]
    assert [one["replaced_by"] for one in json.loads(manage(*asked, "--json")[1])] == [[new.number]]
    shown = manage(*asked)[1]
    assert "superseded" in shown and new.label in shown
