"""`manage.py init_project`: a repository gets what tasks need, and keeps what it has (P12)."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import CommandParser
from django.utils.text import slugify

from tasks_app.cli.command import Exit, TerminalCommand
from tasks_app.cli.validation_report import show_report
from tasks_app.cli.repository import folder, ground
from tasks_app.cli.screen import Screen
from tasks_app.config.importing import Imported, convert, read_exported, to_yaml
from tasks_app.config.starter import Choices, Outcome, Written, starter_files, write_all
from tasks_app.config.validation import Report, is_repository, validate
from tasks_app.core.errors import BadInput
from tasks_app.prompting import SHIPPED_PROMPTS
from tasks_app.reporting.schemas.projects import FileWritten, InitOutcome, ReportOut
from tasks_app.sandbox import SandboxMode, detect

_STYLES = {Outcome.MADE: "green", Outcome.THERE: "dim", Outcome.LEFT: "yellow"}


class Command(TerminalCommand):
    help = """\
Prepares a repository for Cat Herder: a commented cat-herder.yaml, a first task, and the permission for
the agent to ask. No file that is there is changed. At the end the result is validated."""
    examples = """\
exit codes: 0 done, 1 the result has errors, 2 wrong use

examples:
  manage.py init_project ~/code/billing --dry-run
  manage.py init_project ~/code/billing --prompts
  manage.py init_project ~/code/billing --import cat-herder.config.js"""
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
        parser.add_argument(
            "--import",
            dest="source",
            metavar="FILE",
            help="make cat-herder.yaml from a cat-herder.config.js; the file is run, by node in the sandbox",
        )
        parser.add_argument(
            "--trust", action="store_true", help="run that file even where there is no sandbox"
        )
        parser.add_argument("--dry-run", action="store_true", help="only say what would be made")
        parser.add_argument("--force", action="store_true", help="also in a folder that is no git repository")
        parser.add_argument("--json", action="store_true", help="tell the outcome as JSON")

    def work(self, options: dict[str, Any]) -> int:
        self.stdout.ending = ""
        root = folder(options["path"])
        if not options["force"] and not is_repository(root):
            raise BadInput("this is not the top folder of a git repository; --force goes on", where=str(root))
        imported = _imported(root, options) if options["source"] else None
        choices = Choices(
            settings=to_yaml(imported, source=Path(options["source"]).name) if imported else "",
            prompts=options["prompts"],
            schema=options["schema"],
        )
        here = ground(root)
        # All texts first: what cannot be read stops everything before the first file is made.
        written = write_all(list(starter_files(here, choices)), here, dry_run=options["dry_run"])
        report = None if options["dry_run"] else _validated(root)
        self._tell(root, written, imported.notes if imported else (), report, options)
        return Exit.DONE if report is None or report.ok else Exit.FAILED

    def _tell(
        self,
        root: Path,
        written: list[Written],
        notes: tuple[str, ...],
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
                    not_carried_over=list(notes),
                    validation=ReportOut.of(report) if report else None,
                )
            )
            return
        screen = Screen(self.stdout, no_color=options["no_color"])
        _show_files(screen, written, notes)
        if report is None:
            screen.say("\nA dry run: nothing was written.")
            return
        screen.say()
        show_report(screen, report, place=str(root))
        _show_next(screen, root, written, report)


def _imported(root: Path, options: dict[str, Any]) -> Imported:
    """The settings in the file to import. Raises BadInput rather than run it without a sandbox unasked."""
    path = _found(options["source"], root)
    sandbox = detect(SandboxMode(settings.ENVIRONMENT.sandbox), hidden=[Path(settings.DATA_DIR)])
    if not sandbox.active and not options["trust"]:
        raise BadInput(
            "this file is a program, and there is no sandbox to run it in "
            f"({sandbox.reason.rstrip('.')}). Read it, then say --trust to run it with your own powers.",
            where=str(path),
        )
    return convert(read_exported(path, repository=_visible(path, root), sandbox=sandbox), repository=root)


def _found(named: str, root: Path) -> Path:
    """The file from here, else from the top of the repository."""
    here, there = Path(named).expanduser(), root / named
    path = here if here.is_file() or not there.is_file() else there
    if not path.is_file():
        raise BadInput("there is no such file to import", where=named)
    return path.resolve()


def _visible(path: Path, root: Path) -> Path:
    """What the file may see: the repository that it is part of, else itself alone."""
    return root if path.is_relative_to(root) and is_repository(root) else path


def _validated(root: Path) -> Report:
    # What was just made cannot be committed yet; the next command that is told does that.
    threshold = settings.ENVIRONMENT.threshold
    return validate(root, prompts=SHIPPED_PROMPTS, threshold=threshold, with_git=False)


def _show_files(screen: Screen, written: list[Written], notes: tuple[str, ...]) -> None:
    width = max(len(one.outcome) for one in written)
    for one in written:
        remark = f" ({one.remark})" if one.remark else ""
        screen.say(
            f"{one.outcome:<{width}}  {one.name}{remark}", indent=2, style=_STYLES[one.outcome], wrap=False
        )
    if notes:
        screen.say("\nNot carried over as it was:")
    for note in notes:
        screen.say(note, indent=2)


def _show_next(screen: Screen, root: Path, written: list[Written], report: Report) -> None:
    made = [one.name for one in written if one.outcome is Outcome.MADE]
    screen.say("\nNext:")
    if not report.ok:
        screen.say(f"manage.py validate {shlex.quote(str(root))}", indent=2, wrap=False)
    if made:
        files = " ".join(map(shlex.quote, made))
        place = shlex.quote(str(root))
        screen.say(f"git -C {place} add {files}", indent=2, wrap=False)
        screen.say(f'git -C {place} commit -m "Settings for Cat Herder"', indent=2, wrap=False)
    name = slugify(root.name) or "NAME"
    screen.say(f"manage.py project add {name} {shlex.quote(str(root))}", indent=2, wrap=False)
