"""Building bubblewrap commands, and finding out whether they work on this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from tasks_app.core.errors import SandboxUnavailable
from tasks_app.core.files import temporary_folder
from tasks_app.sandbox.limits import (
    NICE,
    NO_LIMITS,
    OOM_SCORE,
    SESSION_NICE,
    EnforcedLimit,
    Limits,
    enforced_limits,
    make_cgroup,
    rlimits,
)
from tasks_app.sandbox.mounts import UNCHANGED, Placement, RequestedPaths, mount_arguments
from tasks_app.sandbox.process_environment import clean_env
from tasks_app.sandbox.watch import Watch

# The network namespace is optional: see `Sandbox.without_network`.
_NAMESPACES = ("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try")
# Without --cap-drop a portal that runs as root would pass its capabilities to the sandboxed process.
_CONFINED = ("--cap-drop", "ALL", "--die-with-parent", "--new-session")
# The best comes first: containers often forbid the write to /proc/sys that --disable-userns needs, and some
# forbid user namespaces altogether, which root does not need.
_USER_NAMESPACES: tuple[tuple[str, ...], ...] = (
    ("--unshare-user", "--disable-userns"),
    ("--unshare-user",),
    (),
)
# The portal's source is not in the sandbox, so the program comes as an argument. Like a shell, it exits with
# 127 for a program that it cannot find: bubblewrap would exit with 1.
_RESTRICT = (sys.executable, "-ISc", (Path(__file__).parent / "restrict.py").read_text())
_FORWARD = (sys.executable, "-ISc", (Path(__file__).parent / "forward.py").read_text())
# The process joins its cgroup itself, so that all processes that it starts are inside.
_JOIN_CGROUP = ("/bin/sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"')
#: The port, on its own loopback, at which a sandbox without a network reaches its model.
FORWARDED_PORT = 20477
_PROBE_SECONDS = 20
_PORTAL = Path(__file__).resolve().parents[2]


class SandboxMode(StrEnum):
    """The values of CATHERDER_SANDBOX."""

    REQUIRE = "require"  # start only if the sandbox works
    AUTO = "auto"  # use the sandbox if it works, and say so if it does not
    OFF = "off"  # run commands with the rights of the portal's own user


@dataclass(frozen=True)
class SandboxedCommand:
    """A command that is ready to start. Secrets are in `env`, which only its user can read, never in `argv`.

    `folders` are those whose files count for `limits`, `group` is the cgroup in which it starts.
    """

    argv: tuple[str, ...]
    env: dict[str, str]
    cwd: Path
    limits: Limits = NO_LIMITS
    folders: tuple[Path, ...] = ()
    group: Path | None = None

    def watch(self, pid: int) -> Watch:
        """Return the watch over the limits of the command, which was started as `pid`."""
        return Watch(self.limits, pid, folders=self.folders, group=self.group)


@dataclass(frozen=True)
class Sandbox:
    """The sandbox of commands on this machine.

    `bwrap` is None if there is no sandbox, and `reason` then tells people why. `hidden` are the portal's own
    folders (its data, its source): absent in the sandbox even if they are in /opt or in another folder that
    is shown. `user_namespace` are the flags that work, according to `detect`. In `cgroup` a group can be made
    for each command; without it, `limits` are enforced by other means (`limits.py`). `limits_tmp` says
    whether this bubblewrap can limit a temporary folder (from 0.7 on). `network_reason` tells people why the
    network cannot be taken away here; it is "" if it can. `placement` says under which paths commands see the
    data directory.
    """

    bwrap: Path | None
    reason: str = ""
    network_reason: str = "The sandbox was not tried without a network."
    shares_network: bool = True
    hidden: tuple[Path, ...] = ()
    user_namespace: tuple[str, ...] = ()
    limits: Limits = NO_LIMITS
    cgroup: Path | None = None
    limits_tmp: bool = False
    placement: Placement = UNCHANGED

    def placed(self, placement: Placement) -> Sandbox:
        """Return the same sandbox with folders of the data directory at the paths of `placement`.

        What this host itself has at those paths is hidden. Raises SandboxUnavailable if there is no sandbox:
        without one, all paths are the host's.
        """
        if not placement.moves:
            return self
        if not self.active or placement.shown_at is None:
            raise SandboxUnavailable(self.reason)
        return replace(self, placement=placement, hidden=(*self.hidden, placement.shown_at))

    def problem_in(self, folder: Path | None = None) -> str:
        """Run a command in a new folder, below `folder` if given, and return why it failed, or ""."""
        with temporary_folder("cat-herder-probe-", parent=folder) as here:
            command = self.command(["true"], workspace=here, home=here, env={})
            try:
                done = subprocess.run(
                    command.argv,
                    env=command.env,
                    capture_output=True,
                    text=True,
                    errors="replace",
                    timeout=_PROBE_SECONDS,
                    check=False,
                )
            except (OSError, subprocess.TimeoutExpired) as error:
                return str(error)
        if done.returncode == 0:
            return ""
        return done.stderr.strip() or f"exit {done.returncode}"

    def inside(self, path: Path) -> Path:
        """Return what commands in this sandbox call a path of the host."""
        return self.placement.inside(path)

    def with_limits(self, limits: Limits, *, cgroup: Path | None) -> Sandbox:
        """Return the same sandbox with limits for each command."""
        return replace(self, limits=limits, cgroup=cgroup)

    def without_free_disk_limit(self) -> Sandbox:
        """Return the same sandbox for commands that must also work while the disk is nearly full."""
        return replace(self, limits=replace(self.limits, free_disk=0))

    @property
    def enforced_limits(self) -> tuple[EnforcedLimit, ...]:
        """The limits, each with what enforces it on this machine."""
        return enforced_limits(
            self.limits,
            cgroup=self.cgroup,
            sandboxed=self.active,
            own_users=self._counts_processes,
            limits_tmp=self.limits_tmp,
        )

    @property
    def _counts_processes(self) -> bool:
        """Whether the kernel counts processes per user namespace: from 5.14 on, except for root."""
        return bool(self.user_namespace) and os.geteuid() != 0

    @property
    def active(self) -> bool:
        return self.bwrap is not None

    @property
    def keeps_network_out(self) -> bool:
        """Whether commands can run without a network here."""
        return self.active and not self.network_reason

    def without_network(self) -> Sandbox:
        """Return the same sandbox with only its own loopback. Raises SandboxUnavailable if impossible."""
        if not self.keeps_network_out:
            raise SandboxUnavailable(
                f"Nothing can be run without a network here: {self.reason or self.network_reason}"
            )
        return replace(self, shares_network=False)

    def offline_if_possible(self) -> Sandbox:
        """Return the sandbox without a network if that works, otherwise as it is."""
        return self.without_network() if self.keeps_network_out else self

    def command(
        self,
        argv: Sequence[str],
        *,
        workspace: Path,
        env: Mapping[str, str],
        home: Path,
        writable: Sequence[Path] = (),
        readable: Sequence[Path] = (),
    ) -> SandboxedCommand:
        """Return the command that runs `argv` in `workspace`. It sees only the system and the given paths.

        `workspace`, `home` and `writable` can be written, `readable` only read; of two nested paths the inner
        one decides. These are paths of the host, and so is the command's `cwd`; paths in `argv` and `env` are
        those of `inside`. `env` is added to `clean_env(home, …)`. Raises SandboxError for a path that is
        missing or was changed to lead elsewhere.
        """
        words, group = [], None
        if self.cgroup:
            group = make_cgroup(self.cgroup, self.limits)
            words = [*_JOIN_CGROUP, str(group)]
        if self.bwrap is None:
            words += [*_die_with_parent(), *self._unsandboxed_limits(), *argv]
        else:
            words += self._bubblewrap_words(self.bwrap, workspace, home, writable, readable)
            limits = rlimits(self.limits, own_users=self._counts_processes)
            settings = {**limits, "oom_score": OOM_SCORE, "nice": NICE, "session_nice": SESSION_NICE}
            words += [*_RESTRICT, " ".join(f"{name}={value}" for name, value in settings.items()), *argv]
        environment = clean_env(self.inside(home), env)
        return SandboxedCommand(tuple(words), environment, workspace, self.limits, (workspace, home), group)

    def _bubblewrap_words(
        self, bwrap: Path, workspace: Path, home: Path, writable: Sequence[Path], readable: Sequence[Path]
    ) -> list[str]:
        own_source: tuple[Path, ...] = (_PORTAL / "catherder_site", _PORTAL / "tasks_app")
        if (_PORTAL / "manage.py").exists():  # a checkout; else these are packages among others
            own_source = (_PORTAL,)
        requested = RequestedPaths(
            (*writable, workspace, home), tuple(readable), (*self.hidden, *own_source), self.placement
        )
        words = [str(bwrap), *self.user_namespace, *_NAMESPACES, *_CONFINED]
        if not self.shares_network:
            words.append("--unshare-net")
        words += mount_arguments(requested, tmp_size=self.limits.tmp if self.limits_tmp else 0)
        # The root itself is a tmpfs. If it were writable, files written there would fill the memory.
        words += ["--remount-ro", "/", "--chdir", str(self.inside(workspace)), "--"]
        return words

    def _unsandboxed_limits(self) -> list[str]:
        """Return the words that set rlimits without a sandbox.

        They do not limit processes: the kernel would count all processes of the user. These are only watched.
        """
        prlimit = shutil.which("prlimit")
        if not prlimit or self.limits == NO_LIMITS:
            return []
        limits = rlimits(self.limits, own_users=False)
        return [prlimit, *(f"--{name.lower()}={value}" for name, value in limits.items())]


def with_forwarded_port(socket: Path, argv: Sequence[str]) -> tuple[str, ...]:
    """Return `argv` with FORWARDED_PORT leading to the Unix socket, for a sandbox without a network.

    The socket's folder must be shown to the command.
    """
    return (*_FORWARD, str(socket), str(FORWARDED_PORT), *argv)


def detect(mode: SandboxMode, *, hidden: Sequence[Path] = ()) -> Sandbox:
    """Find out how commands can be sandboxed here, by running one.

    `hidden` are folders that no sandboxed process may see. Raises SandboxUnavailable if `mode` demands a
    sandbox and there is none.
    """
    if mode is SandboxMode.OFF:
        return Sandbox(None, "The sandbox is switched off (CATHERDER_SANDBOX=off).")
    sandbox = _best_sandbox(tuple(hidden))
    if mode is SandboxMode.REQUIRE and not sandbox.active:
        raise SandboxUnavailable(f"CATHERDER_SANDBOX=require, but there is no sandbox: {sandbox.reason}")
    return sandbox


def _best_sandbox(hidden: tuple[Path, ...]) -> Sandbox:
    program = shutil.which("bwrap")
    if program is None:
        return Sandbox(
            None, "bubblewrap is not installed. Install it, on Debian with: apt install bubblewrap"
        )
    problem = ""
    limits_tmp = _can_limit_tmp(program)
    for flags in _USER_NAMESPACES:
        sandbox = Sandbox(Path(program), hidden=hidden, user_namespace=flags, limits_tmp=limits_tmp)
        problem = sandbox.problem_in()
        if not problem:
            offline = replace(sandbox, network_reason="", shares_network=False)
            return replace(sandbox, network_reason=offline.problem_in())
    return Sandbox(
        None,
        f"{program} does not work here: {problem}. The machine or its container must allow user namespaces"
        " (sysctl kernel.unprivileged_userns_clone=1, or an AppArmor profile for bwrap).",
    )


def _can_limit_tmp(program: str) -> bool:
    try:
        done = subprocess.run([program, "--help"], capture_output=True, timeout=_PROBE_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return b"--size" in done.stdout + done.stderr


def _die_with_parent() -> tuple[str, ...]:
    # A program instead of preexec_fn, which can deadlock in a process that has threads.
    setpriv = shutil.which("setpriv")
    return (setpriv, "--pdeathsig", "KILL", "--") if setpriv else ()
