"""How a step is judged, told before it begins: checks, the files it may write, attempts (SPEC P5, P6, P7)."""

from __future__ import annotations

from dataclasses import dataclass

from tasks_app.prompting.escaping import foreign


@dataclass(frozen=True)
class CheckWords:
    """One check as the agent is told of it: a command, or a file that must be there.

    `fails`: the command must fail. `written`: the file must be this step's own work. `seconds` bounds a
    command.
    """

    command: str = ""
    path: str = ""
    fails: bool = False
    written: bool = False
    seconds: float | None = None


@dataclass(frozen=True)
class Judged:
    """What a step is held to.

    `allow_write` are globs (None: any file); `attempts` is how often it may still be sent back.
    """

    checks: tuple[CheckWords, ...] = ()
    allow_write: tuple[str, ...] | None = None
    attempts: int = 0


def judged_text(judged: Judged) -> str:
    """The paragraph of the prompt; empty for a step that is held to nothing."""
    parts = [*_checks(judged.checks), *_files(judged.allow_write)]
    return "\n\n".join([*parts, _attempts(judged.attempts)]) if parts else ""


def _checks(checks: tuple[CheckWords, ...]) -> list[str]:
    if not checks:
        return []
    listed = "\n".join(f"{number}. {_check(check)}" for number, check in enumerate(checks, start=1))
    return [
        "When you end your turn your work is checked, in this order and up to the first check that fails:"
        f"\n\n{listed}"
    ]


def _check(check: CheckWords) -> str:
    if check.path:
        words = "must have been written by you, in this step" if check.written else "must exist"
        return f"The file {_code(check.path)} {words}."
    time = f" (within {check.seconds:g} seconds)" if check.seconds else ""
    if check.fails:
        return f"{_code(check.command)} must run and must fail{time}: what it tests is not there yet."
    return f"{_code(check.command)} must succeed{time}."


def _files(globs: tuple[str, ...] | None) -> list[str]:
    if globs is None:
        return []
    listed = ", ".join(map(_code, globs))
    return [
        f"You may write only these files: {listed}. A change to any other file, by whatever "
        "tool, counts as a failed check."
    ]


def _attempts(attempts: int) -> str:
    return f"If your work does not pass, {attempts_left(attempts)}"


def attempts_left(attempts: int) -> str:
    """The rest of a sentence about what happens after a failure."""
    if attempts == 0:
        return "there is no further attempt: the step has failed."
    return f"you are told why and sent back, up to {attempts} {'time' if attempts == 1 else 'times'}."


def _code(text: str) -> str:
    """One line as Markdown code, whatever backticks are in it."""
    line = " ".join(foreign(text).split())
    return f"`{line}`" if "`" not in line else f"`` {line} ``"
