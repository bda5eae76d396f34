"""Python processes that need not import Django and other packages first: forks of one warm process.

The portal's commands import about 1,600 modules of other packages, which takes 1.2 s of CPU time; a test that
starts five of them would mostly wait for that. Each pytest worker has one server, which imports those modules
and nothing of the portal; a fork of it gets its arguments, environment, folder and streams, and imports the
portal's own modules anew (0.2 s). So settings are read from its own environment, as after a real start.

An installation that has a secret key gets a server of its own: such a fork, which has set Django up with the
installation's environment. Each process after that takes 0.03 s. What a command imports is imported by the
server, before the first process with this command is forked.

`/proc/PID/cmdline` and `/proc/PID/environ` are those of the server. Tests that look at them start a real
process, as do those of `make up`, of workers, of the wheel and of the `cat-herder` command.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import gc
import importlib
import io
import json
import os
import re
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import termios
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any
from uuid import uuid4

REPOSITORY = Path(__file__).parents[1]
#: Seconds until a process that does not end has failed; on a busy machine each start of one takes long.
PATIENCE = 180.0

_OWN = ("tasks_app", "catherder_site", "tests")
#: What runs the portal's commands, a script or a module after `-m`, and what it imports itself.
_COMMANDS: dict[str, list[str]] = {
    "manage.py": [],
    "tests.manage_with_fake_agent": ["tasks_app.composition", "tests.agents"],
}
_WARM_UP = """
import django
django.setup()
import catherder_site.asgi, catherder_site.urls, django.core.management, uvicorn
from tasks_app import composition
from tasks_app.agent import claude
from tasks_app.management.commands import worker
"""


class Forked:
    """A process that the server forked. The part of `subprocess.Popen` that tests need."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self.pid = int(self._receive())
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal, or None while the process lives."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float = PATIENCE) -> int:
        """Return the exit code. Raises subprocess.TimeoutExpired."""
        if self.returncode is None:
            if not select.select([self._connection], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
            self.returncode = int(self._receive())
            self._connection.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _receive(self) -> str:
        message = self._connection.recv(64).decode()
        if not message:
            raise RuntimeError("The fork server has ended.")
        return message


def start(
    arguments: Sequence[str],
    env: Mapping[str, str],
    *,
    streams: tuple[int, int, int],
    cwd: Path = REPOSITORY,
    terminal: bool = False,
) -> Forked:
    """Start `python ARGUMENTS`, where ARGUMENTS begin with `-c`, `-m` or a script.

    `streams` are descriptors for stdin, stdout and stderr. With `terminal`, stdin becomes the controlling
    terminal of a new session.
    """
    return _start(_address(env), arguments, env, streams=streams, cwd=cwd, terminal=terminal)


def _start(
    server: str,
    arguments: Sequence[str],
    env: Mapping[str, str],
    *,
    streams: tuple[int, int, int],
    cwd: Path = REPOSITORY,
    terminal: bool = False,
) -> Forked:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.connect(server)
    order = {"arguments": list(arguments), "env": dict(env), "cwd": str(cwd), "terminal": terminal}
    with tempfile.TemporaryFile() as file:  # larger than a message may be
        file.write(json.dumps(order).encode())
        file.flush()
        socket.send_fds(connection, [b"."], [file.fileno(), *streams])
    return Forked(connection)


def run(
    arguments: Sequence[str],
    env: Mapping[str, str],
    *,
    stdin: str = "",
    timeout: float = PATIENCE,
    cwd: Path = REPOSITORY,
    check: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Run `python ARGUMENTS` to its end, as `subprocess.run` with captured output."""
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(3)]
        files[0].write(stdin.encode())
        files[0].seek(0)
        process = start(arguments, env, streams=_descriptors(files), cwd=cwd)
        try:
            code = process.wait(timeout)
        except BaseException:
            process.kill()
            raise
        out, err = (_text(file) for file in files[1:])
    done = subprocess.CompletedProcess(list(arguments), code, out, err)
    if check and code != 0:
        raise AssertionError(f"{' '.join(arguments)[:200]} ended with {code}:\n{out}\n{err}")
    return done


class Piped:
    """A process and the other ends of its stdin and stdout; its stderr is ours."""

    def __init__(self, process: Forked, stdin: int, stdout: int) -> None:
        self.process = process
        self.stdin = os.fdopen(stdin, "w", encoding="utf-8")
        self.stdout = os.fdopen(stdout, "r", encoding="utf-8")

    def poll(self) -> int | None:
        return self.process.poll()

    def kill(self) -> None:
        self.process.kill()

    def communicate(self, text: str = "") -> str:
        """Send this, close stdin, and return what the process still has to say until its end."""
        with contextlib.suppress(BrokenPipeError), self.stdin:
            self.stdin.write(text)
        with self.stdout:
            rest = self.stdout.read()
        self.process.wait()
        return rest


def popen(arguments: Sequence[str], env: Mapping[str, str]) -> Piped:
    """Start `python ARGUMENTS` with pipes."""
    (their_stdin, stdin), (stdout, their_stdout) = os.pipe(), os.pipe()
    assert sys.__stderr__
    process = start(arguments, env, streams=(their_stdin, their_stdout, sys.__stderr__.fileno()))
    os.close(their_stdin)
    os.close(their_stdout)
    return Piped(process, stdin, stdout)


def with_django(code: str) -> list[str]:
    """Return the arguments of a process that runs this code with Django set up."""
    return ["-c", f"import django, sys; django.setup()\n{code}"]


def _descriptors(files: Sequence[Any]) -> tuple[int, int, int]:
    stdin, stdout, stderr = (file.fileno() for file in files)
    return stdin, stdout, stderr


def _text(file: Any) -> str:
    file.seek(0)
    return str(file.read().decode().replace("\r\n", "\n"))


def _address(env: Mapping[str, str]) -> str:
    """Return the address of the server for processes with this environment."""
    prepared = _prepared_for(env)
    return prepared.address if prepared else _server()


@cache
def _server() -> str:
    """Start this process's server on first use; the address that it listens on."""
    address = f"{_folder()}/socket"
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(address)
    listener.listen(16)
    alive, held = os.pipe()  # the server ends when its starter has gone, however that ended
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.forkserver", str(listener.fileno()), str(alive), str(_modules())],
        cwd=REPOSITORY,
        env={**_environment(), "DJANGO_SETTINGS_MODULE": ""},
        pass_fds=(listener.fileno(), alive),
        stdin=subprocess.DEVNULL,
    )
    listener.close()
    os.close(alive)

    def stop() -> None:
        os.close(held)
        server.wait()

    atexit.register(stop)
    return address


@cache
def _folder() -> str:
    folder = tempfile.TemporaryDirectory(prefix="test-forkserver-", ignore_cleanup_errors=True)
    atexit.register(folder.cleanup)
    return folder.name


class _Prepared:
    """A server that has set Django up with an environment. Starting it raises NotPrepared if that failed."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self.address = f"{_folder()}/{uuid4().hex}"
        alive, self._held = os.pipe()
        reading, ready = os.pipe()
        with tempfile.TemporaryFile() as errors, os.fdopen(reading, "rb") as answer:
            arguments = ["-m", "tests.forkserver", self.address]
            self._process = _start(_server(), arguments, env, streams=(alive, ready, errors.fileno()))
            os.close(alive)
            os.close(ready)
            is_ready = bool(answer.read(1))
            complains = errors.seek(0, os.SEEK_END) > 0
        if complains or not is_ready:
            self.stop()
            raise NotPrepared

    def stop(self) -> None:
        """End it; processes that it has started stay."""
        self._process.terminate()
        self._process.wait()
        os.close(self._held)


class NotPrepared(Exception):
    """Django could not be set up without complaint. Only the processes themselves may say why."""


#: By environment and secret key, the latest used last; None if Django could not be set up.
_servers: OrderedDict[Hashable, _Prepared | None] = OrderedDict()
_MOST_PREPARED = 4
_preparing = threading.Lock()


def _prepared_for(env: Mapping[str, str]) -> _Prepared | None:
    """Return the server of an installation, and None if it has not been used yet or cannot be.

    In a new one, only the process itself may be the first that creates files.
    """
    secret_key = _secret_key_file(env)
    if secret_key is None or "DJANGO_SETTINGS_MODULE" not in env:
        return None
    with _preparing:
        return _kept((frozenset(env.items()), secret_key), env)


def _kept(key: Hashable, env: Mapping[str, str]) -> _Prepared | None:
    if key not in _servers:
        try:
            _servers[key] = _Prepared(env)
        except NotPrepared:
            _servers[key] = None
    _servers.move_to_end(key)
    if len(_servers) > _MOST_PREPARED:
        _, oldest = _servers.popitem(last=False)
        if oldest:
            oldest.stop()
    return _servers[key]


def _secret_key_file(env: Mapping[str, str]) -> tuple[int, int] | None:
    """Return what tells an installation's secret key from another one, which a backup may bring."""
    try:
        status = Path(env["CATHERDER_DATA_DIR"], "secret_key").stat()
    except (KeyError, OSError):
        return None
    return status.st_ino, status.st_mtime_ns


@atexit.register
def _stop_prepared() -> None:
    for server in filter(None, _servers.values()):
        server.stop()


def _environment() -> dict[str, str]:
    return {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}


def main(listener: socket.socket, alive: int, *, import_first: Callable[[Sequence[str]], None]) -> None:
    """Serve until the starter has gone. Returns in each fork, which then is what was asked for.

    `import_first` is called with the arguments of each process, before it is forked.
    """
    # Garbage collection would visit every object of these modules in each fork, which copies its memory, and
    # at the end of a fork alone takes 0.4 s of CPU time.
    gc.freeze()
    signal.signal(signal.SIGCHLD, _reap)
    watched: list[socket.socket | int] = [listener, alive]
    while alive not in (ready := select.select(watched, [], [])[0]):
        if listener not in ready:
            continue
        connection, _ = listener.accept()
        order, streams = _received(connection)
        import_first(order["arguments"])
        if os.fork() == 0:
            listener.close()
            os.close(alive)
            _serve(connection, order, streams)
            return
        connection.close()
        for descriptor in streams:
            os.close(descriptor)
    sys.exit()


def _received(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Return what a process shall be, and its stdin, stdout and stderr."""
    _, (file, *streams), _, _ = socket.recv_fds(connection, 1, 4)
    with os.fdopen(file, "rb") as order:
        return json.loads(_text(order)), streams


def _reap(*_: object) -> None:
    """Wait for all forks that have ended: only then what they used counts for the server, too."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def serve_modules(listener: int, alive: int, modules: str) -> None:
    """Be the server of a pytest worker."""
    gc.disable()
    with contextlib.redirect_stderr(io.StringIO()):  # some modules complain that there are no settings yet
        _import_all(Path(modules).read_text().split())
    gc.enable()
    main(socket.socket(fileno=listener), alive, import_first=lambda arguments: None)


def serve_prepared(address: str) -> None:
    """Be the server of an environment, until stdin is closed. Says on stdout when it listens."""
    alive = os.dup(0)
    with Path(os.devnull).open() as nothing:
        os.dup2(nothing.fileno(), 0)
    import django
    from django.conf import settings

    django.setup()
    if hasattr(settings.HUEY.storage, "close"):
        settings.HUEY.storage.close()  # no fork may go on with a connection of another process
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(address)
    listener.listen(16)
    os.write(1, b".")
    main(listener, alive, import_first=_import_what_begins_with)


def _import_what_begins_with(arguments: Sequence[str]) -> None:
    """Import what such a process imports first, so that the next one finds it imported.

    What cannot be imported is left to the process, which can say why.
    """
    before = len(sys.modules)
    for name in _imported_first(arguments):
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    if len(sys.modules) > before:
        gc.freeze()


def _imported_first(arguments: Sequence[str]) -> list[str]:
    """Return the module of a command of the portal, or those of ours that code imports at its beginning."""
    if arguments[0] == "-c":
        found = re.findall(r"^(?:from|import) ([a-z_.]+)", arguments[1], re.MULTILINE)
        return [name for name in found if name.partition(".")[0] in _OWN]
    program, command, *_ = [*arguments[arguments[0] == "-m" :], ""]
    if program not in _COMMANDS:
        return []
    return [*_COMMANDS[program], f"tasks_app.management.commands.{command}", *_migrations()]


@cache
def _migrations() -> list[str]:
    """Return the modules of our migrations, which each command compares with those of the database."""
    folder = REPOSITORY / "tasks_app" / "migrations"
    return [f"tasks_app.migrations.{file.stem}" for file in folder.glob("[0-9]*.py")]


def _modules() -> Path:
    """Return a file with the names of what the portal imports from other packages, in its order.

    One pytest worker makes it for all.
    """
    from tests import shared  # makes a folder, which servers do not need

    path = shared.FOLDER / "modules"
    with shared.alone():
        if not path.exists():
            path.write_text(" ".join(_imported_modules()))
    return path


def _imported_modules() -> list[str]:
    code = f"{_WARM_UP}\nimport sys; sys.stdout.write(' '.join(sys.modules))"
    with tempfile.TemporaryDirectory() as data_dir:
        env = {**_environment(), "DJANGO_SETTINGS_MODULE": "catherder_site.settings"}
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={**env, "CATHERDER_DATA_DIR": data_dir},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    return [name for name in done.stdout.split() if name.partition(".")[0] not in _OWN]


def _import_all(modules: list[str]) -> None:
    """Import what can be imported without settings; a fork imports the rest when it needs it."""
    for name in modules:
        if name != "__main__":
            with contextlib.suppress(Exception):
                importlib.import_module(name)


def _serve(connection: socket.socket, order: dict[str, Any], streams: list[int]) -> None:
    """Fork once more: the parent reports how the child ended; the child returns to be what was asked for."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    child = os.fork()
    if child:
        for descriptor in streams:
            os.close(descriptor)
        with contextlib.suppress(OSError):
            connection.send(str(child).encode())
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        with contextlib.suppress(OSError):
            connection.send(str(status).encode())
        os._exit(0)
    connection.close()
    _become(order, streams)


def _become(order: dict[str, Any], streams: list[int]) -> None:
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
        os.close(descriptor)
    if order["terminal"]:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.environ.clear()
    os.environ.update(order["env"])
    os.chdir(order["cwd"])
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    unbuffered = "PYTHONUNBUFFERED" in os.environ
    sys.stdout = _writer(1, write_through=unbuffered, line_buffering=os.isatty(1))
    sys.stderr = _writer(2, write_through=unbuffered, line_buffering=True, errors="backslashreplace")
    for name in ("stdin", "stdout", "stderr"):  # by name: they are declared to be final
        setattr(sys, f"__{name}__", getattr(sys, name))
    sys.argv = order["arguments"]


def _writer(descriptor: int, **how: Any) -> io.TextIOWrapper:
    return io.TextIOWrapper(open(descriptor, "wb", closefd=False), encoding="utf-8", **how)


def execute() -> None:
    """Do what `python` would do with `sys.argv`, and end the process."""
    code: Any = 0
    try:
        _run()
    except SystemExit as end:
        code = 0 if end.code is None else end.code
    if not isinstance(code, int):
        sys.exit(code)
    # As Python does it, but without clearing each module: that would copy the memory shared with the server.
    threading._shutdown()  # type: ignore[attr-defined] # private, without a stub
    atexit._run_exitfuncs()
    os._exit(code & 0xFF if _is_flushed() else 120)


def _is_flushed() -> bool:
    """Write out what is left; false if the reader has gone."""
    try:
        for stream in (sys.stdout, sys.stderr):
            if not stream.closed:
                stream.flush()
    except OSError:
        return False
    return True


def _run() -> None:
    sys.path[0] = ""
    flag = sys.argv[0]
    if flag == "-c":
        code, sys.argv = sys.argv[1], ["-c", *sys.argv[2:]]
        exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})  # noqa: S102
    elif flag == "-m":
        sys.argv = sys.argv[1:]
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = str(Path(flag).resolve().parent)
        runpy.run_path(flag, run_name="__main__")


if __name__ == "__main__":
    if len(sys.argv) == 2:
        serve_prepared(sys.argv[1])
    else:
        serve_modules(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
    execute()
