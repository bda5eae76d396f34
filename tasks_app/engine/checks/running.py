"""Running checks in the workspace as the agent left it (P5)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tasks_app.config.repository_settings import CHECK_SECONDS
from tasks_app.sandbox import Finished, Placement, Sandbox, killed_by, run


@dataclass(frozen=True)
class NoCheck:
    """Always passes."""


@dataclass(frozen=True)
class FileExists:
    """Passes if `path`, relative to the workspace, is a file or folder within it."""

    path: str


@dataclass(frozen=True)
class Shell:
    """A command line that must succeed, or with `expect="fail"` must run and fail.

    `timeout` is in seconds. A command that exceeds it fails the check either way, and so does one that the
    shell could not start (exit 126 or 127): a missing test runner is not a failing test.
    """

    command: str
    expect: Literal["pass", "fail"] = "pass"
    timeout: float = CHECK_SECONDS


Check = NoCheck | FileExists | Shell


@dataclass(frozen=True)
class CheckReport:
    """The result of a check.

    `check` names it in one line for people, `output` is what the command printed, and `problem` says in a
    sentence why the check failed. `exit_code` is None if no command ran to its end. Of a check by the portal
    itself, `output` says what it found, and `order` tells the agent what to do; people are not shown that.
    """

    passed: bool
    check: str
    output: str = ""
    exit_code: int | None = None
    timed_out: bool = False
    problem: str = ""
    order: str = ""


_OUTPUT_BYTES = 100_000
_SHOWN = 160
_NOT_STARTED = (126, 127)
#: How often a command is run that is killed from outside, for example because memory runs out.
_TRIES = 3
# bash, or another POSIX shell if it is missing. The command is passed as an argument, not inside this text.
_SHELL = ("/bin/sh", "-c", 'command -v bash >/dev/null && exec bash -c "$0"; exec sh -c "$0"')


@dataclass(frozen=True)
class _Context:
    """The surroundings of the checks; see `run_checks`."""

    workspace: Path
    sandbox: Sandbox
    home: Path
    env: Mapping[str, str]
    stop: Callable[[], bool] | None
    readable: Sequence[Path]


def run_checks(
    checks: Sequence[Check],
    *,
    workspace: Path,
    sandbox: Sandbox,
    home: Path,
    env: Mapping[str, str] | None = None,
    stop: Callable[[], bool] | None = None,
    readable: Sequence[Path] = (),
) -> tuple[CheckReport, ...]:
    """Run `checks` in order up to the first that fails, whose report is then the last.

    `env` is added to the environment of the commands. `stop` ends a running command when it turns true, and
    that check counts as failed. `readable` are folders that the commands may read besides. Raises
    SandboxError if a command cannot be put into the sandbox.
    """
    context = _Context(workspace, sandbox, home, env or {}, stop, readable)
    reports: list[CheckReport] = []
    for check in checks:
        reports.append(_run_check(check, context))
        if not reports[-1].passed:
            break
    return tuple(reports)


def _run_check(check: Check, context: _Context) -> CheckReport:
    match check:
        case NoCheck():
            return CheckReport(True, "none")
        case FileExists(path):
            problem = _file_problem(path, context.workspace, context.sandbox.placement)
            return CheckReport(not problem, f"{path} exists", problem=problem)
        case Shell():
            return _run_shell(check, context)


def _file_problem(path: str, workspace: Path, placement: Placement) -> str:
    """Return why the file check failed, as a sentence; empty if it passed."""
    if not path or "\0" in path:
        return f"{path!r} does not name a file."
    name = _quoted(path)
    if Path(path).is_absolute() or ".." in Path(path).parts:
        return f"{name} is not a path inside the workspace: it must be relative and without '..'."
    try:
        seen = placement.inside(workspace)
        real = placement.real_path(seen / path)
        if not real.is_relative_to(placement.real_path(seen)):
            return f"{name} leads out of the workspace through a link."
        if placement.outside(real).exists():
            return ""
        return f"{name} does not exist in the workspace."
    except (OSError, RuntimeError):  # a name too long, or links in a circle
        return f"{name} cannot be reached in the workspace."


def _run_shell(check: Shell, context: _Context) -> CheckReport:
    command = context.sandbox.command(
        [*_SHELL, check.command],
        workspace=context.workspace,
        env=context.env,
        home=context.home,
        readable=context.readable,
    )
    for _ in range(_TRIES):
        done = run(command, timeout=check.timeout, output_limit=_OUTPUT_BYTES, stop=context.stop)
        if not _killing_signal(done):
            break
    problem = _command_problem(check, done)
    title = " ".join(check.command.split())
    return CheckReport(
        passed=not problem,
        check=f"{title} (expected to fail)" if check.expect == "fail" else title,
        output=done.output,
        exit_code=done.exit_code,
        timed_out=done.timed_out,
        problem=problem,
    )


def _killing_signal(done: Finished) -> str:
    """Return the signal that killed the command from outside; "" if it, or the portal, ended it."""
    by_the_portal = done.timed_out or done.over_limit or done.stopped
    return "" if by_the_portal else killed_by(done.exit_code)


def _command_problem(check: Shell, done: Finished) -> str:
    """Return why the check failed, for people and for the agent; empty if it passed."""
    command = _quoted(" ".join(check.command.split()))
    if done.timed_out:
        return f"{command} did not end within {check.timeout:g} seconds."
    if done.over_limit:
        return f"{command} was ended. {done.over_limit}"
    if done.stopped:
        return f"{command} was stopped together with its task."
    if name := _killing_signal(done):
        return f"{command} was killed (exit {done.exit_code}, {name}) {_TRIES} times in a row."
    if check.expect == "pass":
        if done.exit_code:
            return f"{command} failed with exit {done.exit_code}."
        return ""
    if done.exit_code in _NOT_STARTED:
        return f"{command} could not be run (exit {done.exit_code}); that is not the failure expected."
    if done.exit_code:
        return ""
    return f"{command} passed, but was expected to fail."


def _quoted(text: str) -> str:
    """Format a command or a path within a sentence: as code, unless its own backticks would end that."""
    text = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
    return f"“{text}”" if "`" in text else f"`{text}`"
