"""What the items of a question recommend, and when two of them are the same (D8)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tasks_app.core.asked_items import (
    answer_in_full,
    chosen_options,
    in_own_labels,
    item_key,
    item_keys,
    parts_of_question,
    recommended_items,
    recommended_taken,
    says_same,
    sentence_asked,
    title_of,
    without_remarks,
)
from tasks_app.core.similar_questions import own_label
from tasks_app.prompting.escaping import escaped_line
from tests.similar_questions import DIFFERENT_TEXTS

LONG = {"multiSelect": True, "options": [{"label": "a, " * 400 + "b"}, {"label": "c"}]}


def item(question: str, *labels: str) -> dict[str, Any]:
    return {"question": question, "header": "", "options": [{"label": label} for label in labels]}


WHOM = item("For whom is it?", "Staff (Recommended)", "Guests")


@pytest.mark.parametrize(
    "same",
    [
        item("For whom is it?", "Staff", "Guests"),
        item("  For  whom\nis it? ", "Guests", "Staff [ recommended ]"),
        {**item("For whom is it?", "Guests", "Staff"), "header": "Audience"},
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
        item("for whom is it?", "Staff", "Guests"),
        item("For whom is it?", "Staff.", "Guests"),
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


@pytest.mark.parametrize(("one", "other"), DIFFERENT_TEXTS)
@pytest.mark.parametrize("several", [False, True])
def test_answers_that_differ_in_a_character_do_not_say_the_same(one: str, other: str, several: bool) -> None:
    """D6: else a different answer would confirm a decision, and an agent would get another option."""
    asked = {**item("Which?", one, other, "Third"), "multiSelect": several}
    assert says_same(asked, one, other) is False
    assert says_same(asked, one, f" {one}\n") is True
    assert says_same({**asked, "options": []}, one, other) is None
    assert in_own_labels({**asked, "options": [{"label": other}, {"label": "Third"}]}, one) == one
    assert (
        in_own_labels({**asked, "options": [{"label": f"{one} (Recommended)"}]}, one)
        == f"{one} (Recommended)"
    )


def test_an_option_keeps_its_own_words_beside_one_that_only_recommends_them() -> None:
    asked = item("Which?", "Yes", "Yes (Recommended)", "Use (recommended) settings")
    assert [in_own_labels(asked, text) for text in ("Yes", "Yes (Recommended)")] == [
        "Yes",
        "Yes (Recommended)",
    ]
    assert in_own_labels(asked, "Use settings") == "Use settings"


@pytest.mark.parametrize(
    ("text", "before", "asked", "after"),
    [
        ("Comma or semicolon?", "", "Comma or semicolon?", ""),
        ("Name the file.", "", "Name the file.", ""),
        ("Name the file.\n\nIt is long.", "", "Name the file.", "It is long."),
        ("The bank rounds up. Which one holds?", "The bank rounds up.", "Which one holds?", ""),
        ("Which one holds? The bank rounds up.", "", "Which one holds?", "The bank rounds up."),
        ("Is A right? The docs say B. Or is it C?", "", "Is A right?", "The docs say B. Or is it C?"),
        ("I read it. May it go? Or not? It is old.", "I read it.", "May it go? Or not?", "It is old."),
        ("I read it.\n\nIt is old.\n\nMay it go?", "I read it.\n\nIt is old.", "May it go?", ""),
        ("Which?\n- A\n- B: why not?", "", "Which?", "- A\n- B: why not?"),
        ("Use e.g. Redis or PostgreSQL?", "", "Use e.g. Redis or PostgreSQL?", ""),
        ("Is `a ? b. C` right?", "", "Is `a ? b. C` right?", ""),
        ("See https://x.example/?a=1. Fetch it?", "See https://x.example/?a=1.", "Fetch it?", ""),
        ("Run this?\n\n```\necho why?\n\necho so?\n```", "", "Run this?", "```\necho why?\n\necho so?\n```"),
        ("See:\n\n```\na\n\nb?\n```", "", "See:", "```\na\n\nb?\n```"),
        ("Which way? the spec is silent.", "", "Which way?", "the spec is silent."),
        ("Which way? `round()` goes to even.", "", "Which way?", "`round()` goes to even."),
        ("Which way? – See https://x.example.", "", "Which way?", "– See https://x.example."),
        ('Keep the prompt "go on? y/n" as it is?', "", 'Keep the prompt "go on? y/n" as it is?', ""),
        ("", "", "", ""),
    ],
)
def test_h5_the_sentence_that_asks_stands_out_where_it_stands(
    text: str, before: str, asked: str, after: str
) -> None:
    """An agent's “Is that right?” above all that it had said before it was not to be understood."""
    assert parts_of_question(text) == (before, asked, after)


CURRENCY = {**item("Which currency do amounts without a sign have?"), "header": "Currency"}


