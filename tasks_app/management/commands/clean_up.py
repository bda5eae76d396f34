"""`cat-herder clean_up`: free what tasks that ended long ago take on the disk or in the database."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from itertools import chain
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError, CommandParser

from tasks_app.cli.plain_command import PlainCommand
from tasks_app.core.errors import CatHerderError
from tasks_app.engine.logs.removal import remove_logs
from tasks_app.engine.workspaces.cleaning import Cleaned, clean_workspaces
from tasks_app.engine.workspaces.housekeeping import Freed, prune_repositories, remove_unused_folders
from tasks_app.operations import local_sandbox
from tasks_app.services.data_directory import require_own_data_dir

#: The bytes that were freed, a line about it, and the same as JSON.
Row = tuple[int, str, dict[str, Any]]


class Command(PlainCommand):
    help = (
        "`workspaces` removes the workspaces of tasks that ended long ago. Their work stays in the portal's "
        "repository, and a task that is resumed later gets a new workspace. Then it removes what the "
        "repositories no longer need and, on a worker host, the folders of removed projects. "
        "`logs` removes the logs and transcripts of such tasks from the database. Tasks, runs, questions, "
        "answers, decisions, results and the audit log stay."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("what", choices=("workspaces", "logs"))
        parser.add_argument(
            "--older-than", type=float, metavar="DAYS",
            help="default: 14 days for workspaces, CATHERDER_KEEP_LOGS_DAYS for logs",
        )  # fmt: skip
        parser.add_argument(
            "--dry-run", action="store_true", help="print what would be removed, and remove nothing"
        )
        parser.add_argument("--json", action="store_true", help="one JSON object per line")

    def handle(self, *args: Any, **options: Any) -> None:
        logs, dry_run = options["what"] == "logs", options["dry_run"]
        days = options["older_than"]
        if days is None:
            days = settings.ENVIRONMENT.keep_logs_days if logs else 14
        if logs and not days and options["older_than"] is None:
            raise CommandError(
                "Say how old: --older-than DAYS, or set CATHERDER_KEEP_LOGS_DAYS.", returncode=2
            )
        if not 0 <= days <= 36_500:
            raise CommandError("--older-than is a number of days from 0 to 36500.", returncode=2)
        try:
            if logs or not settings.ENVIRONMENT.worker_token:  # a worker host frees its own disk
                require_own_data_dir()
        except CatHerderError as error:
            raise CommandError(str(error), returncode=2) from None
        total, remove = 0, _remove_logs if logs else _free_disk
        for freed, line, row in remove(timedelta(days=days), dry_run=dry_run):
            total += freed
            self.stdout.write(json.dumps(row) if options["json"] else line)
        if not options["json"]:
            self.stdout.write(f"{total / 1e6:,.1f} MB {'would be ' if dry_run else ''}freed.")


def _remove_logs(older_than: timedelta, *, dry_run: bool) -> Iterator[Row]:
    verb = "would go" if dry_run else "removed "
    for found in remove_logs(older_than=older_than, dry_run=dry_run):
        line = (
            f"{verb} log of task {found.task.pk} “{found.task}”: {found.events:,} events, "
            f"{found.lines:,} lines of transcripts, {found.size / 1e6:,.2f} MB"
        )
        row = {"task": found.task.pk, "events": found.events, "lines": found.lines, "freed": found.size}
        yield found.size, line, row


def _free_disk(older_than: timedelta, *, dry_run: bool) -> Iterator[Row]:
    sandbox = local_sandbox.sandbox()
    found: Iterator[Cleaned | Freed] = chain(
        clean_workspaces(older_than=older_than, sandbox=sandbox, dry_run=dry_run),
        remove_unused_folders(dry_run=dry_run),
        () if dry_run else prune_repositories(),
    )
    for one in found:
        row: dict[str, Any] = {"path": str(one.path), "freed": one.freed, "kept": one.kept}
        what, verb = str(one.path), "freed   "
        if isinstance(one, Cleaned):
            row |= {"task": one.task.pk, "late": one.late}
            what, verb = f"task {one.task.pk} “{one.task}”", "removed "
        if dry_run:
            verb = "would go"
        line = f"{verb} {what}: {one.freed / 1e6:,.1f} MB"
        if one.kept:
            line = f"kept     {what}: {one.kept}"
        elif isinstance(one, Cleaned) and one.late:
            line += f"\n         Changes made after the last check are kept beside it: {one.late}"
        yield one.freed, line, row
