"""What a person typed at the prompt, and what the agent gets of it (H6)."""

from __future__ import annotations

from typing import Any

import pytest

from tasks_app.cli.terminal import resolve_choice, typed_answer
from tasks_app.core.errors import AnswerInvalid


def item(*labels: str, several: bool = False) -> dict[str, Any]:
    return {"question": "Which?", "options": [{"label": label} for label in labels], "multiSelect": several}


ONE = item("Spread them", "The first guest pays")
MARKED = item("Staff (Recommended)", "Guests")
BY_CASE = item("userId", "userid")
SEVERAL = item("CSV", "JSON", "PDF", several=True)


@pytest.mark.parametrize(
    ("asked", "typed", "answer"),
    [
        (ONE, "2", "The first guest pays"),
        (ONE, " 1 ", "Spread them"),
        (ONE, "spread THEM", "Spread them"),
        (ONE, "0", "0"),
        (ONE, "3", "3"),
        (ONE, "1, 2", "1, 2"),
        (ONE, "  neither, please ", "  neither, please "),
        (SEVERAL, "1,3", "CSV, PDF"),
        (SEVERAL, "3, csv,", "PDF, CSV"),
        (SEVERAL, "2 , 2", "JSON"),
        (SEVERAL, "1, and XML", "1, and XML"),
        (SEVERAL, ",", ","),
        (MARKED, "Staff", "Staff (Recommended)"),
        (MARKED, " staff ", "Staff (Recommended)"),
        (MARKED, "staff (recommended)", "Staff (Recommended)"),
        (item("Staff", "Staff (Recommended)"), "Staff", "Staff"),
        (item("CSV (Recommended)", "PDF", several=True), "pdf,csv", "PDF, CSV (Recommended)"),
        (BY_CASE, "userid", "userid"),
        (BY_CASE, "USERID", "USERID"),
        (item("2", "1"), "2", "2"),
        (item("A, B", "C", several=True), "a, b", "A, B"),
        (item(), "1", "1"),
        ({"question": "Free?"}, "1", "1"),
    ],
)
def test_numbers_and_names_choose_and_all_else_is_taken_to_the_letter(
    asked: dict[str, Any], typed: str, answer: str
) -> None:
    assert resolve_choice(asked, typed) == answer


def test_the_number_of_an_option_that_does_not_exist_is_no_answer() -> None:
    """The agent would read it as a text."""
    item = {"question": "Which?", "options": [{"label": "Red"}, {"label": "Blue"}]}
    with pytest.raises(AnswerInvalid, match="no option 3"):
        typed_answer(item, "3")
    assert [typed_answer(item, typed) for typed in ("2", "3 of them", "red")] == ["Blue", "3 of them", "Red"]
    numbers = {"question": "How many?", "options": [{"label": "5"}, {"label": "10 or more"}]}
    assert typed_answer(numbers, "7") == "7"
    assert typed_answer({"question": "How many?"}, "3") == "3"


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        ("1,2, and XML", "CSV, JSON, and XML"),
        ("csv, 3, a test for both, in one file", "CSV, PDF, a test for both, in one file"),
        ("XML, 1", "XML, 1"),
        (",", ","),
    ],
)
def test_own_words_may_stand_behind_several_options(typed: str, answer: str) -> None:
    assert typed_answer(SEVERAL, typed) == answer


def test_what_is_no_option_and_looks_like_one_is_not_sent() -> None:
    """The agent would get bare numbers, and nobody could tell any more what they were."""
    for typed in ("1,2,3 and a test", "1, 7"):
        with pytest.raises(AnswerInvalid, match="comma"):
            typed_answer(SEVERAL, typed)
