"""Run all checks; a check that raises is a finding too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from tasks_app.core.errors import CatHerderError
from tasks_app.operations.doctor import data, machine, services
from tasks_app.operations.doctor.finding import Finding, Level, ok, problem

Check = Callable[[], Iterator[Finding]]


def all_checks(*, deep: bool, remote: bool) -> list[Check]:
    """Return all checks. `deep`: read every object of the repositories; `remote`: contact remote sources."""
    return [
        *machine.CHECKS,
        *data.CHECKS,
        *services.CHECKS,
        partial(services.sources, remote=remote),
        partial(data.repositories, deep=deep),
    ]


def run_checks(checks: list[Check]) -> Iterator[Finding]:
    """Yield the findings of all checks."""
    for check in checks:
        try:
            yield from check()
        except Exception as error:  # the other checks must still run
            name = getattr(check, "func", check).__name__.replace("_", " ")
            reason = " ".join(str(error).split()) or type(error).__name__
            yield problem(name, f"could not be checked: {reason}")


def apply_fix(finding: Finding) -> Finding:
    """Apply the fix of a finding, if it has one, and return the new finding."""
    if finding.fix is None:
        return finding
    try:
        return ok(finding.subject, f"fixed: {finding.fix()}")
    except (OSError, CatHerderError) as error:
        return problem(finding.subject, f"{finding.text} (the fix failed: {error})", finding.advice)


def has_problems(findings: list[Finding]) -> bool:
    return any(finding.level is Level.PROBLEM for finding in findings)
