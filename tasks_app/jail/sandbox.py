"""Putting a command into bubblewrap, and finding out whether this machine can."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from tasks_app.errors import SandboxUnavailable
from tasks_app.jail.environment import clean_env
from tasks_app.jail.mounts import Shown, mount_arguments

# The network is shared: agents talk to their API.
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
# The portal's source is not in the jail, so the program comes as an argument. It also says 127 for a program
# that it cannot find, as a shell does: bubblewrap would end with 1.
_SEAL = (sys.executable, "-ISc", (Path(__file__).parent / "seal.py").read_text())
_PROBE_SECONDS = 20
_PORTAL = Path(__file__).resolve().parents[2]


class SandboxMode(StrEnum):
    """The values of CATHERDER_SANDBOX."""

    REQUIRE = "require"  # start only if guests can be jailed
    AUTO = "auto"  # jail where possible, and say where it is not
    OFF = "off"  # run guests with the powers of the portal's own user


@dataclass(frozen=True)
class JailedCommand:
    """A command ready to start: secrets are in `env`, which only its own user can read, never in `argv`."""

    argv: tuple[str, ...]
    env: dict[str, str]
    cwd: Path


@dataclass(frozen=True)
class Jail:
    """The way guests are run on this machine.

    `bwrap` is None where there is no sandbox, and `reason` then tells people why. `hidden` are the
    portal's own folders (its data, its source): absent in the jail even if they lie in /opt or in
    another folder that is shown. `user_namespace` are the flags that `detect` saw work.
    """

    bwrap: Path | None
    reason: str = ""
    hidden: tuple[Path, ...] = ()
    user_namespace: tuple[str, ...] = ()

    @property
    def active(self) -> bool:
        return self.bwrap is not None

    def command(
        self,
        argv: Sequence[str],
        *,
        workspace: Path,
        env: Mapping[str, str],
        home: Path,
        writable: Sequence[Path] = (),
        readable: Sequence[Path] = (),
    ) -> JailedCommand:
        """`argv` to be run in `workspace`, seeing only the system, its tools and the paths given.

        `workspace`, `home` and `writable` can be written, `readable` only read; the innermost of
        two nested paths decides. `env` is added to `clean_env(home, …)`. Raises JailError for a
        path that is missing or that was made to lead elsewhere.
        """
        environment = clean_env(home, env)
        if self.bwrap is None:
            return JailedCommand((*_die_with_parent(), *argv), environment, workspace)
        shown = Shown((*writable, workspace, home), tuple(readable), (*self.hidden, *_own_source()))
        words = [str(self.bwrap), *self.user_namespace, *_NAMESPACES, *_CONFINED, *mount_arguments(shown)]
        # The root itself is a tmpfs: read-only, or a guest could fill the memory and think it wrote files.
        words += ["--remount-ro", "/", "--chdir", str(workspace), "--", *_SEAL, *argv]
        return JailedCommand(tuple(words), environment, workspace)


def detect(mode: SandboxMode, *, hidden: Sequence[Path] = ()) -> Jail:
    """How to run guests here, found out by really running one.

    `hidden` are folders that no guest may see. Raises SandboxUnavailable if `mode` demands a
    sandbox and there is none.
    """
    if mode is SandboxMode.OFF:
        return Jail(None, "The sandbox is switched off (CATHERDER_SANDBOX=off).")
    jail = _best_jail(tuple(hidden))
    if mode is SandboxMode.REQUIRE and not jail.active:
        raise SandboxUnavailable(f"CATHERDER_SANDBOX=require, but there is no sandbox: {jail.reason}")
    return jail


def _best_jail(hidden: tuple[Path, ...]) -> Jail:
    program = shutil.which("bwrap")
    if program is None:
        return Jail(None, "bubblewrap is not installed. Install it, on Debian with: apt install bubblewrap")
    complaint = ""
    for flags in _USER_NAMESPACES:
        jail = Jail(Path(program), hidden=hidden, user_namespace=flags)
        complaint = _complaint(jail)
        if not complaint:
            return jail
    return Jail(
        None,
        f"{program} does not work here: {complaint}. The machine or its container must allow user namespaces"
        " (sysctl kernel.unprivileged_userns_clone=1, or an AppArmor profile for bwrap).",
    )


def _complaint(jail: Jail) -> str:
    with tempfile.TemporaryDirectory(prefix="cat-herder-") as name:
        command = jail.command(["true"], workspace=Path(name), home=Path(name), env={})
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
    """The portal's checkout, or its package where it is installed among others."""
    return (_PORTAL,) if (_PORTAL / "manage.py").exists() else (_PORTAL / "tasks_app",)


def _die_with_parent() -> tuple[str, ...]:
    # A program rather than preexec_fn, which can deadlock in a process that has threads.
    setpriv = shutil.which("setpriv")
    return (setpriv, "--pdeathsig", "KILL", "--") if setpriv else ()
