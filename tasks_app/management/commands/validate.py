"""`manage.py validate`: everything that is wrong with a repository, at once (P1, P12)."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.management.base import CommandParser

from tasks_app.cli.command import Exit, TerminalCommand
from tasks_app.cli.validation_report import show_report
from tasks_app.cli.repository import Place, ground, opened
from tasks_app.cli.screen import Screen
from tasks_app.config.schema import json_schema
from tasks_app.config.validation import SETTINGS_FILE, Report, grant_permission, may_ask, validate
from tasks_app.core.errors import BadInput
from tasks_app.prompting import SHIPPED_PROMPTS
from tasks_app.reporting.schemas.projects import ReportWithFixes


class Command(TerminalCommand):
    help = """\
Checks a repository before tasks run in it and tells every fault at once, with file, line and key:
cat-herder.yaml, task files, prompts of steps, commands of checks, permissions, and what git says.
Nothing of the repository is run."""
    examples = """\
exit codes: 0 no errors, 1 errors, 2 wrong use

examples:
  manage.py validate                     the repository in this folder
  manage.py validate ~/code/billing --fix
  manage.py validate billing --json      a project of the portal
  manage.py validate --schema > cat-herder.schema.json"""
    requires_tables = False

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "path",
            metavar="PATH",
            nargs="?",
            default=".",
            help="the top folder of a repository, its https or ssh address, or the name of a project",
        )
        parser.add_argument(
            "--fix",
            action="store_true",
            help="add the permission to ask to .claude/settings.json, for people who run Claude Code by hand",
        )
        parser.add_argument("--json", action="store_true", help="tell the findings as JSON")
        parser.add_argument(
            "--schema", action="store_true", help="print the JSON Schema of cat-herder.yaml, for editors"
        )

    def work(self, options: dict[str, Any]) -> int:
        if options["schema"]:
            self.write_json(json_schema())
            return Exit.DONE
        with opened(options["path"]) as place:
            report = _validated(place)
            mended = options["fix"] and self._mended(place, report)
            if mended:
                report = _validated(place)
        self._tell(report, place, options, mended=bool(mended))
        return Exit.DONE if report.ok else Exit.FAILED

    def _mended(self, place: Place, report: Report) -> bool:
        """Add the permission to ask, in a file of its own if there is none; whether anything was done."""
        missing = not (place.root / SETTINGS_FILE).exists() and may_ask(ground(place.root))
        if not missing and not any(one.fixable for one in report.findings):
            return False
        if place.copy:
            raise BadInput("only a copy of this repository is here: mend it in a clone", where=place.name)
        return grant_permission(ground(place.root))

    def _tell(self, report: Report, place: Place, options: dict[str, Any], *, mended: bool) -> None:
        files = [SETTINGS_FILE] if mended else []
        if options["json"]:
            self.write_json(ReportWithFixes.of(report, mended=files))
            return
        self.stdout.ending = ""
        screen = Screen(self.stdout, no_color=options["no_color"])
        for name in files:
            screen.say(f"Mended {name}: the agent may ask. Commit it, or tasks will not have it.\n")
        show_report(screen, report, place=str(place.name if place.copy else place.root))


def _validated(place: Place) -> Report:
    return validate(
        place.root,
        prompts=SHIPPED_PROMPTS,
        threshold=settings.ENVIRONMENT.threshold,
        with_git=True,
    )
