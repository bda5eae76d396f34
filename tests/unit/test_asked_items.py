"""What the items of a question recommend, and when two of them are the same (D8)."""

from __future__ import annotations

from typing import Any

import pytest

from tasks_app.core.asked_items import item_key, item_keys, recommended_items, recommended_taken


def item(question: str, *labels: str) -> dict[str, Any]:
    return {"question": question, "header": "", "options": [{"label": label} for label in labels]}


WHOM = item("For whom is it?", "Staff (Recommended)", "Guests")


@pytest.mark.parametrize(
    "same",
    [
        item("for whom is it", "Staff", "Guests"),
        item("  For  whom\nis it? ", "guests", "staff (recommended)"),
        item("FOR WHOM IS IT?", "Guests.", "Staff"),
    ],
)
def test_the_same_question_has_the_same_key(same: dict[str, Any]) -> None:
    assert item_key(same) == item_key(WHOM)


@pytest.mark.parametrize(
    "other",
    [
        item("For whom is it not?", "Staff", "Guests"),
        item("For whom is it?", "Staff", "Visitors"),
        item("For whom is it?", "Staff"),
        item("For whom is it? Staff", "Guests"),
    ],
)
def test_another_question_has_another_key(other: dict[str, Any]) -> None:
    assert item_key(other) != item_key(WHOM)


def test_each_item_has_its_key() -> None:
    assert item_keys([WHOM, item("Why?")]).split() == [item_key(WHOM), item_key(item("Why?"))]
    assert item_keys([]) == ""


@pytest.mark.parametrize(
    ("answer", "taken"),
    [("Staff (Recommended)", 1), ("Guests", 0), ("Staff (Recommended), Guests", 0), ("Staff", 0), ("", 0)],
)
def test_a_recommendation_is_taken_if_it_alone_was_chosen(answer: str, taken: int) -> None:
    asked = [WHOM, item("Why?", "A", "B")]
    assert recommended_items(asked) == 1
    assert recommended_taken(asked, {"For whom is it?": answer, "Why?": "A"}) == taken


def test_several_recommended_options_are_taken_together() -> None:
    asked = [item("Which?", "A (Recommended)", "B (recommended)", "C")]
    assert recommended_taken(asked, {"Which?": "A (Recommended), B (recommended)"}) == 1
    assert recommended_taken(asked, {"Which?": "A (Recommended)"}) == 0
    assert recommended_taken(asked, {}) == 0


def test_options_of_any_shape_are_read() -> None:
    assert (
        recommended_items(
            [{"question": "A?", "options": None}, {"question": "B?", "options": ["(recommended)"]}]
        )
        == 0
    )
