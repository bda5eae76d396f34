"""Print the findings of a validation: errors first, then warnings, grouped by file."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from tasks_app.cli.terminal import Screen
from tasks_app.config.validation import Finding, Report
from tasks_app.core.amounts import counted

_STYLES = {"error": "red", "warning": "yellow", "hint": "blue"}


def show_report(screen: Screen, report: Report, *, repository: str) -> None:
    """Print every finding with its line, and a summary."""
    shown = (("error", report.errors), ("warning", report.warnings), ("hint", report.hints))
    for what, findings in shown:
        if findings:
            screen.say(f"{counted(len(findings), what)}:", style=f"bold {_STYLES[what]}")
            _show_findings(screen, findings)
            screen.say()
    if report.faults:
        screen.say(f"{summary(report)} in {repository}: {report.looked_at}.", wrap=False)
    else:
        screen.say(f"No problems in {repository}: {report.looked_at}.", style="green", wrap=False)
    if any(one.fixable for one in report.findings):
        screen.say("`manage.py validate --fix` fixes what is marked with (--fix).")


def summary(report: Report) -> str:
    return f"{counted(len(report.errors), 'error')}, {counted(len(report.warnings), 'warning')}"


def _show_findings(screen: Screen, findings: Sequence[Finding]) -> None:
    for file, in_file in groupby(findings, key=lambda one: one.file):
        screen.say(f"  {file or 'the repository'}", style="bold", wrap=False)
        for one in in_file:
            place = f"{file}:{one.problem.line}: " if one.problem.line else ""
            mark = " (--fix)" if one.fixable else ""
            screen.say(f"{place}{one.problem.sentence}{mark}", indent=4)
