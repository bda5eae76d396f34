"""`manage.py restore FILE`: an installation from a backup."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from tasks_app.cli.command import Exit, TerminalCommand
from tasks_app.cli.screen import Screen
from tasks_app.core.types import Json
from tasks_app.operations.restore import Restored, restore, summary_of


class Command(TerminalCommand):
    help = """\
Makes the data directory and the database what they were when the backup was made. The portal must be stopped.
The configured database may be another one than that of the backup, and of another kind.

The file is read and checked to its end first, and everything is put together beside what is there: if it
cannot be used, nothing is changed. What was there before is moved aside and never deleted. Tasks that waited
go on waiting; tasks that ran are taken up as after a crash. Everybody logs in again."""
    examples = """\
examples:
  manage.py restore --list cat-herder.tar.gz          what is in it
  manage.py restore cat-herder.tar.gz                 into a new installation
  manage.py restore --replace cat-herder.tar.gz       in the place of what is there
  DATABASE_URL=postgresql://… manage.py restore cat-herder.tar.gz"""
    requires_tables = False

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", metavar="FILE", help="what `manage.py backup` wrote")
        parser.add_argument(
            "--replace", action="store_true", help="move the data that are here aside, then restore"
        )
        parser.add_argument("--list", action="store_true", help="check the file, say what is in it, and end")
        parser.add_argument("--json", action="store_true", help="what was restored, as JSON")

    def work(self, options: dict[str, Any]) -> int:
        path = Path(options["file"]).expanduser().absolute()
        if options["list"]:
            self.write_json(summary_of(path))
            return Exit.DONE
        screen = Screen.errors(no_color=options["no_color"])
        restored = restore(path, say=screen.say, replace=options["replace"])
        for warning in restored.warnings:
            screen.say(f"Warning: {warning}", style="yellow")
        self._conclude(restored, options)
        return Exit.DONE

    def _conclude(self, restored: Restored, options: dict[str, Any]) -> None:
        if options["json"]:
            counts = {"rows": restored.rows, "repositories": restored.repositories}
            more: dict[str, Json] = {"aside": restored.aside, "warnings": restored.warnings}
            self.write_json({"made_at": restored.made_at, **counts, **more})
            return
        self.stdout.write(
            f"Restored as of {restored.made_at}: {restored.rows:,} rows and "
            f"{restored.repositories} repositories."
        )
        for place in restored.aside:
            self.stdout.write(f"What was here before is in {place}; remove it when it is no longer needed.")
        self.stdout.write("Start the portal with `make up`.")
