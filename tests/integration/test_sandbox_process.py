"""Running a command to its end: output, time limit, stop, and what it leaves behind (P5, R2)."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest

from tasks_app.sandbox import Finished, Sandbox, SandboxedCommand, run
from tests.integration.fifo import Fifo

OPEN = Sandbox(None, "for this test")


def shell(script: str, folder: Path) -> SandboxedCommand:
    return OPEN.command(["bash", "-c", script], workspace=folder, home=folder, env={})


def python(script: str, folder: Path) -> SandboxedCommand:
    return OPEN.command([sys.executable, "-c", script], workspace=folder, home=folder, env={})


def test_output_and_error_come_merged_in_order(tmp_path: Path) -> None:
    assert run(shell("echo one; echo two >&2; echo three", tmp_path), timeout=30) == Finished(
        0, "one\ntwo\nthree\n"
    )


def test_a_command_killed_by_a_signal_has_the_shells_code(tmp_path: Path) -> None:
    assert run(shell("kill -9 $$", tmp_path), timeout=30).exit_code == 137


def test_a_command_gets_no_input(tmp_path: Path) -> None:
    assert run(shell("cat; echo end", tmp_path), timeout=30).output == "end\n"


def test_a_time_limit_ends_the_whole_group_and_keeps_what_was_said(tmp_path: Path) -> None:
    fifo = Fifo(tmp_path / "alive")
    done = run(shell("exec 3>alive; echo begun; sleep 1000 & sleep 1000", tmp_path), timeout=2)
    assert done == Finished(None, "begun\n", timed_out=True)
    fifo.wait_for_end()


def test_a_stop_ends_the_command(tmp_path: Path) -> None:
    wanted = threading.Event()
    wanted.set()
    assert run(shell("sleep 1000", tmp_path), timeout=60, stop=wanted.is_set) == Finished(
        None, "", stopped=True
    )


def test_an_error_in_the_stop_question_leaves_no_process(tmp_path: Path) -> None:
    fifo = Fifo(tmp_path / "alive")

    def broken() -> bool:
        fifo.wait_for("ready")
        raise RuntimeError("database is away")

    with pytest.raises(RuntimeError):
        run(shell("exec 3>alive; echo ready >&3; sleep 1000", tmp_path), timeout=60, stop=broken)
    fifo.wait_for_end()


def test_a_grandchild_that_keeps_the_pipe_open_does_not_hold_up_the_end(tmp_path: Path) -> None:
    fifo = Fifo(tmp_path / "alive")
    done = run(shell("exec 3>alive; setsid sleep 60 & echo $! > pid; echo done", tmp_path), timeout=30)
    assert done == Finished(0, "done\n")
    run(shell("kill $(cat pid)", tmp_path), timeout=30)
    fifo.wait_for_end()


def test_a_child_left_in_the_background_is_ended(tmp_path: Path) -> None:
    fifo = Fifo(tmp_path / "alive")
    assert run(shell("exec 3>alive; sleep 1000 & echo done", tmp_path), timeout=30).output == "done\n"
    fifo.wait_for_end()


def test_a_process_that_closes_its_output_is_still_waited_for(tmp_path: Path) -> None:
    assert run(shell("exec >&- 2>&-; read -t 0.3 < <(sleep 1); exit 4", tmp_path), timeout=30).exit_code == 4


def test_characters_split_over_reads_stay_whole(tmp_path: Path) -> None:
    script = "import os\nfor b in 'ä☃🐈'.encode() * 300: os.write(1, bytes([b]))"
    assert run(python(script, tmp_path), timeout=30).output == "ä☃🐈" * 300


def test_what_is_not_text_is_replaced(tmp_path: Path) -> None:
    assert run(shell(r"printf 'a\xffb\0c'", tmp_path), timeout=30).output == "a�b�c"


def test_long_output_keeps_its_end_and_says_what_is_cut(tmp_path: Path) -> None:
    done = run(python("print('é' * 500_000 + 'END')", tmp_path), timeout=30, output_limit=1000)
    first, rest = done.output.split("\n", 1)
    assert first == f"[… the first {1_000_004 - 1000} bytes of output are cut …]"
    assert rest.endswith("ééEND\n") and "�" not in rest


def test_output_within_the_limit_is_whole(tmp_path: Path) -> None:
    assert run(python("print('x' * 999)", tmp_path), timeout=30, output_limit=1000).output == "x" * 999 + "\n"


def test_a_missing_program_is_exit_127_with_its_name(tmp_path: Path) -> None:
    done = run(OPEN.command(["no-such-program"], workspace=tmp_path, home=tmp_path, env={}), timeout=30)
    assert done.exit_code == 127 and "no-such-program" in done.output


def test_a_missing_workspace_is_exit_127_with_the_reason(tmp_path: Path) -> None:
    done = run(shell("true", tmp_path / "gone"), timeout=30)
    assert done.exit_code == 127 and "No such file" in done.output
