"""The launcher: a listed environment, one agent in a workspace, and no trace of itself (R2, R4)."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tasks_app.agent import launch, run_setup
from tasks_app.agent.launch import BUSY, acquire_lock
from tests.integration.fifo import Fifo

SHOW = (
    "import json, os, sys; print(json.dumps([dict(os.environ), sys.argv[1:], os.getsid(0) == os.getpid()]))"
)


def orders(folder: Path, *argv: str, **more: Any) -> Path:
    path = folder / "orders.json"
    written = {"argv": argv, "env": {"PATH": os.environ["PATH"]}, "inherit": [], "lock": str(folder / "lock")}
    path.write_text(json.dumps({**written, **more}))
    return path


def launched(
    path: Path, *arguments: str, env: dict[str, str] | None = None, **more: Any
) -> subprocess.Popen[str]:
    command = [sys.executable, "-ISB", launch.__file__, str(path), *arguments]
    return subprocess.Popen(
        command, env=env or {}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more
    )


def shown(process: subprocess.Popen[str]) -> Any:
    out, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (0, "")
    return json.loads(out)


def is_free(lock: Path) -> bool:
    descriptor = os.open(lock, os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


def test_the_environment_is_the_listed_one_and_nothing_of_the_worker_passes(tmp_path: Path) -> None:
    path = orders(
        tmp_path,
        *(sys.executable, "-I", "-c", SHOW),
        env={"PATH": "/bin", "HOME": "/home/agent", "LC_ALL": "C.UTF-8"},
        inherit=["CLAUDE_CODE_ENTRYPOINT", "NOT_THERE"],
    )
    worker = {
        "DJANGO_SECRET_KEY": "s",
        "ANTHROPIC_API_KEY": "k",
        "CLAUDE_CODE_ENTRYPOINT": "sdk-py",
        "HOME": "/root",
    }
    env, _, _ = shown(launched(path, env=worker))
    assert env == {
        "PATH": "/bin",
        "HOME": "/home/agent",
        "LC_ALL": "C.UTF-8",
        "CLAUDE_CODE_ENTRYPOINT": "sdk-py",
    }


def test_the_arguments_follow_those_of_the_orders(tmp_path: Path) -> None:
    path = orders(tmp_path, sys.executable, "-I", "-c", SHOW, "--sandboxed")
    _, arguments, _ = shown(launched(path, "--resume", "a b", "☃\n"))
    assert arguments == ["--sandboxed", "--resume", "a b", "☃\n"]


def test_a_ctrl_c_at_the_terminal_does_not_reach_the_agent(tmp_path: Path) -> None:
    _, _, has_a_session_of_its_own = shown(launched(orders(tmp_path, sys.executable, "-I", "-c", SHOW)))
    assert has_a_session_of_its_own


def test_the_launcher_becomes_the_agent(tmp_path: Path) -> None:
    process = launched(orders(tmp_path, "sh", "-c", "echo $$; exit 3"))
    out, _ = process.communicate(timeout=30)
    assert (int(out), process.returncode) == (process.pid, 3)


def test_the_lock_is_held_until_the_last_process_of_the_agent_is_gone(tmp_path: Path) -> None:
    alive = Fifo(tmp_path / "alive")
    script = f"exec 9>'{tmp_path}/alive'; (echo up >&9; read line) <&0 & exit 0"
    process = launched(orders(tmp_path, "bash", "-c", script), stdin=subprocess.PIPE)
    alive.wait_for("up")
    process.wait(30)
    assert not is_free(tmp_path / "lock")
    process.communicate("\n")
    alive.wait_for_end()
    assert is_free(tmp_path / "lock")


def test_a_second_agent_does_not_start_while_one_is_at_work(tmp_path: Path) -> None:
    """R2: two agents never work in one workspace at a time."""
    assert acquire_lock(str(tmp_path / "lock"))
    path = orders(tmp_path, "touch", str(tmp_path / "started"))
    script = "import sys; from tasks_app.agent import launch; launch.acquire_lock.__defaults__ = (0.1,); "
    second = subprocess.run(
        [sys.executable, "-c", f"{script} sys.exit(launch.main(sys.argv[1], []))", str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (second.returncode, second.stdout) == (BUSY, "")
    assert second.stderr == "another agent still runs in this workspace\n"
    assert not (tmp_path / "started").exists()


def test_it_waits_for_an_agent_that_is_just_ending(tmp_path: Path) -> None:
    first = launched(orders(tmp_path, "sh", "-c", "echo up; read line"), stdin=subprocess.PIPE)
    assert first.stdout and first.stdin and first.stdout.readline() == "up\n"
    second = launched(orders(tmp_path, "echo", "my turn"))
    first.communicate("\n")
    assert second.communicate(timeout=30) == ("my turn\n", "")


@pytest.mark.parametrize("program", ["/no/such/agent", "no-such-agent"])
def test_a_missing_program_is_named_and_ends_with_127(program: str, tmp_path: Path) -> None:
    process = launched(orders(tmp_path, program))
    assert process.communicate(timeout=30) == (
        "",
        f"{program} cannot be started: No such file or directory\n",
    )
    assert process.returncode == 127


def test_a_program_that_may_not_be_run_is_named_as_well(tmp_path: Path) -> None:
    (tmp_path / "agent").touch()
    process = launched(orders(tmp_path, str(tmp_path / "agent")))
    _, said = process.communicate(timeout=30)
    assert process.returncode == 127 and said.endswith("agent cannot be started: Permission denied\n")


def test_the_lock_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    assert acquire_lock(str(tmp_path / "lock"))
    assert (tmp_path / "lock").stat().st_mode & 0o777 == 0o600


def test_what_is_started_is_never_written_while_the_worker_runs() -> None:
    """A file written for each run may be open in a child that another thread starts: ETXTBSY."""
    program = Path(run_setup.__file__).with_name("launch.sh")
    assert os.access(program, os.X_OK)
    assert "_write_script(program" not in Path(run_setup.__file__).read_text()
