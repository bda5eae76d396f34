"""Several answers to one ask stay in the order asked, whatever the database makes of them (H5, H7)."""

from __future__ import annotations

import pytest

from tasks_app.models import Question, QuestionState
from tests.factories import COLUMNS, FILE_NAME, ROUNDING, QuestionFactory


@pytest.mark.django_db
def test_answers_are_listed_in_the_order_of_the_questions() -> None:
    items = [ROUNDING, COLUMNS, FILE_NAME]
    given = {item["question"]: f"answer {number}" for number, item in enumerate(items)}
    asked = QuestionFactory.create(items=items)
    Question.objects.filter(pk=asked.pk).update(answers=given)

    asked.refresh_from_db()
    assert list(asked.answers_in_order.items()) == list(given.items())
    assert asked.answer_text.splitlines() == [f"{question}: {answer}" for question, answer in given.items()]


@pytest.mark.django_db
def test_an_open_question_has_no_answers() -> None:
    asked = QuestionFactory.create(items=[ROUNDING, COLUMNS])
    assert asked.state == QuestionState.OPEN and asked.answers_in_order == {}
