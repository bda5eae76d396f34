"""`cat-herder cancel`: cancel a task or a sequence."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from tasks_app.cli.command import Exit, TerminalCommand
from tasks_app.cli.lookup import acting_principal, add_user_argument, find_task_or_sequence
from tasks_app.models import Task
from tasks_app.schemas.sequences import outcome_of
from tasks_app.services.sequences import cancel_sequence
from tasks_app.services.tasks import cancel_task


class Command(TerminalCommand):
    help = """\
Cancels a task or a sequence: a running agent is stopped within seconds, and open questions are
withdrawn. The branch stays, and `retry` continues from there, with the same question if one was open."""
    examples = """\
exit codes: 0 cancelled, 1 it has ended already, 2 wrong usage

examples:
  cat-herder cancel 12
  cat-herder cancel billing/rounding
  cat-herder cancel sequence:3"""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("thing", metavar="TASK|sequence:ID", help="a task's id, or PROJECT/TASK")
        parser.add_argument("--json", action="store_true", help="print the outcome as JSON")
        add_user_argument(parser)

    def work(self, options: dict[str, Any]) -> int:
        principal = acting_principal(options["username"])
        thing = find_task_or_sequence(options["thing"], principal=principal)
        if isinstance(thing, Task):
            cancel_task(thing, by=principal)
        else:
            cancel_sequence(thing, by=principal)
        thing.refresh_from_db()
        if options["json"]:
            self.write_json(outcome_of(thing, exit_code=int(Exit.DONE)))
        else:
            self.stdout.write(f"Cancelled: {thing}\nResume with  cat-herder retry {options['thing']}")
        return Exit.DONE
