"""`cat-herder doctor`: check everything that an installation needs and say what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from django.core.management.base import CommandParser
from django.db import DatabaseError

from tasks_app.cli.command import Exit, TerminalCommand
from tasks_app.cli.terminal import Screen
from tasks_app.core.amounts import counted
from tasks_app.core.errors import CatHerderError
from tasks_app.operations.doctor import Finding, Level, data, machine, ok, problem, services

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
    except (OSError, DatabaseError, CatHerderError) as error:
        return problem(finding.subject, f"{finding.text} (the fix failed: {error})", finding.advice)


def has_problems(findings: list[Finding]) -> bool:
    return any(finding.level is Level.PROBLEM for finding in findings)


_MARKS = {Level.OK: ("✓", "green"), Level.WARNING: ("!", "yellow"), Level.PROBLEM: ("✗", "red")}
_COLUMN = 16


class Command(TerminalCommand):
    help = """\
Checks everything that an installation needs and says what to do: programs, sandbox, data directory,
database, queue, workers, web server, model, mail, repositories. It also works while the portal or the
database is down. Nothing is changed without --fix."""
    examples = """\
exit codes: 0 no problems (warnings do not count), 1 problems

examples:
  cat-herder doctor
  cat-herder doctor --fix              repairs what can safely be repaired
  cat-herder doctor --deep --sources   also reads all objects of repositories, and contacts remote sources
  cat-herder doctor --json"""
    requires_tables = False

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--fix", action="store_true", help="repair what can safely be repaired")
        parser.add_argument("--deep", action="store_true", help="read every object of the repositories")
        parser.add_argument("--sources", action="store_true", help="also contact remote sources")
        parser.add_argument("--json", action="store_true", help="as JSON")

    def work(self, options: dict[str, Any]) -> int:
        screen = self.screen_for(options)
        findings = []
        for finding in run_checks(all_checks(deep=options["deep"], remote=options["sources"])):
            if options["fix"]:
                finding = apply_fix(finding)
            findings.append(finding)
            if not options["json"]:
                mark, style = _MARKS[finding.level]
                screen.say_with_mark(mark, f"{finding.subject:<{_COLUMN}}{finding.text}", style=style)
                if finding.advice:
                    screen.say(f"→ {finding.advice}", indent=_COLUMN + 4)
        if options["json"]:
            self.write_json([_as_json(finding) for finding in findings])
        else:
            _print_summary(screen, findings)
        return Exit.FAILED if has_problems(findings) else Exit.DONE


def _print_summary(screen: Screen, findings: list[Finding]) -> None:
    counts = {level: sum(finding.level is level for finding in findings) for level in Level}
    screen.say()
    problems, warnings = counts[Level.PROBLEM], counts[Level.WARNING]
    said = [counted(problems, "problem") if problems else "No problems"]
    if warnings:
        said.append(counted(warnings, "warning"))
    screen.say(f"{', '.join(said)}, {counts[Level.OK]} fine.", style="bold")
    if any(finding.fix for finding in findings):
        screen.say("cat-herder doctor --fix repairs some of them.")


def _as_json(finding: Finding) -> dict[str, str | bool]:
    return {
        "subject": finding.subject,
        "level": finding.level.value,
        "text": finding.text,
        "advice": finding.advice,
        "can_be_mended": finding.fix is not None,
    }
