"""`cat-herder backup FILE`: write all data of the portal to one file while it runs."""

from __future__ import annotations

import getpass
import sys
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from tasks_app.cli.command import Exit, TerminalCommand
from tasks_app.cli.terminal import Screen
from tasks_app.history.audit import record
from tasks_app.models import Action
from tasks_app.operations.archive import BackupSummary, stream_backup, write_backup


class Command(TerminalCommand):
    help = """\
Writes everything that cannot be recreated into one file, while the portal runs: all rows of the database
as they are at one moment, the repositories with every recorded commit, long answers, and the secret key.

Workspaces are left out: a task goes on in a new one, made from its last recorded commit. The file holds
secrets and can be read by this user alone. It can be restored on SQLite and on PostgreSQL."""
    examples = """\
examples:
  cat-herder backup /var/backups/cat-herder-$(date +%F).tar.gz
  cat-herder backup - | ssh backups 'cat > cat-herder.tar.gz'
  cat-herder restore --list /var/backups/cat-herder-2026-03-01.tar.gz"""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("file", metavar="FILE", help="the file to write; - for standard output")
        parser.add_argument("--force", action="store_true", help="replace an existing file")
        parser.add_argument(
            "--without-secret-key", action="store_true",
            help="leave the secret key out; saved webhook URLs and credentials need it to be decrypted",
        )  # fmt: skip
        parser.add_argument("--quiet", action="store_true", help="print only warnings")
        parser.add_argument("--json", action="store_true", help="print what was written as JSON")

    def work(self, options: dict[str, Any]) -> int:
        self._quiet = options["quiet"]
        self._screen = Screen.errors(no_color=options["no_color"])
        with_key = not options["without_secret_key"]
        if options["file"] == "-":
            written = stream_backup(sys.stdout.buffer, say=self._say, with_key=with_key)
            sys.stdout.buffer.flush()
        else:
            target = Path(options["file"]).expanduser().absolute()
            written = write_backup(target, say=self._say, overwrite=options["force"], with_key=with_key)
        record(
            Action.BACKUP_MADE,
            actor_name=getpass.getuser(),
            subject="standard output" if options["file"] == "-" else options["file"],
            with_secret_key=with_key,
        )
        for warning in written.warnings:
            self._screen.say(f"Warning: {warning}", style="yellow")
        self._print_summary(written, options)
        return Exit.DONE

    def _print_summary(self, written: BackupSummary, options: dict[str, Any]) -> None:
        counts = {"rows": sum(written.rows.values()), "repositories": len(written.repositories)}
        if options["json"] and options["file"] != "-":
            self.write_json({**counts, "bytes": written.size, "warnings": [*written.warnings]})
            return
        said = f"{counts['rows']:,} rows and {counts['repositories']} repositories"
        if written.size:
            said += f", {written.size / 1e6:,.1f} MB"
        self._say(f"{said}.")

    def _say(self, text: str) -> None:
        if not self._quiet:
            self._screen.say(text)
