"""Putting a command into bubblewrap, and finding out whether this machine can."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from tasks_app.core.errors import SandboxUnavailable
from tasks_app.sandbox.environment import clean_env
from tasks_app.sandbox.limits import NICE, NO_LIMITS, OOM_SCORE, Held, Limits, holding, make_group, rlimits
from tasks_app.sandbox.mounts import Shown, mount_arguments
from tasks_app.sandbox.watch import Watch

# The network is one more, of its own accord: see `Sandbox.without_network`.
_NAMESPACES = ("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try")
# Without --cap-drop a portal that runs as root would hand its powers to the guest.
_CONFINED = ("--cap-drop", "ALL", "--die-with-parent", "--new-session")
# Best first: containers often forbid the write to /proc/sys that --disable-userns needs, and some
# forbid user namespaces altogether, which root can do without.
_USER_NAMESPACES: tuple[tuple[str, ...], ...] = (
    ("--unshare-user", "--disable-userns"),
    ("--unshare-user",),
    (),
)
# The portal's source is not in the sandbox, so the program comes as an argument. Like a shell, it exits with
# 127 for a program that it cannot find: bubblewrap would exit with 1.
_SEAL = (sys.executable, "-ISc", (Path(__file__).parent / "restrict.py").read_text())
_FORWARD = (sys.executable, "-ISc", (Path(__file__).parent / "forward.py").read_text())
# The process joins its cgroup itself, so that nothing that it starts is ever outside.
_JOIN = ("/bin/sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"')
#: Where a sandbox without a network finds its model, on its own loopback.
FORWARDED_PORT = 20477
_PROBE_SECONDS = 20
_PORTAL = Path(__file__).resolve().parents[2]


class SandboxMode(StrEnum):
    """The values of CATHERDER_SANDBOX."""

    REQUIRE = "require"  # start only if guests can be sandboxed
    AUTO = "auto"  # sandbox where possible, and say where it is not
    OFF = "off"  # run guests with the powers of the portal's own user


@dataclass(frozen=True)
class SandboxedCommand:
    """A command ready to start: secrets are in `env`, which only its own user can read, never in `argv`.

    `folders` are those whose files count against `limits`, `group` the cgroup that it starts in.
    """

    argv: tuple[str, ...]
    env: dict[str, str]
    cwd: Path
    limits: Limits = NO_LIMITS
    folders: tuple[Path, ...] = ()
    group: Path | None = None

    def watch(self, pid: int) -> Watch:
        """Who looks after the limits of the command, once it was started as `pid`."""
        return Watch(self.limits, pid, folders=self.folders, group=self.group)


@dataclass(frozen=True)
class Sandbox:
    """The way guests are run on this machine.

    `bwrap` is None where there is no sandbox, and `reason` then tells people why. `hidden` are the
    portal's own folders (its data, its source): absent in the sandbox even if they lie in /opt or in
    another folder that is shown. `user_namespace` are the flags that `detect` saw work. `cgroup` is where
    one can be made for each command; without it, `limits` are held by other means (`limits.py`).
    `bounds_tmp`: whether this bubblewrap can bound a temporary folder (from 0.7 on).
    `network_reason` tells people why the network cannot be taken away here, empty if it can.
    """

    bwrap: Path | None
    reason: str = ""
    network_reason: str = "The sandbox was not tried without a network."
    shares_network: bool = True
    hidden: tuple[Path, ...] = ()
    user_namespace: tuple[str, ...] = ()
    limits: Limits = NO_LIMITS
    cgroup: Path | None = None
    bounds_tmp: bool = False

    def limited(self, limits: Limits, *, cgroup: Path | None) -> Sandbox:
        """The same with limits for each command."""
        return replace(self, limits=limits, cgroup=cgroup)

    def on_a_full_disk(self) -> Sandbox:
        """The same for what must work, too, while the disk has less free space than it must keep."""
        return replace(self, limits=replace(self.limits, free_disk=0))

    @property
    def holding(self) -> tuple[Held, ...]:
        """What holds each of the limits on this machine."""
        return holding(
            self.limits,
            cgroup=self.cgroup,
            sandboxed=self.active,
            own_users=self._counts_processes,
            bounds_tmp=self.bounds_tmp,
        )

    @property
    def _counts_processes(self) -> bool:
        """The kernel counts those of a user namespace apart (from 5.14 on), but not those of root."""
        return bool(self.user_namespace) and os.geteuid() != 0

    @property
    def active(self) -> bool:
        return self.bwrap is not None

    @property
    def keeps_network_out(self) -> bool:
        """Whether commands can be run without a network here."""
        return self.active and not self.network_reason

    def without_network(self) -> Sandbox:
        """The same sandbox with nothing but a loopback of its own. Raises SandboxUnavailable if it cannot."""
        if not self.keeps_network_out:
            raise SandboxUnavailable(
                f"Nothing can be run without a network here: {self.reason or self.network_reason}"
            )
        return replace(self, shares_network=False)

    def offline_if_possible(self) -> Sandbox:
        """For what needs no network: without one where that works, else the sandbox as it is."""
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
        """`argv` to be run in `workspace`, seeing only the system, its tools and the paths given.

        `workspace`, `home` and `writable` can be written, `readable` only read; the innermost of
        two nested paths decides. `env` is added to `clean_env(home, …)`. Raises SandboxError for a
        path that is missing or that was made to lead elsewhere.
        """
        environment = clean_env(home, env)
        group = make_group(self.cgroup, self.limits) if self.cgroup else None
        join = (*_JOIN, str(group)) if group else ()
        if self.bwrap is None:
            words = [*join, *_die_with_parent(), *self._unsandboxed_limits(), *argv]
            return SandboxedCommand(
                tuple(words), environment, workspace, self.limits, (workspace, home), group
            )
        shown = Shown((*writable, workspace, home), tuple(readable), (*self.hidden, *_own_source()))
        network = () if self.shares_network else ("--unshare-net",)
        words = [*join, str(self.bwrap), *self.user_namespace, *_NAMESPACES, *network, *_CONFINED]
        words += mount_arguments(shown, tmp_size=self.limits.tmp if self.bounds_tmp else 0)
        # The root itself is a tmpfs: read-only, or a guest could fill the memory and think it wrote files.
        words += ["--remount-ro", "/", "--chdir", str(workspace), "--"]
        words += [*_SEAL, json.dumps(self._sealed_limits()), *argv]
        return SandboxedCommand(tuple(words), environment, workspace, self.limits, (workspace, home), group)

    def _sealed_limits(self) -> dict[str, int]:
        bounds = rlimits(self.limits, own_users=self._counts_processes)
        return {**bounds, "oom_score": OOM_SCORE, "nice": NICE}

    def _unsandboxed_limits(self) -> list[str]:
        """Without a sandbox the processes of the whole user would be counted, so those are only watched."""
        prlimit = shutil.which("prlimit")
        if not prlimit or self.limits == NO_LIMITS:
            return []
        bounds = rlimits(self.limits, own_users=False)
        return [prlimit, *(f"--{name.lower()}={value}" for name, value in bounds.items())]


def forwarded(socket: Path, argv: Sequence[str]) -> tuple[str, ...]:
    """`argv` with the Unix socket beside it on FORWARDED_PORT, for a sandbox without a network.

    The socket's folder must be shown to the command.
    """
    return (*_FORWARD, str(socket), str(FORWARDED_PORT), *argv)


def detect(mode: SandboxMode, *, hidden: Sequence[Path] = ()) -> Sandbox:
    """How to run guests here, found out by really running one.

    `hidden` are folders that no guest may see. Raises SandboxUnavailable if `mode` demands a
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
    complaint = ""
    bounds_tmp = _knows_size(program)
    for flags in _USER_NAMESPACES:
        sandbox = Sandbox(Path(program), hidden=hidden, user_namespace=flags, bounds_tmp=bounds_tmp)
        complaint = _complaint(sandbox)
        if not complaint:
            offline = replace(sandbox, network_reason="", shares_network=False)
            return replace(sandbox, network_reason=_complaint(offline))
    return Sandbox(
        None,
        f"{program} does not work here: {complaint}. The machine or its container must allow user namespaces"
        " (sysctl kernel.unprivileged_userns_clone=1, or an AppArmor profile for bwrap).",
    )


def _knows_size(program: str) -> bool:
    try:
        done = subprocess.run([program, "--help"], capture_output=True, timeout=_PROBE_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return b"--size" in done.stdout + done.stderr


def _complaint(sandbox: Sandbox) -> str:
    with tempfile.TemporaryDirectory(prefix="cat-herder-") as name:
        command = sandbox.command(["true"], workspace=Path(name), home=Path(name), env={})
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
    return "" if done.returncode == 0 else done.stderr.strip() or f"exit {done.returncode}"


def _own_source() -> tuple[Path, ...]:
    """The portal's checkout, or its packages where they are installed among others."""
    packages = (_PORTAL / "catherder_site", _PORTAL / "tasks_app")
    return (_PORTAL,) if (_PORTAL / "manage.py").exists() else packages


def _die_with_parent() -> tuple[str, ...]:
    # A program rather than preexec_fn, which can deadlock in a process that has threads.
    setpriv = shutil.which("setpriv")
    return (setpriv, "--pdeathsig", "KILL", "--") if setpriv else ()
