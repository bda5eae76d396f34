"""The prompt file of a step: the repository's own, else the shipped one (SPEC P2)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tasks_app.core.errors import BadInput
from tasks_app.prompting.instructions import load_step_instructions

STEPS = Path(__file__).parents[2] / "prompts" / "steps"


def test_p2_the_repository_goes_before_what_is_shipped() -> None:
    assert load_step_instructions("implement", repository_text="Ours.\n", shipped_dir=STEPS) == "Ours."
    shipped = load_step_instructions("implement", repository_text=None, shipped_dir=STEPS)
    assert shipped == (STEPS / "implement.md").read_text(encoding="utf-8").strip()


def test_p2_for_self_the_task_is_the_prompt_whatever_the_repository_has() -> None:
    text = load_step_instructions("self", repository_text="Something else.", shipped_dir=STEPS)
    assert text.startswith("Do what the task definition says")


@pytest.mark.parametrize(
    ("text", "body"),
    [
        ("---\ndescription: x\nallowed-tools: Bash\n---\n\nDo it.\n", "Do it."),
        ("\ufeff---\r\na: b\r\n---\r\nDo it.\r\nNow.\r\n", "Do it.\nNow."),
        ("---\n---\nDo it.", "Do it."),
        ("Do it.\n---\nThen more.\n---\n", "Do it.\n---\nThen more.\n---"),
        ("---\nnever closed\n", "---\nnever closed"),
    ],
)
def test_p2_front_matter_of_a_command_file_is_left_out(text: str, body: str) -> None:
    assert load_step_instructions("x", repository_text=text, shipped_dir=STEPS) == body


def test_p2_a_command_that_nobody_has_is_an_error_that_names_the_file_and_what_there_is() -> None:
    with pytest.raises(BadInput) as caught:
        load_step_instructions("deploy", repository_text=None, shipped_dir=STEPS)
    assert ".claude/commands/deploy.md" in str(caught.value)
    assert all(path.stem in str(caught.value) for path in STEPS.glob("*.md"))


@pytest.mark.parametrize("text", ["", " \n", "---\na: b\n---\n\n"])
def test_p2_an_empty_prompt_file_is_an_error_and_no_empty_prompt(text: str) -> None:
    with pytest.raises(BadInput, match=r"^\.claude/commands/x\.md: there are no instructions in this file$"):
        load_step_instructions("x", repository_text=text, shipped_dir=STEPS)


@pytest.mark.parametrize("name", ["", "..", "../../etc/passwd", "a/b", "-x", "a b", "x\0", "x" * 65, "x\n"])
def test_r4_a_name_cannot_lead_to_another_file(name: str) -> None:
    with pytest.raises(BadInput, match="is not the name of a command"):
        load_step_instructions(name, repository_text="Text.", shipped_dir=STEPS)


def test_r5_a_shipped_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "binary.md").write_bytes(b"\xff\xfe")
    (tmp_path / "folder.md").mkdir()
    for name in ("binary", "folder"):
        with pytest.raises(BadInput, match="the instructions cannot be read") as caught:
            load_step_instructions(name, repository_text=None, shipped_dir=tmp_path)
        assert str(tmp_path / f"{name}.md") in str(caught.value)
