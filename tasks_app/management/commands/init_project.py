"""`cat-herder init_project`: add what tasks need to a repository, and change no existing file (P12)."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import CommandParser
from django.utils.text import slugify

from tasks_app.cli.command import Exit, TerminalCommand
from tasks_app.cli.repository import repository_context, resolve_folder, show_report
from tasks_app.cli.terminal import Screen
from tasks_app.config.starter import Choices, Outcome, Written, starter_files, write_all
from tasks_app.config.validation import Report, is_repository, validate
from tasks_app.core.errors import BadInput
from tasks_app.prompting import SHIPPED_PROMPTS
from tasks_app.schemas.projects import FileWritten, InitOutcome, ReportOut

_STYLES = {Outcome.MADE: "green", Outcome.THERE: "dim", Outcome.LEFT: "yellow"}


class Command(TerminalCommand):
    help = """\
Prepares a repository for Cat Herder: a commented cat-herder.yaml, a first task, and the permission for
the agent to ask. Existing files are not changed. At the end the result is validated."""
    examples = """\
exit codes: 0 done, 1 the result has errors, 2 wrong usage

examples:
  cat-herder init_project ~/code/billing --dry-run
  cat-herder init_project ~/code/billing --prompts"""
    requires_tables = False

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "path", metavar="PATH", nargs="?", default=".", help="the top folder of a git repository"
        )
        parser.add_argument(
            "--prompts", action="store_true", help="copy the prompts of the steps too, for you to change"
        )
        parser.add_argument(
            "--schema", action="store_true", help="put the JSON Schema beside cat-herder.yaml, for editors"
        )
        parser.add_argument("--dry-run", action="store_true", help="only print what would be created")
        parser.add_argument("--force", action="store_true", help="also in a folder that is no git repository")
        parser.add_argument("--json", action="store_true", help="print the outcome as JSON")

    def work(self, options: dict[str, Any]) -> int:
        self.stdout.ending = ""
        root = resolve_folder(options["path"])
        if not options["force"] and not is_repository(root):
            raise BadInput(
                "this is not the top folder of a git repository; use --force to continue", where=str(root)
            )
        choices = Choices(prompts=options["prompts"], schema=options["schema"])
        context = repository_context(root)
        # Read all texts first, so that an unreadable one stops the command before it creates a file.
        written = write_all(list(starter_files(context, choices)), context, dry_run=options["dry_run"])
        report = None
        if not options["dry_run"]:
            # New files are not committed yet; the printed next command does that.
            threshold = settings.ENVIRONMENT.threshold
            report = validate(root, prompts=SHIPPED_PROMPTS, threshold=threshold, with_git=False)
        self._print_outcome(root, written, report, options)
        if report is None or report.ok:
            return Exit.DONE
        return Exit.FAILED

    def _print_outcome(
        self,
        root: Path,
        written: list[Written],
        report: Report | None,
        options: dict[str, Any],
    ) -> None:
        if options["json"]:
            self.write_json(
                InitOutcome(
                    dry_run=options["dry_run"],
                    files=[
                        FileWritten(file=one.name, outcome=one.outcome, remark=one.remark) for one in written
                    ],
                    validation=ReportOut.from_row(report) if report else None,
                )
            )
            return
        screen = self.screen_for(options)
        names = {**{outcome: str(outcome) for outcome in Outcome}}
        if options["dry_run"]:
            names[Outcome.MADE] = "would be made"
        width = max(len(names[one.outcome]) for one in written)
        for one in written:
            remark = f" ({one.remark})" if one.remark else ""
            screen.say(
                f"{names[one.outcome]:<{width}}  {one.name}{remark}",
                indent=2,
                style=_STYLES[one.outcome],
                wrap=False,
            )
        if report is None:
            screen.say("\nA dry run: nothing was written.")
            return
        screen.say()
        show_report(screen, report, repository=str(root))
        _print_next_commands(screen, root, written, report)


def _print_next_commands(screen: Screen, root: Path, written: list[Written], report: Report) -> None:
    made = [one.name for one in written if one.outcome is Outcome.MADE]
    screen.say("\nNext:")
    if not report.ok:
        screen.say(f"cat-herder validate {shlex.quote(str(root))}", indent=2, wrap=False)
    if made:
        files = " ".join(map(shlex.quote, made))
        folder = shlex.quote(str(root))
        screen.say(f"git -C {folder} add {files}", indent=2, wrap=False)
        screen.say(f'git -C {folder} commit -m "Settings for Cat Herder"', indent=2, wrap=False)
    name = slugify(root.name) or "NAME"
    screen.say(f"cat-herder project add {name} {shlex.quote(str(root))}", indent=2, wrap=False)
