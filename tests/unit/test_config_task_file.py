"""Task files: front matter, title, body, and everything that can be wrong with them (SPEC H1, P3, R5)."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tasks_app.config.faults import ConfigInvalid
from tasks_app.config.task_file import MAX_TITLE, TaskDefinition, parse_task, read_task_file
from tasks_app.core.errors import BadInput


def test_a_task_is_its_text_when_there_is_no_front_matter() -> None:
    task = parse_task("# Fix the clock\n\nIt is late.\n", where="t.md")
    assert task == TaskDefinition(title="Fix the clock", body="# Fix the clock\n\nIt is late.\n")
    assert (task.pipeline, task.threshold, task.model, task.resume) == (None, None, None, "session")


@pytest.mark.parametrize("bom", ["", "\ufeff"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_front_matter_is_read_with_any_line_ends_and_byte_order_mark(bom: str, newline: str) -> None:
    lines = [
        "---",
        "title: Better",
        "pipeline: quick",
        "interactionThreshold: 0",
        "model: opus",
        "resume: replay",
        "---",
        "",
        "Do it.",
    ]
    assert parse_task(bom + newline.join(lines), where="t.md") == TaskDefinition(
        title="Better", body="Do it.\n", pipeline="quick", threshold=0, model="opus", resume="replay"
    )


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("Intro\n\n# Heading ##\nmore", "Heading"),
        ("```\n# comment\n```\n# Real", "Real"),
        ("~~~\n```\n# comment\n~~~\nx", "~~~"),
        ("\n\n## Second level only\ntext", "Second level only"),
        ("- [ ] a list item", "[ ] a list item"),
        ("one\x1b[31m  two\tthree", "one two three"),
        ("#hashtag", "#hashtag"),
        ("\u200b", "Untitled task"),
    ],
)
def test_the_title_is_the_first_heading_or_else_the_first_line(text: str, title: str) -> None:
    assert parse_task(text, where="t.md").title == title


def test_a_long_title_is_cut_and_says_so() -> None:
    title = parse_task("# " + "word " * 100, where="t.md").title
    assert len(title) <= MAX_TITLE
    assert title.endswith("…")


def test_empty_front_matter_says_nothing() -> None:
    assert parse_task("---\n---\nDo it.\n", where="t.md") == TaskDefinition(title="Do it.", body="Do it.\n")


def test_a_rule_further_down_is_no_front_matter() -> None:
    assert parse_task("a\n---\nb: [\n---\nc\n", where="t.md").body == "a\n---\nb: [\n---\nc\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "t.md:1: the task has no text"),
        ("\n \n", "t.md:3: the task has no text"),
        ("---\npipeline: x\n---\n\n", "t.md:5: the task has no text"),
        ("---\npipeline: x\n", "t.md:1: the front matter that begins here is never closed with ---"),
        ("---\n- a\n---\nx", "t.md:2: the file must be a mapping of keys to values"),
        ("---\njust words\n---\nx", "t.md:2: the file must be a mapping of keys to values"),
        ("a\nb\0c", "t.md:2: there is a NUL character"),
        (
            "---\ninteractionThreshold: high\n---\nx",
            't.md:2: interactionThreshold must be a whole number from 0 to 5, not "high"',
        ),
        (
            "---\n\nautonomyLevel: 3\n---\nx",
            't.md:3: autonomyLevel is not a known key; did you mean "interactionThreshold"?',
        ),
        ("---\nresume: maybe\n---\nx", "t.md:2: resume must be 'session' or 'replay', not \"maybe\""),
        ("---\nmodel: -x\n---\nx", 't.md:2: model must be the name of a model, not "-x"'),
        ("---\ntitle: 3\n---\nx", "t.md:2: title must be text, not 3"),
        ("---\ntitle: ''\n---\nx", "t.md:2: title must not be empty"),
        ("---\npipeline: [\n---\nx", "t.md:2: this is not YAML"),
    ],
)
def test_r5_a_fault_is_named_with_file_and_line(text: str, message: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse_task(text, where="t.md")
    assert str(caught.value).startswith(message)


def test_r5_all_faults_of_front_matter_are_reported_at_once() -> None:
    with pytest.raises(ConfigInvalid) as caught:
        parse_task("---\npipline: x\ninteractionThreshold: 6\n---\nx", where="t.md")
    assert [problem.line for problem in caught.value.problems] == [2, 3]


def test_a_task_file_is_read_with_its_text(tmp_path: Path) -> None:
    path = tmp_path / "t.md"
    path.write_text("# Grüße ☃\n", encoding="utf-8")
    assert read_task_file(path) == ("# Grüße ☃\n", TaskDefinition(title="Grüße ☃", body="# Grüße ☃\n"))


def _missing(folder: Path) -> Path:
    return folder / "missing.md"


def _directory(folder: Path) -> Path:
    return folder


def _pipe(folder: Path) -> Path:
    os.mkfifo(folder / "pipe.md")
    return folder / "pipe.md"


def _loop(folder: Path) -> Path:
    (folder / "loop.md").symlink_to(folder / "loop.md")
    return folder / "loop.md"


def _binary(folder: Path) -> Path:
    (folder / "b.md").write_bytes(b"\x89PNG\r\n\x1a\n\xff\xfe")
    return folder / "b.md"


def _huge(folder: Path) -> Path:
    (folder / "huge.md").write_bytes(b"x" * 1_000_001)
    return folder / "huge.md"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (_missing, "cannot be read: No such file or directory"),
        (_directory, "this is not a file"),
        (_pipe, "this is not a file"),
        (_loop, "cannot be read: Too many levels of symbolic links"),
        (_binary, "this is not UTF-8 text"),
        (_huge, "the file is larger than 1,000,000 bytes"),
    ],
)
def test_r5_a_task_file_that_cannot_be_read_is_named(
    make: Callable[[Path], Path], message: str, tmp_path: Path
) -> None:
    path = make(tmp_path)
    with pytest.raises(BadInput) as caught:
        read_task_file(path)
    assert str(caught.value).startswith(str(path))
    assert message in str(caught.value)
