"""`cat-herder restore FILE`: restore an installation from a backup."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from tasks_app.cli.command import Exit, TerminalCommand
from tasks_app.cli.terminal import Screen
from tasks_app.core.types import Json
from tasks_app.operations.restore import Restored, restore, summary_of


class Command(TerminalCommand):
    help = """\
Restores the data directory and the database to the time of the backup. The portal must be stopped.
The configured database may be another one than that of the backup, and of another kind.

The file is checked completely first, and everything is prepared beside the existing data: if the file cannot
be used, nothing is changed. Existing data is moved aside and never deleted. Waiting tasks keep waiting, and
running tasks are recovered as after a crash. Everybody must log in again."""
    examples = """\
examples:
  cat-herder restore --list cat-herder.tar.gz          what is in it
  cat-herder restore cat-herder.tar.gz                 into a new installation
  cat-herder restore --replace cat-herder.tar.gz       replace the existing data
  DATABASE_URL=postgresql://… cat-herder restore cat-herder.tar.gz"""
    requires_tables = False

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", metavar="FILE", help="what `cat-herder backup` wrote")
        parser.add_argument(
            "--replace", action="store_true", help="move the existing data aside, then restore"
        )
        parser.add_argument("--list", action="store_true", help="check the file and show what is in it")
        parser.add_argument("--json", action="store_true", help="print what was restored as JSON")

    def work(self, options: dict[str, Any]) -> int:
        path = Path(options["file"]).expanduser().absolute()
        if options["list"]:
            self.write_json(summary_of(path))
            return Exit.DONE
        screen = Screen.errors(no_color=options["no_color"])
        restored = restore(path, say=screen.say, replace=options["replace"])
        for warning in restored.warnings:
            screen.say(f"Warning: {warning}", style="yellow")
        self._print_summary(restored, options)
        return Exit.DONE

    def _print_summary(self, restored: Restored, options: dict[str, Any]) -> None:
        if options["json"]:
            counts = {"rows": restored.rows, "repositories": restored.repositories}
            more: dict[str, Json] = {"aside": restored.aside, "warnings": restored.warnings}
            self.write_json({"made_at": restored.made_at, **counts, **more})
            return
        self.stdout.write(
            f"Restored as of {restored.made_at}: {restored.rows:,} rows and "
            f"{restored.repositories} repositories."
        )
        for path in restored.aside:
            self.stdout.write(f"The previous data is in {path}; remove it when you no longer need it.")
        self.stdout.write("Start the portal: cat-herder up")
