"""`manage.py remove_logs`: free the space that logs of tasks take in the database that ended long ago."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from tasks_app.core.errors import CatHerderError
from tasks_app.engine.logs.removal import RemovedLog, remove_logs
from tasks_app.services.data_directory import require_own_data_dir


class Command(BaseCommand):
    help = (
        "Removes the logs and transcripts of tasks that ended long ago from the database. Tasks, runs, "
        "questions, answers, decisions, results and the audit log stay."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--older-than",
            type=float,
            metavar="DAYS",
            help="default: CATHERDER_KEEP_LOGS_DAYS; needed if that is not set",
        )
        parser.add_argument(
            "--dry-run", action="store_true", help="print what would be removed, and remove nothing"
        )
        parser.add_argument("--json", action="store_true", help="one JSON object per task")

    def handle(self, *args: Any, **options: Any) -> None:
        days = options["older_than"]
        if days is None and not (days := settings.ENVIRONMENT.keep_logs_days):
            raise CommandError(
                "Say how old: --older-than DAYS, or set CATHERDER_KEEP_LOGS_DAYS.", returncode=2
            )
        if not 0 <= days <= 36_500:
            raise CommandError("--older-than is a number of days from 0 to 36500.", returncode=2)
        try:
            require_own_data_dir()
        except CatHerderError as error:
            raise CommandError(str(error), returncode=2) from None
        total = 0
        for found in remove_logs(older_than=timedelta(days=days), dry_run=options["dry_run"]):
            total += found.size
            self.stdout.write(
                _format_json(found) if options["json"] else _format_line(found, dry_run=options["dry_run"])
            )
        if not options["json"]:
            self.stdout.write(f"{total / 1e6:,.1f} MB {'would be ' if options['dry_run'] else ''}freed.")


def _format_line(found: RemovedLog, *, dry_run: bool) -> str:
    verb = "would go" if dry_run else "removed "
    return (
        f"{verb} log of task {found.task.pk} “{found.task}”: {found.events:,} events, "
        f"{found.lines:,} lines of transcripts, {found.size / 1e6:,.2f} MB"
    )


def _format_json(found: RemovedLog) -> str:
    return json.dumps(
        {"task": found.task.pk, "events": found.events, "lines": found.lines, "freed": found.size}
    )