@pytest.mark.parametrize(
    ("items", "title"),
    [
        ([CURRENCY], "Currency: Which currency do amounts without a sign have?"),
        ([{**CURRENCY, "header": ""}], "Which currency do amounts without a sign have?"),
        ([item("The bank rounds halves up. Is this right for us, too?")],
         "The bank rounds halves up. Is this right for us, too?"),
        ([item("The bank rounds up.\n\nWhich holds?")], "The bank rounds up. Which holds?"),
        ([item("Which holds? The bank rounds up.")], "Which holds? The bank rounds up."),
        ([item("The check fails. I have one attempt left. How shall it go on? No `setup` installs it.")],
         "… I have one attempt left. How shall it go on?"),
        ([item("Which holds?\n\n* The bank's.\n* Ours.")], "Which holds?"),
        ([item("The bank is closed. Which currency do amounts without a sign have?")],
         "Which currency do amounts without a sign have?"),
        ([CURRENCY, {**item("Is this right?"), "header": "Rounding"}],
         "Currency: Which currency do amounts without a sign have? (and 1 more: Rounding)"),
        ([item("A?"), item("B?"), item("C?")], "A? (and 2 more)"),
    ],
)  # fmt: skip
def test_h3_the_title_of_a_card_says_what_it_is_about(items: list[dict[str, Any]], title: str) -> None:
    assert str(title_of(items)) == title


@pytest.mark.parametrize(
    "act",
    [
        lambda: parts_of_question("A? e.g. B " * 20_000),
        lambda: parts_of_question("e.g. " * 20_000),
        lambda: says_same(LONG, "a, " * 5_000, "b, " * 5_000),
        lambda: answer_in_full(LONG, ", ".join(["x"] * 90)),
        lambda: without_remarks("(I " * 20_000 + "; — " * 20_000),
        lambda: own_label(" " * 50_000 + "(Recommended)"),
    ],
)
def test_long_texts_of_an_agent_take_no_longer_than_their_length(act: Callable[[], object]) -> None:
    """R4: one agent must not hold the web process for minutes. Cubic, these took from 7 s to hours."""
    act()


def test_a_label_with_commas_is_one_choice() -> None:
    item = {"multiSelect": True, "options": [{"label": "A, B"}, {"label": "A"}, {"label": "C"}]}
    assert answer_in_full(item, "A, B, C") == "A, B; C"
    assert answer_in_full(item, "A, C") == "A; C"


@pytest.mark.parametrize(
    ("said", "rule"),
    [
        ("As the bank does. I favour this.", "As the bank does."),
        ("As the bank does (my preference).", "As the bank does."),
        ("As the bank does — I'd go with this. Slower.", "As the bank does. Slower."),
        ("I favour this.", ""),
        ("I/O stays in `my_io.py`; Type I", "I/O stays in `my_io.py`; Type I"),
    ],
)  # fmt: skip
def test_d2_what_an_agent_says_of_itself_is_no_part_of_a_rule(said: str, rule: str) -> None:
    assert without_remarks(said) == rule


def test_own_words_behind_choices_stay_as_they_were_written() -> None:
    item = {"multiSelect": True, "options": [{"label": "A", "description": "First."}, {"label": "C"}]}
    assert answer_in_full(item, "A, one helper, for both") == "A: First; one helper, for both"


def test_blanks_stay_because_a_question_may_be_about_them() -> None:
    """`a  # b` and `a # b` became the same in titles, statements and prompts."""
    assert sentence_asked({"question": "Is `a  # b`\n  right?"}) == "Is `a  # b` right?"
    described = {"question": "Q?", "options": [{"label": "Keep", "description": "As in\n`a  # b`"}]}
    assert answer_in_full(described, "Keep") == "Keep: As in `a  # b`"
    assert escaped_line("x  y\r\n\n z\u2028w") == "x  y z w"


@pytest.mark.parametrize(
    ("answer", "several", "chosen"),
    [
        ("Redis", False, ["Redis"]),
        ("Redis (Recommended)", False, ["Redis"]),
        ("Neither, Redis, nor SQLite", False, []),
        ("Neither, Redis, nor SQLite", True, []),
        ("SQLite, with WAL, Redis", True, ["SQLite, with WAL", "Redis"]),
        ("Redis, but only for sessions", True, ["Redis"]),
        ("", False, []),
    ],
)
def test_only_options_that_were_chosen_are_explained(answer: str, several: bool, chosen: list[str]) -> None:
    """H10: a sentence that mentions options does not choose them."""
    asked = {**item("Where?", "SQLite, with WAL", "Redis"), "multiSelect": several}
    for option in asked["options"]:
        option["description"] = f"{option['label']} it is."
    assert chosen_options(asked, answer) == [(label, f"{label} it is.") for label in chosen]
