"""How well similar questions are told from others (D4), and that the key of a question stays what it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tasks_app.core.similar_questions import Likeness, question_digest, texts_of, words_of
from tasks_app.services.questions.earlier_answers import THRESHOLD, lowest_shown
from tests.similar_questions import DIFFERENT_TEXTS, answered_items, pairs

Record = Callable[[str, object], None]

#: Measured (tests/quality/README.md), less 0.03, or plus 0.03 for what should not be shown.
FIRST, SHOWN, WRONG = 0.84, 0.45, 0.03
SHORT_FIRST, SHORT_WRONG = 0.92, 0.22


def words(item: dict[str, Any], answer: str = "") -> list[str]:
    return words_of(texts_of(item, answer))


def test_d4_the_right_one_of_1000_earlier_answers_comes_first(record_property: Record) -> None:
    """Agents meet the same blocker in another task and describe it in other words."""
    stored = answered_items()
    sets = [words(one.item, one.answer) for one in stored]
    likeness, asked = Likeness(sets), [one for one in stored if one.later]
    first = shown = wrong = 0
    for place, one in enumerate(asked):
        later = words(one.later)
        scores = likeness.of_each(later, sets)
        ranked = sorted(((score, n) for n, score in enumerate(scores)), reverse=True)[:3]
        near = [n for score, n in ranked if score >= lowest_shown(scores)]
        first += ranked[0][1] == place
        shown += place in near
        wrong += bool(near) and near[0] != place
    of = len(asked)
    what = f"first {first / of:.2f}, shown {shown / of:.2f}, a wrong one first {wrong / of:.2f}"
    record_property("measured", f"earlier answers: of {of} among {len(stored)}, the right one {what}")
    assert of >= 60 and len(stored) == 1_000
    assert (first / of >= FIRST, shown / of >= SHOWN, wrong / of <= WRONG) == (True, True, True), what


def test_d4_short_questions_in_other_words_come_first(record_property: Record) -> None:
    """All questions of the pairs are stored, without those that look for one."""
    asked = [pair.earlier for pair in pairs()] + [pair.later for pair in pairs() if not pair.is_alike]
    stored = {question_digest(items): words(items[0]) for items in asked}
    likeness, alike = Likeness(list(stored.values())), [pair for pair in pairs() if pair.kind == "para"]
    first = with_wrong = 0
    for pair in alike:
        later, right = words(pair.later[0]), question_digest(pair.earlier)
        ranked = sorted(((likeness.of(later, each), key) for key, each in stored.items()), reverse=True)[:3]
        least = lowest_shown(score for score, _ in ranked)
        shown = [key for score, key in ranked if score >= least]
        first += shown[:1] == [right]
        with_wrong += bool(set(shown) - {right})
    share, wrong = first / len(alike), with_wrong / len(alike)
    record_property(
        "measured",
        f"similar questions: {first} of {len(alike)} first among {len(stored)} ({share:.2f}), "
        f"a wrong one shown with {with_wrong} ({wrong:.2f})",
    )
    assert len(stored) >= 140 and share >= SHORT_FIRST and wrong <= SHORT_WRONG


def test_d4_an_unrelated_question_is_not_shown() -> None:
    likeness = Likeness([])
    unrelated = [pair for pair in pairs() if pair.kind == "none"]
    scores = [likeness.of(words(pair.earlier[0]), words(pair.later[0])) for pair in unrelated]
    assert len(scores) >= 30 and max(scores) < THRESHOLD


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("May I rename the tables?", ["renam", "tabl"]),
        ("orderService.getTotal", ["/orderservice.gettotal", "order", "servic", "get", "total"]),
        ("src/billing/tax.py", ["/src/billing/tax.py", "src", "bill", "tax", "py"]),
        ("Café 404", ["cafe", "404"]),
        ("本番のDBは?", ["本番", "番の", "db", "は"]),
        ("退款", ["退款"]),
        ("로그 보관", ["로그", "보관"]),
    ],
    ids=["stems", "names", "paths", "marks", "Japanese", "Chinese", "Korean"],
)
def test_d4_what_counts_as_a_word(text: str, found: list[str]) -> None:
    assert words_of([text]) == found


def test_d4_a_rare_word_counts_more() -> None:
    likeness = Likeness([{"order", "vat"}, *[{"order", str(n)} for n in range(50)]])
    asked = {"order", "vat", "round"}
    assert likeness.of(asked, {"vat", "cent"}) > likeness.of(asked, {"order", "cent"}) > 0
    assert likeness.of(asked, asked) == pytest.approx(1) and likeness.of(asked, set()) == 0


def test_d4_the_same_questions_have_one_key() -> None:
    same = [pair for pair in pairs() if pair.kind == "same"]
    assert same and all(question_digest(pair.earlier) == question_digest(pair.later) for pair in same)
    others = [pair for pair in pairs() if pair.kind != "same"]
    assert not [pair for pair in others if question_digest(pair.earlier) == question_digest(pair.later)]


def item(question: str = "Store it?", several: bool = False, **option: str) -> dict[str, Any]:
    options = [{"label": "Yes", **option}, {"label": "No"}]
    return {"question": question, "header": "H", "options": options, "multiSelect": several}


def test_d4_a_key_does_not_change_between_versions() -> None:
    """Keys are stored: whoever changes the normalisation fills the column again."""
    assert question_digest([item()]) == "835aea20b84bdb7514b6b80a9698aa4e"


@pytest.mark.parametrize(
    "other",
    [
        item("Store it in C++?"), item("Store them?"), item(several=True), item(label="Yes!x"),
        item(description="At once."), item(preview="1"),
    ],
    ids=["words", "word", "several", "label", "description", "preview"],
)  # fmt: skip
def test_d4_what_differs_has_another_key(other: dict[str, Any]) -> None:
    assert question_digest([other]) != question_digest([item()])


@pytest.mark.parametrize(("one", "other"), DIFFERENT_TEXTS)
def test_d5_one_character_makes_another_question(one: str, other: str) -> None:
    """Only white space and Unicode composition do not count: case and punctuation tell code apart."""
    whole = [{"question": f"Is it {text}?", "options": []} for text in (one, other)]
    assert question_digest(whole[:1]) != question_digest(whole[1:])
    for place in ("label", "description", "preview"):
        options = [[{"label": "Yes", place: text}] for text in (one, other)]
        mine, theirs = ({**item(), "options": several} for several in options)
        assert question_digest([mine]) != question_digest([theirs])
    headed = [{**item(), "header": text} for text in (one, other)]
    assert question_digest(headed[:1]) != question_digest(headed[1:])


def test_d5_white_space_composition_order_and_recommendations_do_not_matter() -> None:
    other = {
        "question": " Store\n it? ",
        "header": "H ",
        "options": [{"label": "No", "description": None}, {"label": "Yes (Recommended)"}],
    }
    assert question_digest([other]) == question_digest([item()])
    assert question_digest([item("Caf\u00e9?")]) == question_digest([item("Cafe\u0301?")])
    assert question_digest([item(), item("And?")]) == question_digest([item("And?"), item()])


def test_d4_damaged_items_are_compared_as_far_as_they_go() -> None:
    damaged: list[list[dict[str, Any]]] = [
        [],
        [{}],
        [{"question": None, "options": "x"}],
        [{"question": "a" * 100_000}],
    ]
    for items in damaged:
        assert question_digest(items)
        assert all(Likeness([]).of(words(one), words(item())) >= 0 for one in items)
