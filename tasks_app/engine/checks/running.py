"""Running checks in the workspace as the agent left it (P5)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tasks_app.engine.checks.kinds import Check, CheckReport, FileExists, NoCheck, Shell
from tasks_app.sandbox import Finished, Sandbox, killed_by, run

_OUTPUT_BYTES = 100_000
_SHOWN = 160
_NOT_STARTED = (126, 127)
#: How often a command is run that somebody else kills: the system, for one, when memory runs out.
_TRIES = 3
# A POSIX shell where there is no bash. The command is its argument, never a part of this text.
_SHELL = ("/bin/sh", "-c", 'command -v bash >/dev/null && exec bash -c "$0"; exec sh -c "$0"')


@dataclass(frozen=True)
class _Place:
    """Where shell checks run, and what they are given."""

    workspace: Path
    sandbox: Sandbox
    home: Path
    env: Mapping[str, str]
    stop: Callable[[], bool] | None


def run_checks(
    checks: Sequence[Check],
    *,
    workspace: Path,
    sandbox: Sandbox,
    home: Path,
    env: Mapping[str, str] | None = None,
    stop: Callable[[], bool] | None = None,
) -> tuple[CheckReport, ...]:
    """Run `checks` in order up to the first that fails, whose report is then the last.

    `env` is added to the guest's environment. `stop` ends a running command when it turns true,
    and that check counts as failed. Raises SandboxError if a command cannot be put into the sandbox.
    """
    place = _Place(workspace, sandbox, home, env or {}, stop)
    reports: list[CheckReport] = []
    for check in checks:
        reports.append(_run_one(check, place))
        if not reports[-1].passed:
            break
    return tuple(reports)


def _run_one(check: Check, place: _Place) -> CheckReport:
    match check:
        case NoCheck():
            return CheckReport(True, "none")
        case FileExists(path):
            problem = _problem_with_file(path, place.workspace)
            return CheckReport(not problem, f"{path} exists", problem=problem)
        case Shell():
            return _run_shell(check, place)


def _problem_with_file(path: str, workspace: Path) -> str:
    if not path or "\0" in path:
        return f"{path!r} does not name a file."
    name = _shown(path)
    if Path(path).is_absolute() or ".." in Path(path).parts:
        return f"{name} is not a path inside the workspace: it must be relative and without '..'."
    try:
        real = (workspace / path).resolve()
        if not real.is_relative_to(workspace.resolve()):
            return f"{name} leads out of the workspace through a link."
        return "" if real.exists() else f"{name} does not exist in the workspace."
    except (OSError, RuntimeError):  # a name too long, or links in a circle
        return f"{name} cannot be reached in the workspace."


def _run_shell(check: Shell, place: _Place) -> CheckReport:
    command = place.sandbox.command(
        [*_SHELL, check.command], workspace=place.workspace, env=place.env, home=place.home
    )
    for _ in range(_TRIES):
        done = run(command, timeout=check.timeout, output_limit=_OUTPUT_BYTES, stop=place.stop)
        if not _killed(done):
            break
    problem = _problem_with_end(check, done)
    return CheckReport(
        passed=not problem,
        check=_title(check),
        output=done.output,
        exit_code=done.exit_code,
        timed_out=done.timed_out,
        problem=problem,
    )


def _killed(done: Finished) -> str:
    """The signal by which somebody else ended the command; empty if it ended by itself, or by the portal."""
    by_the_portal = done.timed_out or done.over_limit or done.stopped
    return "" if by_the_portal else killed_by(done.exit_code)


def _title(check: Shell) -> str:
    title = " ".join(check.command.split())
    return f"{title} (expected to fail)" if check.expect == "fail" else title


def _problem_with_end(check: Shell, done: Finished) -> str:
    """Why the check failed, for people and for the agent; empty if it passed."""
    command = _shown(" ".join(check.command.split()))
    if done.timed_out:
        return f"{command} did not end within {check.timeout:g} seconds."
    if done.over_limit:
        return f"{command} was ended. {done.over_limit}"
    if done.stopped:
        return f"{command} was stopped, because its task was."
    if name := _killed(done):
        return f"{command} was killed (exit {done.exit_code}, {name}) {_TRIES} times in a row."
    if check.expect == "pass":
        return f"{command} failed with exit {done.exit_code}." if done.exit_code else ""
    if done.exit_code in _NOT_STARTED:
        return f"{command} could not be run (exit {done.exit_code}); that is not the failure expected."
    return "" if done.exit_code else f"{command} passed, but was expected to fail."


def _shown(text: str) -> str:
    """A command or a path within a sentence: as code, unless its own backticks would end it too soon."""
    text = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
    return f"“{text}”" if "`" in text else f"`{text}`"
