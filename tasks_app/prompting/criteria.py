"""The criteria of a step, which its agent is told beforehand (SPEC P5, P6, P7)."""

from __future__ import annotations

from dataclasses import dataclass

from tasks_app.prompting.escaping import escape


@dataclass(frozen=True)
class DescribedCheck:
    """One check as it is described to the agent: a command, or a file that must exist.

    With `fails` the command must fail. With `by_this_step` the file must be written by this step. `seconds`
    limits a command.
    """

    command: str = ""
    path: str = ""
    fails: bool = False
    by_this_step: bool = False
    seconds: float | None = None


@dataclass(frozen=True)
class Criteria:
    """What the work of a step must fulfil.

    `allow_write` are globs (None: any file); `attempts` is the number of further attempts after a failure.
    """

    checks: tuple[DescribedCheck, ...] = ()
    allow_write: tuple[str, ...] | None = None
    attempts: int = 0


def criteria_text(criteria: Criteria) -> str:
    """Return the paragraphs of the prompt; empty for a step without criteria."""
    parts: list[str] = []
    if criteria.checks:
        numbered = enumerate(criteria.checks, start=1)
        listed = "\n".join(f"{number}. {_check_sentence(check)}" for number, check in numbered)
        parts.append(
            "When you end your turn your work is checked, in this order and up to the first check that fails:"
            f"\n\n{listed}"
        )
    if criteria.allow_write is not None:
        parts.append(_writing_sentence(criteria.allow_write))
    if parts:
        parts.append(f"If your work does not pass, {after_failure(criteria.attempts)}")
    return "\n\n".join(parts)


def _writing_sentence(allow_write: tuple[str, ...]) -> str:
    if not allow_write:
        return "You may write no file. A change to any file, by whatever tool, counts as a failed check."
    globs = ", ".join(map(_as_code, allow_write))
    return (
        f"You may write only these files: {globs}. A change to any other file, by whatever "
        "tool, counts as a failed check."
    )


def _check_sentence(check: DescribedCheck) -> str:
    if check.path:
        condition = "must have been written by you, in this step" if check.by_this_step else "must exist"
        return f"The file {_as_code(check.path)} {condition}."
    time = f" (within {check.seconds:g} seconds)" if check.seconds else ""
    if check.fails:
        return f"{_as_code(check.command)} must run and must fail{time}: what it tests is not there yet."
    return f"{_as_code(check.command)} must succeed{time}."


def after_failure(attempts: int) -> str:
    """Return the rest of a sentence about what happens after a failure."""
    if attempts == 0:
        return "there is no further attempt: the step has failed."
    return f"you are told why and sent back, up to {attempts} {'time' if attempts == 1 else 'times'}."


def _as_code(text: str) -> str:
    """Format the text as one line of Markdown code, whatever backticks are in it."""
    line = " ".join(escape(text).split())
    return f"`{line}`" if "`" not in line else f"`` {line} ``"
