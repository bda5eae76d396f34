"""Running all checks: one that fails itself is a finding too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from tasks_app.core.errors import CatHerderError
from tasks_app.operations.doctor import data, machine, services
from tasks_app.operations.doctor.finding import Finding, Level, ok, problem

Check = Callable[[], Iterator[Finding]]


def checks(*, deep: bool, remote: bool) -> list[Check]:
    """`deep`: every object of the repositories is read; `remote`: sources behind a network are asked."""
    return [
        *machine.CHECKS,
        *data.CHECKS,
        *services.CHECKS,
        partial(services.sources, remote=remote),
        partial(data.repositories, deep=deep),
    ]


def examine(chosen: list[Check]) -> Iterator[Finding]:
    """What each of the checks finds, as it is found."""
    for check in chosen:
        try:
            yield from check()
        except Exception as error:  # a check must not keep the others from being made
            name = getattr(check, "func", check).__name__.replace("_", " ")
            reason = " ".join(str(error).split()) or type(error).__name__
            yield problem(name, f"could not be checked: {reason}")


def mended(finding: Finding) -> Finding:
    """The finding after its mend, if it has one; it stays as it was if that fails."""
    if finding.mend is None:
        return finding
    try:
        return ok(finding.subject, f"mended: {finding.mend()}")
    except (OSError, CatHerderError) as error:
        return problem(finding.subject, f"{finding.text} (mending failed: {error})", finding.advice)


def has_problems(findings: list[Finding]) -> bool:
    return any(finding.level is Level.PROBLEM for finding in findings)
