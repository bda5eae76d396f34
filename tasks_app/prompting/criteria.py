"""The criteria of a step, which its agent is told beforehand (SPEC P5, P6, P7)."""

from __future__ import annotations

from dataclasses import dataclass

from tasks_app.prompting.escaping import escaped_line


@dataclass(frozen=True)
class DescribedCheck:
    """One check as it is described to the agent: a command, or a file that must exist.

    With `fails` the command must fail. With `by_this_step` the file must be written by this step. With
    `as_approved` a human must have approved the text of the file. `seconds` limits a command.
    """

    command: str = ""
    path: str = ""
    fails: bool = False
    by_this_step: bool = False
    as_approved: bool = False
    seconds: float | None = None


@dataclass(frozen=True)
class Criteria:
    """The criteria for the work of a step, and the rules for how it is done.

    `allow_write` are globs (None: any file); `attempts` is the number of further attempts after a failure.
    `shell_rules` are the step's permissions for the shell (None: any command); without `has_shell` there is
    none at all. `ask_before` are the patterns of calls that wait for an approval.
    """

    checks: tuple[DescribedCheck, ...] = ()
    allow_write: tuple[str, ...] | None = None
    attempts: int = 0
    shell_rules: tuple[str, ...] | None = None
    ask_before: tuple[str, ...] = ()
    has_network: bool = True
    has_shell: bool = True

    @property
    def may_install(self) -> bool:
        """Return whether the shell runs more than commands that only read."""
        return self.has_shell and self.shell_rules != ()


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
        if any(check.command for check in criteria.checks) and criteria.may_install:
            parts.append(_CHECKS_HOME)
    if criteria.allow_write is not None:
        parts.append(_writing_sentence(criteria.allow_write))
    if parts:
        after = f"If your work does not pass, {after_failure(criteria.attempts)}"
        for check in criteria.checks:
            if check.as_approved:
                after += _NOT_COUNTED.format(path=_as_code(check.path))
        parts.append(after)
    if not criteria.has_shell:
        parts.append(_NO_SHELL)
    elif criteria.shell_rules is not None:
        rules = "".join(f"{_as_code(_command_of(rule))}, " for rule in criteria.shell_rules)
        parts.append(
            f"In your shell you may run {rules}commands that only read, such as `git log`, and `cat-herder`. "
            "Any other is refused."
        )
    if not criteria.has_network:
        parts.append("The commands that you run have no network: they can download nothing.")
    elif criteria.may_install:
        parts.append("The commands that you run have the network of this machine.")
    if approvals := _approvals_text(criteria):
        parts.append(approvals)
    return "\n\n".join(parts)


def _approvals_text(criteria: Criteria) -> str:
    """Return which calls wait for an approval; nobody is asked about what the step refuses anyway."""
    refused: tuple[str, ...] = ()
    if criteria.shell_rules == ():
        refused = ("Bash",)
    if criteria.allow_write == ():
        refused += _WRITING
    waiting = [pattern for pattern in criteria.ask_before if not pattern.startswith(refused)]
    if not waiting:
        return ""
    writes = ""
    if any(pattern.startswith("Write") for pattern in waiting):
        writes = _WRITE_IS_ANY
    return _APPROVALS.format(patterns=", ".join(map(_as_code, waiting)), writes=writes)


_NOT_COUNTED = (
    " The first time that nothing fails but that {path} is not as it was approved, you are sent back without "
    "that counting."
)
_CHECKS_HOME = """\
Checks run in the workspace with a home of their own: what you install into your home, as with
`pip install --user`, is not there; what lies in the workspace is."""
_NO_SHELL = """\
This step has no shell, so no command that is named here can be run. If you cannot do your work, begin your
last message with that and the reason."""
_WRITING = ("Write", "Edit", "MultiEdit", "NotebookEdit")
_WRITE_IS_ANY = (
    "; `Write` is any tool that writes files: change such files with it, not in the shell, which is checked "
    "at the end"
)
_APPROVALS = """\
These calls wait until a human has approved them: {patterns}
(`*` is any text; in a path, any characters of one name, and `**` crosses folders{writes}).
Make each in a message of its own. Your work stops meanwhile, and goes on with the call's result, or with the
reason why it was not made. Do not look for another way to the same end, unless the reason names one."""


def _writing_sentence(allow_write: tuple[str, ...]) -> str:
    if not allow_write:
        return "You may write no file. A change to any file, by whatever tool, counts as a failed check."
    globs = ", ".join(map(_as_code, allow_write))
    return (
        f"You may write only these files: {globs}. To change or delete any other file, by whatever tool, "
        "counts as a failed check, also if a human approves the command that does it."
    )


def _command_of(rule: str) -> str:
    """Return the command that a permission such as `Bash(npm test:*)` allows: `npm test …`."""
    command = rule.removeprefix("Bash(").removesuffix(")")
    if command.endswith(":*"):
        return f"{command.removesuffix(':*')} …"
    return command


def _check_sentence(check: DescribedCheck) -> str:
    if check.as_approved:
        return (
            f"A human must have approved your plan, and {_as_code(check.path)} must have the text that they "
            "approved."
        )
    if check.path and check.by_this_step:
        return f"The file {_as_code(check.path)} must have been written by you, in this step."
    if check.path:
        return f"The file {_as_code(check.path)} must exist."
    time = ""
    if check.seconds:
        time = f" (within {check.seconds:g} seconds)"
    if check.fails:
        return f"{_as_code(check.command)} must run and must fail{time}: what it tests is not there yet."
    return f"{_as_code(check.command)} must succeed{time}."


def after_failure(attempts: int) -> str:
    """Return the rest of a sentence about what happens after a failure."""
    if attempts == 0:
        return "there is no further attempt: the step has failed."
    if attempts == 1:
        return "you are told why and sent back, once."
    return f"you are told why and sent back, up to {attempts} times."


def _as_code(text: str) -> str:
    """Format the text as one line of Markdown code, whatever backticks are in it."""
    line = escaped_line(text)
    if "`" in line:
        return f"`` {line} ``"
    return f"`{line}`"
