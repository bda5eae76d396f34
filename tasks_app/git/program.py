"""Running git as the portal, only in repositories that no sandboxed process can write.

The settings of a repository or of a user have no effect. A repository's configuration can name programs for
hooks, watching, filtering, comparing and signing. The portal runs none of them: it sets its own value for
each, and a list of allowed transports.

Everything that git writes is on the disk when git ends (`durable.py` syncs the folders, which git does not),
and its memory is limited, whatever an agent put into a repository.
"""

from __future__ import annotations

import os
import selectors
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO

from tasks_app.core.errors import RepositoryDamaged, TookTooLong, WorkspaceError
from tasks_app.core.files import folder_in_use
from tasks_app.git.faults import damage_marker, is_damage, is_out_of_memory

_TRANSPORTS = ("file", "https", "ssh")
#: A larger file is stored without a delta and compared like a binary file: comparing texts of 40 MB line by
#: line takes gigabytes.
BIG_FILE = 16 * 1024**2
#: With git's defaults a power cut leaves empty references and loses objects.
DURABLE = (("core.fsync", "all"), ("core.fsyncMethod", "fsync"))
_SETTINGS = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.attributesFile=/dev/null",
    "core.quotePath=false",
    "credential.helper=",
    "diff.external=",
    "gc.auto=0",
    "maintenance.auto=false",
    "submodule.recurse=false",
    # Another git may be working in the same repository for a moment.
    "core.filesRefLockTimeout=2000",
    "core.packedRefsTimeout=2000",
    *("=".join(setting) for setting in DURABLE),
    # One pack to sync instead of a hundred files.
    "fetch.unpackLimit=1",
    f"core.bigFileThreshold={BIG_FILE}",
    # By default git maps packs in windows of a gigabyte, which would count against its memory limit.
    "core.packedGitWindowSize=32m",
    "core.packedGitLimit=512m",
    "core.deltaBaseCacheLimit=64m",
    "pack.windowMemory=128m",
    "pack.threads=2",
    # A person may be waiting for the page: give up a server that sends nothing for 20 seconds.
    "http.lowSpeedLimit=1",
    "http.lowSpeedTime=20",
    "protocol.allow=never",
    *(f"protocol.{name}.allow=always" for name in _TRANSPORTS),
)
# Variables of the portal that are needed to reach a source through the network.
_INHERITED = (
    "PATH", "SSH_AUTH_SOCK", "SSL_CERT_FILE", "SSL_CERT_DIR", "GIT_SSL_CAINFO",
    "https_proxy", "HTTPS_PROXY", "no_proxy", "NO_PROXY",
)  # fmt: skip
_FIXED = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_ALLOW_PROTOCOL": ":".join(_TRANSPORTS),
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "",
    "SSH_ASKPASS": "",
    # This also overrides a repository's core.sshCommand.
    "GIT_SSH_COMMAND": "ssh -oBatchMode=yes -oConnectTimeout=10",
    "HOME": "/nonexistent",
    "LC_ALL": "C.UTF-8",
}
#: Maximum bytes of address space of each git that the portal runs.
memory_limit = 4 * 1024**3
# `ulimit` in a shell instead of `preexec_fn`, which is not safe in a process with threads.
_LIMITED = 'ulimit -v "$0" 2>/dev/null; exec git "$@"'
# git gives its command for ssh to a shell, too.
_PIECE = 64 * 1024

#: What is kept of each output of a program that speaks to a server.
SERVER_BYTES = 1024**2
LOCAL_SECONDS = 300.0
NETWORK_SECONDS = 900.0


@dataclass(frozen=True)
class Finished:
    """The exit code of a finished git, and everything that it printed."""

    code: int
    stdout: bytes
    stderr: bytes

    @property
    def messages(self) -> str:
        """The last 2000 characters of what it printed for people."""
        return _error_text(self.stderr)


