"""Running git as the portal: only in repositories that no guest can write, and with nothing left to
the settings of a repository or of a user.

A repository's configuration can name programs for hooks, watching, filtering, comparing and signing.
The portal runs none of them: it gives its own settings for each, and a list of transports.
"""

from __future__ import annotations

import os
import re
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import IO

from tasks_app.errors import BadInput, WorkspaceError

_TRANSPORTS = ("file", "https", "ssh")
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
    # A person may be waiting for the page: a server that sends nothing for 20 seconds is given up.
    "http.lowSpeedLimit=1",
    "http.lowSpeedTime=20",
    "protocol.allow=never",
    *(f"protocol.{name}.allow=always" for name in _TRANSPORTS),
)
# What reaching a source over the network needs of the portal's environment.
_PASSED = (
    "PATH", "SSH_AUTH_SOCK", "SSL_CERT_FILE", "SSL_CERT_DIR", "GIT_SSL_CAINFO",
    "https_proxy", "HTTPS_PROXY", "no_proxy", "NO_PROXY",
)  # fmt: skip
_NEUTRAL = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_ALLOW_PROTOCOL": ":".join(_TRANSPORTS),
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "",
    "SSH_ASKPASS": "",
    # Also keeps a source's own core.sshCommand from being asked.
    "GIT_SSH_COMMAND": "ssh -oBatchMode=yes -oConnectTimeout=10",
    "HOME": "/nonexistent",
    "LC_ALL": "C.UTF-8",
}
_COMMIT = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")

_PIECE = 64 * 1024

LOCAL_SECONDS = 300.0
NETWORK_SECONDS = 900.0


@dataclass(frozen=True)
class Git:
    """git in one repository of the portal. Every failure is a WorkspaceError with git's own reason."""

    directory: Path | None = None
    work_tree: Path | None = None

    def run(
        self,
        *arguments: str,
        timeout: float = LOCAL_SECONDS,
        stdin: IO[bytes] | bytes = b"",
    ) -> bytes:
        """Standard output of `git ARGUMENTS`, given `stdin`; `timeout` in seconds."""
        try:
            done = subprocess.run(
                self._command(arguments),
                env=_environment(),
                stdin=None if isinstance(stdin, bytes) else stdin,
                input=stdin if isinstance(stdin, bytes) else None,
                capture_output=True,
                # Ctrl+C at a terminal is for the portal, not for a git in the middle of its work.
                start_new_session=True,
                timeout=timeout,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise self._failure(arguments, f"it did not end within {timeout:g} seconds") from None
        except OSError as error:
            raise self._failure(arguments, f"git cannot be started: {error.strerror}") from error
        if done.returncode != 0:
            raise self._failure(arguments, _reason(done.stderr) or f"exit {done.returncode}")
        return done.stdout

    def line(self, *arguments: str) -> str:
        """The output of `git ARGUMENTS` without its line end."""
        return self.run(*arguments).decode("utf-8", errors="replace").strip()

    def beginning(self, *arguments: str, limit: int, timeout: float = LOCAL_SECONDS) -> tuple[bytes, bool]:
        """The first `limit` bytes of the output, and whether there was more. git is ended at the limit."""
        with self._reading(arguments, timeout) as (process, stdout):
            output = stdout.read(limit + 1)
            more = len(output) > limit
            if more:
                process.kill()
        if not more and process.returncode != 0:
            raise self._failure(arguments, f"exit {process.returncode}")
        return output[:limit], more

    def pieces(self, *arguments: str, timeout: float = LOCAL_SECONDS) -> Iterator[bytes]:
        """The output of any length, as it is made; whoever stops reading ends git.

        What fails at its beginning fails here. If the iterator raises WorkspaceError, what came is not whole.
        """
        pieces = self._pieces(arguments, timeout)
        return chain([next(pieces, b"")], pieces)

    def _pieces(self, arguments: Sequence[str], timeout: float) -> Iterator[bytes]:
        with self._reading(arguments, timeout) as (process, stdout):
            while piece := stdout.read(_PIECE):
                yield piece
        if process.returncode != 0:
            raise self._failure(arguments, f"exit {process.returncode}")

    @contextmanager
    def _reading(
        self, arguments: Sequence[str], timeout: float
    ) -> Iterator[tuple[subprocess.Popen[bytes], IO[bytes]]]:
        """git, and what it says. Afterwards it has ended, if need be by force."""
        with subprocess.Popen(
            self._command(arguments),
            env=_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        ) as process:
            assert process.stdout is not None  # noqa: S101 (PIPE was given)
            watch = threading.Timer(timeout, process.kill)
            watch.start()
            try:
                yield process, process.stdout
            except BaseException:  # whoever reads has gone, or failed
                process.kill()
                raise
            finally:
                watch.cancel()

    def _command(self, arguments: Sequence[str]) -> list[str]:
        place = []
        if self.directory is not None:
            # A data directory may belong to another user of the machine, as volumes of containers do.
            place = ["-c", f"safe.directory={self.directory}", f"--git-dir={self.directory}"]
        if self.work_tree is not None:
            place.append(f"--work-tree={self.work_tree}")
        return ["git", *(word for setting in _SETTINGS for word in ("-c", setting)), *place, *arguments]

    def _failure(self, arguments: Sequence[str], reason: str) -> WorkspaceError:
        where = f" in {self.directory}" if self.directory else ""
        return WorkspaceError(f"git {arguments[0]} failed{where}: {reason}")


@lru_cache(maxsize=1000)
def valid_branch(name: str) -> str:
    """`name` if git takes it as a branch, else BadInput."""
    try:
        Git().run("check-ref-format", f"refs/heads/{name}")
    except (WorkspaceError, ValueError):
        raise BadInput(f"{name!r} is not a name that git takes for a branch.") from None
    if name.startswith("-"):
        raise BadInput(f"{name!r} is not a name for a branch: it starts with a dash.")
    return name


def valid_commit(text: str) -> str:
    """`text` if it is a full commit id, else WorkspaceError."""
    if not _COMMIT.fullmatch(text):
        raise WorkspaceError(f"{text[:80]!r} is not a commit id.")
    return text


def _environment() -> dict[str, str]:
    return {**{name: os.environ[name] for name in _PASSED if name in os.environ}, **_NEUTRAL}


def _reason(stderr: bytes) -> str:
    return stderr.decode("utf-8", errors="replace").strip()[-2000:]
