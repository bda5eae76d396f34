"""The interaction threshold: what is taken, what is refused, which one holds (SPEC H1)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tasks_app.config.threshold import (
    LEVELS,
    Band,
    band_of,
    parse_threshold,
    resolve_threshold,
    threshold_from_text,
)
from tasks_app.core.errors import BadInput


@pytest.mark.parametrize("level", range(6))
def test_h1_every_level_from_0_to_5_is_taken(level: int) -> None:
    assert parse_threshold(level, where="here") == level
    assert threshold_from_text(str(level), where="here") == level


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (-1, "-1"),
        (6, "6"),
        ("high", '"high"'),
        (2.5, "2.5"),
        (3.0, "3.0"),
        (True, "true"),
        (False, "false"),
        (None, "nothing"),
        ("3", '"3"'),
        ([3], "a list"),
        ({}, "a mapping"),
    ],
)
def test_h1_anything_else_is_refused_with_its_place_and_value(value: object, named: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse_threshold(value, where="cat-herder.yaml:4")
    wanted = f"cat-herder.yaml:4: interactionThreshold must be a whole number from 0 to 5, not {named}"
    assert str(caught.value) == wanted


@pytest.mark.parametrize("text", ["", "-1", "6", "high", "2.5", "true", "03", "٣", "1" * 5000])
def test_h1_typed_text_that_is_no_level_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match=r"^--threshold: the threshold must be a whole number") as caught:
        threshold_from_text(text, where="--threshold")
    assert len(str(caught.value)) < 200


def test_h1_blanks_around_a_typed_level_do_not_matter() -> None:
    assert threshold_from_text(" 4\n", where="form") == 4


def test_h1_the_guide_explains_each_level_in_the_words_of_the_pages() -> None:
    guide = (Path(__file__).parents[2] / "docs/asking-and-thresholds.md").read_text()
    explained = dict(re.findall(r"^\| ([1-5]) \| \w+ \| (.*) \|$", guide, re.MULTILINE))
    for level in range(1, 6):
        words = LEVELS[level].removeprefix("Asks ").rstrip(".")
        assert explained[str(level)].startswith(words[0].upper() + words[1:])


def test_h1_every_band_has_a_sentence_of_its_own() -> None:
    assert len({band.sentence for band in Band}) == 4
    assert [band_of(level) for level in range(6)] == [
        Band.NEVER,
        Band.LOW,
        Band.LOW,
        Band.MEDIUM,
        Band.MEDIUM,
        Band.HIGH,
    ]


@pytest.mark.parametrize(
    ("explicit", "task", "project", "expected"),
    [(0, 1, 2, 0), (5, None, None, 5), (None, 0, 2, 0), (None, None, 0, 0), (None, None, None, 3)],
)
def test_h1_the_most_specific_threshold_wins_even_when_it_is_0(
    explicit: int | None, task: int | None, project: int | None, expected: int
) -> None:
    assert resolve_threshold(explicit=explicit, task=task, project=project, installation=3) == expected
