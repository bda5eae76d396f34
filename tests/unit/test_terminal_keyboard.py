"""Reading lines from a pipe or a terminal without being held up by it (H6)."""

from __future__ import annotations

import os
import pty
from collections.abc import Iterator

import pytest

from tasks_app.terminal.keyboard import Keyboard

LONG = 30.0


@pytest.fixture
def pipe() -> Iterator[tuple[Keyboard, int]]:
    end, start = os.pipe()
    yield Keyboard(end), start
    os.close(end)


@pytest.fixture
def terminal() -> Iterator[tuple[Keyboard, int]]:
    master, slave = pty.openpty()
    yield Keyboard(slave), master
    os.close(slave)
    os.close(master)


def test_a_pipe_gives_a_line_at_a_time_and_its_end(pipe: tuple[Keyboard, int]) -> None:
    keyboard, start = pipe
    os.write(start, "one\r\nzwei ☃\n\nlast".encode())
    os.close(start)
    assert keyboard.line(LONG) == "one"
    keyboard.forget()  # for terminals only: what a script wrote ahead is meant
    assert not keyboard.pasted()
    assert [keyboard.line(LONG) for _ in range(3)] == ["zwei ☃", "", "last"]
    with pytest.raises(EOFError):
        keyboard.line(LONG)


def test_half_a_line_is_no_line_yet(pipe: tuple[Keyboard, int]) -> None:
    keyboard, start = pipe
    assert keyboard.line(0) is None
    os.write(start, b"ha")
    assert keyboard.line(LONG) is None
    os.write(start, b"lf\n")
    assert keyboard.line(LONG) == "half"
    os.close(start)


def test_a_closed_standard_input_is_an_end() -> None:
    end, start = os.pipe()
    os.close(end)
    os.close(start)
    with pytest.raises(EOFError):
        Keyboard(end).line(LONG)


def test_what_was_typed_before_the_question_does_not_answer_it(terminal: tuple[Keyboard, int]) -> None:
    """R1: no answer is given to another question than the one it was meant for."""
    keyboard, master = terminal
    os.write(master, b"too early\n")
    assert keyboard.line(LONG) == "too early"
    os.write(master, b"still too early\n")
    keyboard.forget()
    os.write(master, b"now\n")
    assert keyboard.line(LONG) == "now"


def test_pasted_lines_are_noticed(terminal: tuple[Keyboard, int]) -> None:
    keyboard, master = terminal
    os.write(master, b"first\nsecond\n")
    assert keyboard.line(LONG) == "first"
    assert keyboard.pasted()
    assert keyboard.line(LONG) == "second"
    assert not keyboard.pasted()


def test_ctrl_d_is_an_end(terminal: tuple[Keyboard, int]) -> None:
    keyboard, master = terminal
    os.write(master, b"\x04")
    with pytest.raises(EOFError):
        keyboard.line(LONG)
