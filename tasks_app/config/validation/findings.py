"""Findings of a validation: errors, warnings and hints with their files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from tasks_app.config.faults import ConfigInvalid, Problem
from tasks_app.core.errors import BadInput

#: Stands for the repository as a whole where a file would stand.
REPOSITORY = ""


class Severity(StrEnum):
    """An error stops or breaks tasks, a warning may be intended, a hint is advice."""

    ERROR = "error"
    WARNING = "warning"
    HINT = "hint"


@dataclass(frozen=True)
class Finding:
    """One fault, or hint, in `file` (relative to the repository; absolute for a file of the portal).

    `fixable`: `validate --fix` can mend it.
    """

    file: str
    problem: Problem
    severity: Severity = Severity.ERROR
    fixable: bool = False


@dataclass(frozen=True)
class Report:
    """Everything that was found, in the order of files and lines; `looked_at` says what there was."""

    findings: tuple[Finding, ...]
    looked_at: str = ""

    @classmethod
    def of(cls, findings: Iterable[Finding], *, looked_at: str = "") -> Report:
        # The settings come first: a fault there is often the cause of others.
        once = dict.fromkeys(findings)
        in_order = sorted(
            once, key=lambda one: (one.file != "cat-herder.yaml", one.file, one.problem.line or 0)
        )
        return cls(tuple(in_order), looked_at)

    @property
    def ok(self) -> bool:
        return not self.errors

    @property
    def errors(self) -> tuple[Finding, ...]:
        return tuple(one for one in self.findings if one.severity is Severity.ERROR)

    @property
    def warnings(self) -> tuple[Finding, ...]:
        return tuple(one for one in self.findings if one.severity is Severity.WARNING)

    @property
    def hints(self) -> tuple[Finding, ...]:
        return tuple(one for one in self.findings if one.severity is Severity.HINT)

    @property
    def faults(self) -> tuple[Finding, ...]:
        return (*self.errors, *self.warnings)


def error(file: str, message: str, *, line: int | None = None, key: str = "") -> Finding:
    return Finding(file, Problem(line, key, message))


def warning(file: str, message: str, *, line: int | None = None, key: str = "") -> Finding:
    return Finding(file, Problem(line, key, message), Severity.WARNING)


def findings_in(fault: BadInput, *, file: str) -> Iterator[Finding]:
    """An error of the readers of files as findings; its place is `file`, or `file:LINE`."""
    if isinstance(fault, ConfigInvalid):
        yield from (Finding(file, problem) for problem in fault.problems)
        return
    line = fault.where.removeprefix(f"{file}:")
    yield error(file, fault.message, line=int(line) if line.isdecimal() else None)
