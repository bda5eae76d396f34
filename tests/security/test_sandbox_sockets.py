"""What is no file, and so is hidden by no mount: abstract sockets and the keyring (R4)."""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tasks_app.sandbox import Finished, SandboxedCommand, SandboxMode, detect, run
from tasks_app.sandbox.restrict import _KEYCTL

pytestmark = pytest.mark.bubblewrap

_LANDLOCK_OF_ABSTRACT_SOCKETS = 6
_KERNEL = f"import ctypes; kernel, number = ctypes.CDLL(None), {_KEYCTL.get(os.uname().machine)}"
_READ = f"""{_KERNEL}
found = kernel.syscall(number, 10, -3, b"user", b"ticket", 0)  # search the session's keyring
text = ctypes.create_string_buffer(64)
kernel.syscall(number, 11, found, text, 64, 0)  # read
print(found >= 0, text.value.decode())
"""
_HAVE = f"""{_KERNEL}
import os, sys
kernel.syscall(number, 1, None)  # a new keyring; what adds a key has the number two below
kernel.syscall(number - 2, b"user", b"ticket", b"secret", 6, -3)
os.execv(sys.argv[1], sys.argv[1:])
"""


def command(tmp_path: Path, *argv: str) -> SandboxedCommand:
    for name in ("work", "home"):
        (tmp_path / name).mkdir(exist_ok=True)
    sandbox = detect(SandboxMode.REQUIRE)
    work, home = tmp_path / "work", tmp_path / "home"
    return sandbox.command(argv, workspace=work, home=home, env={})


def sandboxed(tmp_path: Path, *argv: str) -> Finished:
    return run(command(tmp_path, *argv), timeout=30)


@pytest.fixture
def desktop() -> Iterator[str]:
    """A socket as X11 and D-Bus have them; its name."""
    name = f"cat-herder-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"\0{name}")
        listening.listen()
        yield name


def test_a_socket_with_an_abstract_name_is_out_of_reach(tmp_path: Path, desktop: str) -> None:
    if ctypes.CDLL(None).syscall(444, None, 0, 1) < _LANDLOCK_OF_ABSTRACT_SOCKETS:
        pytest.skip("the kernel is older than Linux 6.12, or has no Landlock")
    script = f"import socket; socket.socket(socket.AF_UNIX).connect('\\0{desktop}'); print('in')"
    done = sandboxed(tmp_path, sys.executable, "-c", script)
    assert done.exit_code == 1
    assert "PermissionError" in done.output


def test_sockets_of_its_own_work(tmp_path: Path) -> None:
    script = (
        "import socket; one, two = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX);"
        "one.bind('\\0own'); one.listen(); two.connect('\\0own'); print('in')"
    )
    assert sandboxed(tmp_path, sys.executable, "-c", script) == Finished(0, "in\n")


def test_the_keys_of_the_session_are_out_of_reach(tmp_path: Path) -> None:
    """As after a login with Kerberos: who starts the agent has a keyring with a ticket in it."""
    inside = command(tmp_path, sys.executable, "-c", _READ).argv
    for argv, said in (([sys.executable, "-c", _READ], "True secret"), (inside, "False")):
        told = [sys.executable, "-c", _HAVE, *argv]
        done = subprocess.run(told, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == said


def test_a_closed_pipe_ends_the_program_as_usual(tmp_path: Path) -> None:
    """Python ignores that signal, and so would all that it becomes."""
    done = sandboxed(tmp_path, "bash", "-c", "yes | head -1; echo ${PIPESTATUS[0]}")
    assert done == Finished(0, "y\n141\n")


def test_a_program_that_may_not_be_run_is_exit_126(tmp_path: Path) -> None:
    assert sandboxed(tmp_path, "/etc/passwd").exit_code == 126
