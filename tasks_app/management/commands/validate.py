"""`cat-herder validate`: report all problems of a repository at once (P1, P12)."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.management.base import CommandParser

from tasks_app.cli.command import Exit, TerminalCommand
from tasks_app.cli.repository import (
    OpenedRepository,
    open_repository,
    project_named,
    repository_context,
    show_report,
)
from tasks_app.config.faults import ConfigInvalid
from tasks_app.config.pipeline import json_schema
from tasks_app.config.validation import SETTINGS_FILE, Report, grant_permission, may_ask, validate
from tasks_app.config.validation.repository_context import read_text
from tasks_app.core.errors import BadInput
from tasks_app.engine.workers.machine import toolchains_of_machine
from tasks_app.prompting import SHIPPED_PROMPTS
from tasks_app.schemas.projects import ReportWithFixes
from tasks_app.services.projects.settings import CONFIG_FILE
from tasks_app.services.publishing.publications import with_publishing
from tasks_app.services.questions.routing import with_people


class Command(TerminalCommand):
    help = """\
Checks a repository before tasks run in it and reports all problems at once, with file, line and key:
cat-herder.yaml, task files, prompts of steps, commands of checks, permissions, and what git says.
Nothing of the repository is run."""
    examples = """\
exit codes: 0 no errors, 1 errors, 2 wrong usage

examples:
  cat-herder validate                     the repository in this folder
  cat-herder validate ~/code/billing --fix
  cat-herder validate billing --json      a project of the portal
  cat-herder validate --schema > cat-herder.schema.json"""
    requires_tables = False

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "path",
            metavar="PATH",
            nargs="?",
            default=".",
            help="the top folder of a repository, its https or ssh URL, or the name of a project",
        )
        parser.add_argument(
            "--fix",
            action="store_true",
            help="add the permission to ask to .claude/settings.json, for people who run Claude Code by hand",
        )
        parser.add_argument("--json", action="store_true", help="print the findings as JSON")
        parser.add_argument(
            "--schema", action="store_true", help="print the JSON Schema of cat-herder.yaml, for editors"
        )

    def work(self, options: dict[str, Any]) -> int:
        if options["schema"]:
            self.write_json(json_schema())
            return Exit.DONE
        with open_repository(options["path"]) as repository:
            report = _validate(repository)
            if project := project_named(options["path"]):
                text = _settings_text(repository)
                report = with_people(with_publishing(report, project, text), project, text)
            fixed = options["fix"] and self._fix(repository, report)
            if fixed:
                report = _validate(repository)
        self._print_report(report, repository, options, fixed=bool(fixed))
        return Exit.DONE if report.ok else Exit.FAILED

    def _fix(self, repository: OpenedRepository, report: Report) -> bool:
        """Add the permission to ask, in a new file if necessary; return whether anything changed."""
        missing = not (repository.root / SETTINGS_FILE).exists() and may_ask(
            repository_context(repository.root)
        )
        if not missing and not any(one.fixable for one in report.findings):
            return False
        if repository.copy:
            raise BadInput(
                "this is only a temporary copy of the repository: fix it in a clone", where=repository.name
            )
        return grant_permission(repository_context(repository.root))

    def _print_report(
        self, report: Report, repository: OpenedRepository, options: dict[str, Any], *, fixed: bool
    ) -> None:
        files = [SETTINGS_FILE] if fixed else []
        if options["json"]:
            self.write_json(ReportWithFixes.from_row(report, mended=files))
            return
        screen = self.screen_for(options)
        for name in files:
            screen.say(f"Fixed {name}: the agent may ask. Commit it, or tasks will not use it.\n")
        show_report(screen, report, repository=str(repository.name if repository.copy else repository.root))


def _settings_text(repository: OpenedRepository) -> str | None:
    try:
        return read_text(repository_context(repository.root), CONFIG_FILE)
    except ConfigInvalid:  # reported already
        return None


def _validate(repository: OpenedRepository) -> Report:
    return validate(
        repository.root,
        prompts=SHIPPED_PROMPTS,
        threshold=settings.ENVIRONMENT.threshold,
        with_git=True,
        toolchains=toolchains_of_machine(),
    )
