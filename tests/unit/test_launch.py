"""Starting an agent: a listed environment, one agent in a workspace, and no process between (R2, R4)."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from tasks_app.agent import launch
from tasks_app.agent.launch import Launch, NoProgram, WorkspaceBusy, locked
from tasks_app.agent.sockets import ProcessOnSockets, launching, open_process
from tests.integration.fifo import Fifo

SHOW = (
    "import json, os, sys; print(json.dumps([dict(os.environ), sys.argv[1:], os.getsid(0) == os.getpid()]))"
)
PIPES = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)


async def launched(
    folder: Path, *argv: str, env: dict[str, str] | None = None, sdk: dict[str, str] | None = None,
    arguments: tuple[str, ...] = (), inherit: tuple[str, ...] = (),
) -> ProcessOnSockets:  # fmt: skip
    """Start `argv` where the SDK wants to start its program with `arguments` and the environment `sdk`."""
    given = Launch(argv, env or {"PATH": os.environ["PATH"]}, folder / "lock", inherit)
    with launching(given):
        return await open_process(["the sdk's program", *arguments], env=sdk or {}, **PIPES)


async def output(process: ProcessOnSockets, stdin: bytes = b"") -> tuple[str, int]:
    """What the process says and its exit code; it says nothing on its stderr."""
    assert process.stdin and process.stdout and process.stderr
    if stdin:
        await process.stdin.send(stdin)
    said = b""
    async with asyncio.timeout(60):
        with pytest.raises(anyio.EndOfStream):
            while True:
                said += await process.stdout.receive()
        code = await process.wait()
        with pytest.raises(anyio.EndOfStream):
            raise AssertionError(await process.stderr.receive())
    await process.close_streams()
    return said.decode(), code


async def shown(process: ProcessOnSockets) -> Any:
    said, code = await output(process)
    assert code == 0
    return json.loads(said)


def is_free(lock: Path) -> bool:
    descriptor = os.open(lock, os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


async def test_the_environment_is_the_listed_one_and_nothing_of_the_worker_passes(tmp_path: Path) -> None:
    worker = {
        "DJANGO_SECRET_KEY": "s",
        "ANTHROPIC_API_KEY": "k",
        "CLAUDE_CODE_ENTRYPOINT": "sdk-py",
        "HOME": "/root",
    }
    process = await launched(
        tmp_path,
        *(sys.executable, "-I", "-c", SHOW),
        env={"PATH": "/bin", "HOME": "/home/agent", "LC_ALL": "C.UTF-8"},
        inherit=("CLAUDE_CODE_ENTRYPOINT", "NOT_THERE"),
        sdk=worker,
    )
    env, _, _ = await shown(process)
    assert env == {
        "PATH": "/bin",
        "HOME": "/home/agent",
        "LC_ALL": "C.UTF-8",
        "CLAUDE_CODE_ENTRYPOINT": "sdk-py",
    }


async def test_the_sdks_arguments_follow_the_words_of_the_launch(tmp_path: Path) -> None:
    process = await launched(
        *(tmp_path, sys.executable, "-I", "-c", SHOW, "--sandboxed"), arguments=("--resume", "a b", "☃\n")
    )
    _, arguments, _ = await shown(process)
    assert arguments == ["--sandboxed", "--resume", "a b", "☃\n"]


async def test_a_ctrl_c_at_the_terminal_does_not_reach_the_agent(tmp_path: Path) -> None:
    _, _, has_a_session_of_its_own = await shown(await launched(tmp_path, sys.executable, "-I", "-c", SHOW))
    assert has_a_session_of_its_own


async def test_no_process_is_between_the_worker_and_the_agent(tmp_path: Path) -> None:
    """So it dies with the worker (bubblewrap's --die-with-parent), from its first moment on."""
    process = await launched(tmp_path, "sh", "-c", "echo $$ $PPID; exit 3")
    said, code = await output(process)
    assert (said.split(), code) == ([str(process.pid), str(os.getpid())], 3)


async def test_the_lock_is_held_until_the_last_process_of_the_agent_is_gone(tmp_path: Path) -> None:
    alive = Fifo(tmp_path / "alive")
    script = f"exec 9>'{tmp_path}/alive'; (echo up >&9; read line) <&0 & exit 0"
    process = await launched(tmp_path, "bash", "-c", script)
    await asyncio.to_thread(alive.wait_for, "up")
    await process.wait()
    assert not is_free(tmp_path / "lock")
    assert process.stdin
    await process.stdin.send(b"\n")
    await asyncio.to_thread(alive.wait_for_end)
    await process.close_streams()
    assert is_free(tmp_path / "lock")


async def test_a_second_agent_does_not_start_while_one_is_at_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R2: two agents never work in one workspace at a time."""
    monkeypatch.setattr(launch, "PATIENCE", 0.1)
    first = await launched(tmp_path, "sh", "-c", "read line")
    with pytest.raises(WorkspaceBusy, match="Another agent still runs"):
        await launched(tmp_path, "touch", str(tmp_path / "started"))
    assert not (tmp_path / "started").exists()
    await output(first, b"\n")


async def test_it_waits_for_an_agent_that_is_just_ending(tmp_path: Path) -> None:
    first = await launched(tmp_path, "sh", "-c", "read line")
    second = asyncio.create_task(launched(tmp_path, "echo", "my turn"))
    await asyncio.sleep(0)
    assert not second.done()
    await output(first, b"\n")
    assert await output(await second) == ("my turn\n", 0)


async def test_who_gives_up_waiting_leaves_no_lock(tmp_path: Path) -> None:
    """A run that is stopped while it waits is cancelled."""
    first = await launched(tmp_path, "sh", "-c", "read line")
    second = asyncio.create_task(launched(tmp_path, "touch", str(tmp_path / "started")))
    await asyncio.sleep(0.05)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    await output(first, b"\n")
    assert is_free(tmp_path / "lock") and not (tmp_path / "started").exists()


@pytest.mark.parametrize("program", ["/no/such/agent", "no-such-agent"])
async def test_a_missing_program_is_named(program: str, tmp_path: Path) -> None:
    with pytest.raises(NoProgram, match=f"^{program} cannot be started: No such file or directory$"):
        await launched(tmp_path, program)
    assert is_free(tmp_path / "lock")


async def test_a_program_that_may_not_be_run_is_named_as_well(tmp_path: Path) -> None:
    (tmp_path / "agent").touch()
    with pytest.raises(PermissionError, match=r"Permission denied: .*agent"):
        await launched(tmp_path, str(tmp_path / "agent"))
    assert is_free(tmp_path / "lock")


async def test_the_lock_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    async with locked(tmp_path / "lock"):
        assert (tmp_path / "lock").stat().st_mode & 0o777 == 0o600
