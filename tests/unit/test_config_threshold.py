"""The interaction threshold: what is taken, what is refused, which one holds (SPEC H1)."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tasks_app.config.faults import ConfigInvalid
from tasks_app.config.pipeline import load_project_config
from tasks_app.config.threshold import (
    LEVELS,
    resolve_threshold,
    threshold_fault,
    threshold_from_text,
)
from tasks_app.core.errors import BadInput


@pytest.mark.parametrize("level", range(6))
def test_h1_every_level_from_0_to_5_is_taken(level: int) -> None:
    assert load_project_config(f"interactionThreshold: {level}").interaction_threshold == level
    assert threshold_fault(level) is None
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
    fault = f"must be a whole number from 0 to 5, not {named}"
    assert threshold_fault(value) == fault
    if value is not None:  # in a file, that is a key without a value
        with pytest.raises(ConfigInvalid) as caught:
            load_project_config(f"\n\n\ninteractionThreshold: {json.dumps(value)}\n")
        assert str(caught.value) == f"cat-herder.yaml:4: interactionThreshold {fault}"


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


@pytest.mark.parametrize(
    ("explicit", "task", "project", "expected"),
    [(0, 1, 2, 0), (5, None, None, 5), (None, 0, 2, 0), (None, None, 0, 0), (None, None, None, 3)],
)
def test_h1_the_most_specific_threshold_wins_even_when_it_is_0(
    explicit: int | None, task: int | None, project: int | None, expected: int
) -> None:
    assert resolve_threshold(explicit=explicit, task=task, project=project, installation=3) == expected
