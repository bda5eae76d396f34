"""`cat-herder installation`: show whether the data directory and the database belong together."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from tasks_app.cli.command import Exit, TerminalCommand, require_tables
from tasks_app.core.types import JsonObject
from tasks_app.management.preconditions import exclusive_data_dir
from tasks_app.services.data_directory import Ownership, Verdict, adopt, ownership, set_aside


class Command(TerminalCommand):
    help = """\
Shows whether the data directory and the database belong to the same installation. Neither is used with one
of another installation: an agent would find the files of another task. After one of them was restored or
moved, `adopt` and `set-aside` say what to do. Stop the portal before."""
    examples = """\
exit codes: 0 they belong together, 1 they do not, 2 wrong usage

examples:
  cat-herder installation
  cat-herder installation adopt          this data directory does belong to this database
  cat-herder installation set-aside      start over: move the old work aside, delete nothing"""
    requires_tables = False

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "action",
            nargs="?",
            choices=("show", "adopt", "set-aside"),
            default="show",
            help="what to do (default: show)",
        )
        parser.add_argument("--json", action="store_true", help="print the outcome as JSON")

    def work(self, options: dict[str, Any]) -> int:
        if options["action"] == "set-aside":
            with exclusive_data_dir():
                moved = set_aside()
            self.stderr.write(f"The old work is in {moved}. Nothing was deleted.")
        elif options["action"] == "adopt":
            require_tables()
            with exclusive_data_dir():
                adopt()
        found = ownership()
        if options["json"]:
            self.write_json(_as_json(found))
        else:
            self.stdout.write(
                f"Data directory  {found.folder}  ({found.shown_work or 'no work'})\n"
                f"                {found.folder_id or 'no id yet'}\n"
                f"Database        {found.database}\n"
                f"                {found.database_id or 'no id yet'}\n"
                f"{found.verdict.value}"
            )
        if found.verdict in (Verdict.SAME, Verdict.NEW):
            return Exit.DONE
        return Exit.FAILED


def _as_json(found: Ownership) -> JsonObject:
    return {
        "data_directory": str(found.folder),
        "data_directory_id": str(found.folder_id or ""),
        "database": found.database,
        "database_id": str(found.database_id or ""),
        "work": dict(found.work),
        "state": found.verdict.name.lower(),
        "meaning": found.verdict.value,
    }
