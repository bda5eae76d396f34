"""Reading lines from a pipe or a terminal without being held up by it (H6)."""

from __future__ import annotations

import fcntl
import os
import pty
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

from tasks_app.cli.terminal import Keyboard, flush_terminal

ROOT = Path(__file__).parents[2]

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
    assert keyboard.read_line(LONG) == "one"
    keyboard.discard_input()  # for terminals only: what a script wrote ahead is meant
    assert not keyboard.has_pasted_line()
    assert [keyboard.read_line(LONG) for _ in range(3)] == ["zwei ☃", "", "last"]
    with pytest.raises(EOFError):
        keyboard.read_line(LONG)


def test_half_a_line_is_no_line_yet(pipe: tuple[Keyboard, int]) -> None:
    keyboard, start = pipe
    assert keyboard.read_line(0) is None
    os.write(start, b"ha")
    assert keyboard.read_line(LONG) is None
    os.write(start, b"lf\n")
    assert keyboard.read_line(LONG) == "half"
    os.close(start)


def test_a_closed_standard_input_is_an_end() -> None:
    end, start = os.pipe()
    os.close(end)
    os.close(start)
    with pytest.raises(EOFError):
        Keyboard(end).read_line(LONG)


def test_what_was_typed_before_the_question_does_not_answer_it(terminal: tuple[Keyboard, int]) -> None:
    """R1: no answer is given to another question than the one it was meant for."""
    keyboard, master = terminal
    os.write(master, b"too early\n")
    assert keyboard.read_line(LONG) == "too early"
    os.write(master, b"still too early\n")
    keyboard.discard_input()
    os.write(master, b"now\n")
    assert keyboard.read_line(LONG) == "now"


def test_pasted_lines_are_noticed(terminal: tuple[Keyboard, int]) -> None:
    keyboard, master = terminal
    os.write(master, b"first\nsecond\n")
    assert keyboard.read_line(LONG) == "first"
    assert keyboard.has_pasted_line()
    assert keyboard.read_line(LONG) == "second"
    assert not keyboard.has_pasted_line()


def test_ctrl_d_is_an_end(terminal: tuple[Keyboard, int]) -> None:
    keyboard, master = terminal
    os.write(master, b"\x04")
    with pytest.raises(EOFError):
        keyboard.read_line(LONG)


SHELL = """\
import os, sys
from tasks_app.cli.terminal import flush_terminal
print("typed", flush=True)
os.read(int(sys.argv[2]), 1)
if sys.argv[1] == "flush":
    flush_terminal()
os.write(1, b"ready\\n")
print("the shell reads:", input(), flush=True)
"""


@pytest.mark.parametrize(("how", "read"), [("flush", "ls"), ("keep", "half an answerls")])
def test_half_a_line_does_not_fall_into_the_shell(how: str, read: str) -> None:
    """The second case shows that it would."""
    master, slave = pty.openpty()
    go, gone = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-c", SHELL, how, str(go)],
        stdin=slave, stdout=slave, stderr=slave, start_new_session=True, pass_fds=(go,), cwd=ROOT,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )  # fmt: skip
    os.close(slave)
    until(master, "typed")
    os.write(master, b"half an answer")
    until(master, "half an answer")
    os.write(gone, b"x")
    until(master, "ready")
    os.write(master, b"ls\n")
    assert f"the shell reads: {read}\r\n" in until(master, "the shell reads: " + read)
    process.wait(30)
    for one in (master, go, gone):
        os.close(one)


def until(master: int, text: str) -> str:
    seen = ""
    while text not in seen or (not seen.endswith("\n") and text.startswith("the shell")):
        seen += os.read(master, 4096).decode()
    return seen


def test_a_job_in_the_background_is_not_stopped_for_it() -> None:
    """A terminal stops a job of the background that flushes it."""
    master, slave = pty.openpty()
    flush_terminal(slave)  # of a terminal that is not ours
    os.close(slave)
    os.close(master)
    with open(os.devnull) as nothing:  # noqa: PTH123
        flush_terminal(nothing.fileno())