@dataclass(frozen=True)
class Git:
    """git in one repository of the portal. Every failure is a WorkspaceError with git's own reason.

    `owner` names the project whose copy the repository is. Damage of that copy raises RepositoryDamaged, and
    is marked beside the repository, so that the next fetch repairs it. `settings` and `variables` (name and
    value) come after the portal's own and so replace them.
    """

    directory: Path | None = None
    work_tree: Path | None = None
    owner: str = ""
    settings: tuple[str, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()

    def run(
        self,
        *arguments: str,
        timeout: float = LOCAL_SECONDS,
        stdin: IO[bytes] | bytes = b"",
    ) -> bytes:
        """Run `git ARGUMENTS` with `stdin` and return its standard output; `timeout` in seconds."""
        done = self.finish(*arguments, timeout=timeout, stdin=stdin)
        if done.code != 0:
            raise self._failure(arguments, done.messages or f"exit {done.code}")
        return done.stdout

    def finish(
        self,
        *arguments: str,
        timeout: float = LOCAL_SECONDS,
        stdin: IO[bytes] | bytes = b"",
    ) -> Finished:
        """Run `git ARGUMENTS` to its end, whatever its exit code. Raises TookTooLong after `timeout` seconds.

        Then the programs that git started are killed too: one that speaks to a silent server would stay.
        """
        return self._finish(self._command(arguments), arguments, timeout=timeout, stdin=stdin)

    def finish_with_server(self, *arguments: str, timeout: float) -> Finished:
        """Do as `finish`, but keep only SERVER_BYTES of each output: a server may send without end."""
        return self._finish(self._command(arguments), arguments, timeout=timeout, limit=SERVER_BYTES)

    def _finish(
        self,
        command: list[str],
        arguments: Sequence[str],
        *,
        timeout: float,
        stdin: IO[bytes] | bytes = b"",
        limit: int = 0,
    ) -> Finished:
        """Run the command to its end. `arguments` are named in errors.

        With a `limit` there is no `stdin`, and only the first `limit` bytes of each output are kept.
        """
        try:
            with self._group(command, stdin) as process:
                if limit:
                    stdout, stderr = _beginnings(process, limit, timeout)
                else:
                    stdout, stderr = process.communicate(
                        stdin if isinstance(stdin, bytes) else None, timeout=timeout
                    )
        except subprocess.TimeoutExpired:
            reason = f"it did not end within {timeout:g} seconds"
            raise TookTooLong(str(self._failure(arguments, reason))) from None
        except OSError as error:
            raise self._failure(arguments, f"git cannot be started: {error.strerror}") from error
        return Finished(process.returncode, stdout, stderr)

    @contextmanager
    def _group(self, command: list[str], stdin: IO[bytes] | bytes) -> Iterator[subprocess.Popen[bytes]]:
        """Yield the started process. If the context fails, its whole process group is killed."""
        with (
            self.in_use() as locks,
            subprocess.Popen(
                command,
                env=self._environment(),
                stdin=subprocess.PIPE if isinstance(stdin, bytes) else stdin,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                # Ctrl+C in a terminal must reach the portal, not a git in the middle of its work.
                start_new_session=True,
                pass_fds=locks,
            ) as process,
        ):
            try:
                yield process
            except BaseException:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                raise

    def line(self, *arguments: str) -> str:
        """Run `git ARGUMENTS` and return its output as text without the line end."""
        return self.run(*arguments).decode("utf-8", errors="replace").strip()

    def run_limited(self, *arguments: str, limit: int, timeout: float = LOCAL_SECONDS) -> tuple[bytes, bool]:
        """Return the first `limit` bytes of the output, and whether there was more. git is killed then."""
        with tempfile.TemporaryFile() as errors:
            with self._started(arguments, timeout, errors) as (process, stdout):
                output = stdout.read(limit + 1)
                more = len(output) > limit
                if more:
                    process.kill()
            if not more:
                self._check_exit(process, arguments, errors)
        return output[:limit], more

    def stream(
        self, *arguments: str, timeout: float = LOCAL_SECONDS, stdin: IO[bytes] | None = None
    ) -> Iterator[bytes]:
        """Return the output, of any length, in pieces as it is made. Killed if the caller stops reading.

        An error at the beginning is raised here. If the iterator raises WorkspaceError, the output so far is
        not complete.
        """
        pieces = self._stream(arguments, timeout, stdin)
        return chain([next(pieces, b"")], pieces)

    def _stream(self, arguments: Sequence[str], timeout: float, stdin: IO[bytes] | None) -> Iterator[bytes]:
        with tempfile.TemporaryFile() as errors:
            with self._started(arguments, timeout, errors, stdin) as (process, stdout):
                while piece := stdout.read(_PIECE):
                    yield piece
            self._check_exit(process, arguments, errors)

    def _check_exit(
        self, process: subprocess.Popen[bytes], arguments: Sequence[str], errors: IO[bytes]
    ) -> None:
        if process.returncode != 0:
            errors.seek(0)
            raise self._failure(arguments, _error_text(errors.read(_PIECE)) or f"exit {process.returncode}")

    @contextmanager
    def _started(
        self, arguments: Sequence[str], timeout: float, errors: IO[bytes], stdin: IO[bytes] | None = None
    ) -> Iterator[tuple[subprocess.Popen[bytes], IO[bytes]]]:
        """Yield the process and its output. Afterwards it has ended, or was killed."""
        with (
            self.in_use() as locks,
            subprocess.Popen(
                self._command(arguments),
                env=self._environment(),
                stdin=subprocess.DEVNULL if stdin is None else stdin,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
                pass_fds=locks,
            ) as process,
        ):
            assert process.stdout is not None  # noqa: S101 (PIPE was given)
            watch = threading.Timer(timeout, process.kill)
            watch.start()
            try:
                yield process, process.stdout
            except BaseException:  # the reader stopped, or failed
                process.kill()
                raise
            finally:
                watch.cancel()

    @contextmanager
    def in_use(self) -> Iterator[tuple[int, ...]]:
        """Lock the repository as in use, and yield the descriptors that git must inherit.

        So what git had not finished stays as long as it lives, and is removed if it was killed: see
        `pruning.py`. Yields none where there is nothing to lock; git says itself what is wrong then.
        """
        with ExitStack() as held:
            locks: tuple[int, ...] = ()
            with suppress(OSError):
                if self.directory is not None:
                    locks = (held.enter_context(folder_in_use(self.directory)),)
            yield locks

    def process(self, *arguments: str) -> tuple[list[str], dict[str, str]]:
        """Return the command and the environment of `git ARGUMENTS`, for a caller that starts it itself."""
        return self._command(arguments), self._environment()

    def _command(self, arguments: Sequence[str]) -> list[str]:
        options = []
        if self.directory is not None:
            # A data directory may belong to another user of the machine, like volumes of containers.
            options = ["-c", f"safe.directory={self.directory}", f"--git-dir={self.directory}"]
        if self.work_tree is not None:
            options.append(f"--work-tree={self.work_tree}")
        settings = (word for setting in (*_SETTINGS, *self.settings) for word in ("-c", setting))
        if shutil.which("git") is None:
            raise self._failure(arguments, "git cannot be started: it is not installed, or not on the PATH")
        return ["sh", "-c", _LIMITED, str(memory_limit // 1024), *settings, *options, *arguments]

    def _environment(self) -> dict[str, str]:
        inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
        return {**inherited, **_FIXED, **dict(self.variables)}

    def damage(self, reason: str) -> RepositoryDamaged:
        """Mark the repository as damaged, for the next fetch, and return the error."""
        if self.directory:
            with suppress(OSError):
                damage_marker(self.directory).touch()
        return RepositoryDamaged(
            f"The portal's copy of the repository of {self.owner} is damaged ({reason}). "
            f"Fetch the project again: that repairs everything that the source has."
        )

    def _failure(self, arguments: Sequence[str], reason: str) -> WorkspaceError:
        if is_out_of_memory(reason):
            return WorkspaceError(
                f"git {arguments[0]} needed more than the {memory_limit // 1024**2} MB of memory that it may "
                "take, or the machine has none left. CATHERDER_GIT_MEMORY allows it more."
            )
        if self.owner and is_damage(reason):
            return self.damage(next(iter(reason.splitlines()), "")[:300])
        where = ""
        if self.directory:
            where = f" in {self.directory}"
        return WorkspaceError(f"git {arguments[0]} failed{where}: {reason}")


def _beginnings(process: subprocess.Popen[bytes], limit: int, timeout: float) -> tuple[bytes, bytes]:
    """Wait for the process, read all of its two outputs, and return the first `limit` bytes of each."""
    assert process.stdin and process.stdout and process.stderr  # noqa: S101 (pipes were asked for)
    process.stdin.close()
    kept = {process.stdout.fileno(): bytearray(), process.stderr.fileno(): bytearray()}
    until = time.monotonic() + timeout
    with selectors.DefaultSelector() as selector:
        for stream in kept:
            selector.register(stream, selectors.EVENT_READ)
        while selector.get_map():
            ready = selector.select(max(until - time.monotonic(), 0))
            if time.monotonic() >= until:
                raise subprocess.TimeoutExpired(process.args, timeout)
            for key, _ in ready:
                piece = os.read(key.fd, _PIECE)
                kept[key.fd] += piece[: limit - len(kept[key.fd])]
                if not piece:
                    selector.unregister(key.fd)
    process.wait(max(until - time.monotonic(), 0))
    stdout, stderr = kept.values()
    return bytes(stdout), bytes(stderr)


def init(folder: Path, *options: str, settings: Iterable[tuple[str, str]]) -> None:
    """Make a repository in `folder` whose own configuration has these settings, such as `user.name`.

    They are appended to its new configuration file, because `git config` takes a process for each.
    """
    Git().run("init", "--quiet", "--template=", *options, "--", str(folder))
    config = folder / ".git/config"
    if "--bare" in options:
        config = folder / "config"
    with config.open("a", encoding="utf-8") as file:
        for key, value in settings:
            section, name = key.split(".")
            file.write(f"[{section}]\n\t{name} = {value}\n")


def split_stream(pieces: Iterable[bytes], separator: bytes) -> Iterator[bytes]:
    """Yield the records of a streamed output, without the separator that ends each of them."""
    rest = b""
    for piece in pieces:
        *records, rest = (rest + piece).split(separator)
        yield from records
    if rest:
        yield rest


def _error_text(stderr: bytes) -> str:
    return stderr.decode("utf-8", errors="replace").strip()[-2000:]
