"""`prompts/interaction-intro.md`: complete, different at each level, never empty (SPEC H1, H2, H13)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tasks_app.core.errors import BadInput
from tasks_app.prompting.instructions import load_interaction_intro, read_interaction_intro

SHIPPED = Path(__file__).parents[2] / "prompts" / "interaction-intro.md"
NAMES = ["COMMON", "LOW", "MEDIUM", "HIGH", *(f"LEVEL {level}" for level in range(1, 6))]


def file_with(**changes: str | None) -> str:
    bodies: dict[str, str | None] = {name: f"Text of {name}." for name in NAMES}
    bodies["COMMON"] = "You are at {{threshold}}."
    bodies.update({name.replace("_", " "): body for name, body in changes.items()})
    return "".join(f"## {name}\n\n{body}\n\n" for name, body in bodies.items() if body is not None)


def test_h2_each_level_gets_its_band_and_its_own_sentence_as_one_paragraph_and_the_common_part() -> None:
    intro = load_interaction_intro("# Title\n<!-- ## LOW -->\n" + file_with())
    assert intro.render(2) == "Text of LOW.\nText of LEVEL 2.\n\nYou are at 2."
    for level, band in enumerate(("LOW", "LOW", "MEDIUM", "MEDIUM", "HIGH"), start=1):
        assert intro.render(level).startswith(f"Text of {band}.\nText of LEVEL {level}.\n\n")


def test_h13_a_threshold_of_0_says_nothing() -> None:
    assert read_interaction_intro(SHIPPED).render(0) == ""


def test_h2_in_the_shipped_file_every_level_differs_and_names_its_number_and_both_ways_of_asking() -> None:
    intro = read_interaction_intro(SHIPPED)
    texts = [intro.render(level) for level in range(1, 6)]
    assert len(set(texts)) == 5
    for level, text in enumerate(texts, start=1):
        assert f"threshold is {level} " in text
        assert "`AskUserQuestion`" in text
        assert '`cat-herder ask "' in text
        assert "{{" not in text
        assert "<!--" not in text


def test_h2_line_ends_and_the_case_of_headings_do_not_matter() -> None:
    text = file_with().replace("## LOW", "##  low").replace("\n", "\r\n")
    assert load_interaction_intro(text).render(1).startswith("Text of LOW.\nText of LEVEL 1.")


@pytest.mark.parametrize("name", NAMES)
def test_h2_a_missing_or_empty_section_is_named_with_its_file(name: str) -> None:
    for body, fault in ((None, "missing"), ("", "empty"), ("<!-- later -->", "empty")):
        with pytest.raises(BadInput) as caught:
            load_interaction_intro(file_with(**{name: body}), where="p/intro.md")
        assert str(caught.value) == f"p/intro.md: the section {name} is {fault}"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "the section COMMON is missing"),
        (file_with() + "## low\n\nAgain.\n", "the section LOW is there twice"),
        (
            file_with(EXTREME="x"),
            "the section EXTREME is not known; known are: COMMON, LOW, MEDIUM, HIGH, LEVEL 1",
        ),
        (file_with(COMMON="No number."), "the section COMMON lacks {{threshold}}, the place for the number"),
        (file_with(LOW="At {{level}}."), "the section LOW has the unknown placeholder {{level}}"),
    ],
)
def test_h2_a_broken_file_is_an_error_and_no_empty_prompt(text: str, fault: str) -> None:
    with pytest.raises(BadInput) as caught:
        load_interaction_intro(text)
    assert str(caught.value).startswith(f"prompts/interaction-intro.md: {fault}")


@pytest.mark.parametrize("threshold", [-1, 6])
def test_h1_a_threshold_off_the_scale_has_no_text(threshold: int) -> None:
    with pytest.raises(BadInput, match="from 0 to 5"):
        read_interaction_intro(SHIPPED).render(threshold)


def test_h2_a_file_that_is_not_there_or_not_text_is_named(tmp_path: Path) -> None:
    binary = tmp_path / "binary.md"
    binary.write_bytes(b"\xff\xfe")
    for path in (tmp_path / "missing.md", binary):
        with pytest.raises(BadInput) as caught:
            read_interaction_intro(path)
        assert str(caught.value).startswith(f"{path}: the file cannot be read")
