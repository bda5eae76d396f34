"""`manage.py clean_workspaces`: free the disk space of tasks that ended long ago."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from tasks_app.core.errors import CatHerderError
from tasks_app.engine.cleaning import Cleaned, clean_workspaces
from tasks_app.operations import local_sandbox
from tasks_app.services.data_directory import require_own_data_dir


class Command(BaseCommand):
    help = (
        "Removes the workspaces of tasks that ended long ago. Their work stays in the portal's repository, "
        "and a task that is resumed later gets a new workspace."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--older-than", type=float, default=14, metavar="DAYS", help="default: 14 days")
        parser.add_argument(
            "--dry-run", action="store_true", help="print what would be removed, and remove nothing"
        )
        parser.add_argument("--json", action="store_true", help="one JSON object per workspace")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            if not settings.ENVIRONMENT.worker_token:  # a worker host frees its own disk
                require_own_data_dir()
        except CatHerderError as error:
            raise CommandError(str(error), returncode=2) from None
        looked_at = clean_workspaces(
            older_than=timedelta(days=options["older_than"]),
            sandbox=local_sandbox.sandbox(),
            dry_run=options["dry_run"],
        )
        total = 0
        for cleaned in looked_at:
            total += cleaned.freed
            self.stdout.write(
                _format_json(cleaned)
                if options["json"]
                else _format_line(cleaned, dry_run=options["dry_run"])
            )
        if not options["json"]:
            self.stdout.write(f"{total / 1e6:,.1f} MB {'would be ' if options['dry_run'] else ''}freed.")


def _format_line(cleaned: Cleaned, *, dry_run: bool) -> str:
    if cleaned.kept:
        return f"kept     task {cleaned.task.pk} “{cleaned.task}”: {cleaned.kept}"
    verb = "would go" if dry_run else "removed "
    line = f"{verb} task {cleaned.task.pk} “{cleaned.task}”: {cleaned.freed / 1e6:,.1f} MB"
    if cleaned.late:
        line += f"\n         Changes made after the last check are kept beside it: {cleaned.late}"
    return line


def _format_json(cleaned: Cleaned) -> str:
    facts = {"path": str(cleaned.path), "freed": cleaned.freed, "kept": cleaned.kept, "late": cleaned.late}
    return json.dumps({"task": cleaned.task.pk, **facts})
