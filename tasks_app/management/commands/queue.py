"""`cat-herder queue`: what waits, in which order and for what; change a task's priority."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from tasks_app.cli.command import Exit, TerminalCommand
from tasks_app.cli.lookup import acting_principal, add_user_argument, find_task
from tasks_app.cli.tables import queue_table
from tasks_app.cli.terminal import Screen
from tasks_app.core.amounts import counted
from tasks_app.core.errors import BadInput
from tasks_app.permissions import Principal, tasks_visible_to
from tasks_app.schemas.workers import QueueOut
from tasks_app.services.tasks import change_priority
from tasks_app.services.workers.queue import queue_sentence


class Command(TerminalCommand):
    help = """\
Shows the tasks that wait, in the order of their turns, and what each waits for; or changes the priority of
one. Priority orders a person's own tasks, and is a head start of about two turns among other people's."""
    examples = """\
examples:
  cat-herder queue
  cat-herder queue --json
  cat-herder queue billing/rounding --priority high"""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("task", metavar="TASK", nargs="?", help="a task's id, or PROJECT/TASK")
        parser.add_argument("--priority", metavar="PRIORITY", help="set it: low, normal or high")
        parser.add_argument("--json", action="store_true", help="as JSON")
        add_user_argument(parser)

    def work(self, options: dict[str, Any]) -> int:
        principal = acting_principal(options["username"])
        if options["task"]:
            self._show_task(options["task"], options["priority"], principal)
        elif options["priority"] is not None:
            raise BadInput("say which task: cat-herder queue TASK --priority high", where="--priority")
        if options["json"]:
            self.write_json(QueueOut.seen_by(principal))
        elif not options["task"]:
            self._show_queue(principal, self.screen_for(options))
        return Exit.DONE

    def _show_task(self, name: str, priority: str | None, principal: Principal) -> None:
        task = find_task(name, tasks=tasks_visible_to(principal).select_related("project"))
        if priority is not None:
            change_priority(task, priority, by=principal)
            task.refresh_from_db()
        words = queue_sentence(task, principal) or "It does not wait in the queue."
        self.stderr.write(f"Task {task.pk}, {task.get_priority_display()} priority. {words}")

    def _show_queue(self, principal: Principal, screen: Screen) -> None:
        found = QueueOut.seen_by(principal)
        screen.say(
            f"{found.waiting} waiting, {found.running} running; {found.busy} of {found.slots} slots in use, "
            f"{counted(found.workers, 'worker')}"
        )
        if found.items:
            screen.table(queue_table(found.items))
