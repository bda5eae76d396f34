"""`manage.py clean_workspaces`: free the disk space of tasks that ended long ago."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from tasks_app.core.errors import CatHerderError
from tasks_app.engine.workspaces.cleaning import Cleaned, clean_workspaces
from tasks_app.engine.workspaces.housekeeping import Freed, prune_repositories, remove_unused_folders
from tasks_app.operations import local_sandbox
from tasks_app.services.data_directory import require_own_data_dir


class Command(BaseCommand):
    help = (
        "Removes the workspaces of tasks that ended long ago. Their work stays in the portal's repository, "
        "and a task that is resumed later gets a new workspace. Then removes what the repositories no longer "
        "need and, on a worker host, the folders of removed projects."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--older-than", type=float, default=14, metavar="DAYS", help="default: 14 days")
        parser.add_argument(
            "--dry-run", action="store_true", help="print what would be removed, and remove nothing"
        )
        parser.add_argument(
            "--json", action="store_true", help="one JSON object per workspace, folder or repository"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            if not settings.ENVIRONMENT.worker_token:  # a worker host frees its own disk
                require_own_data_dir()
        except CatHerderError as error:
            raise CommandError(str(error), returncode=2) from None
        total = 0
        for found in self._freed(timedelta(days=options["older_than"]), dry_run=options["dry_run"]):
            total += found.freed
            self.stdout.write(
                _format_json(found) if options["json"] else _format_line(found, dry_run=options["dry_run"])
            )
        if not options["json"]:
            self.stdout.write(f"{total / 1e6:,.1f} MB {'would be ' if options['dry_run'] else ''}freed.")

    def _freed(self, older_than: timedelta, *, dry_run: bool) -> Iterator[Cleaned | Freed]:
        sandbox = local_sandbox.sandbox()
        yield from clean_workspaces(older_than=older_than, sandbox=sandbox, dry_run=dry_run)
        yield from remove_unused_folders(dry_run=dry_run)
        if not dry_run:
            yield from prune_repositories()


def _format_line(found: Cleaned | Freed, *, dry_run: bool) -> str:
    what = f"task {found.task.pk} “{found.task}”" if isinstance(found, Cleaned) else str(found.path)
    if found.kept:
        return f"kept     {what}: {found.kept}"
    verb = "would go" if dry_run else "removed " if isinstance(found, Cleaned) else "freed   "
    line = f"{verb} {what}: {found.freed / 1e6:,.1f} MB"
    if isinstance(found, Cleaned) and found.late:
        line += f"\n         Changes made after the last check are kept beside it: {found.late}"
    return line


def _format_json(found: Cleaned | Freed) -> str:
    row: dict[str, Any] = {"path": str(found.path), "freed": found.freed, "kept": found.kept}
    if isinstance(found, Cleaned):
        row = {"task": found.task.pk, **row, "late": found.late}
    return json.dumps(row)
