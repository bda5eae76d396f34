"""`cat-herder open`: open the page of a task, a sequence, a question or a project."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser
from django.urls import reverse

from tasks_app.absolute_urls import absolute_url
from tasks_app.cli.command import Exit, TerminalCommand
from tasks_app.cli.lookup import acting_principal, add_user_argument, find_question, find_task_or_sequence
from tasks_app.cli.terminal import open_page
from tasks_app.permissions import Principal
from tasks_app.services.commands import page_url, question_url


class Command(TerminalCommand):
    help = "Prints the address of a page of the portal, and opens it if this machine has a browser."
    examples = """\
examples:
  cat-herder open                 the list of tasks
  cat-herder open 12
  cat-herder open billing/rounding
  cat-herder open sequence:3
  cat-herder open question:7"""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "thing", metavar="TASK|sequence:ID|question:ID", nargs="?", help="a task's id, or PROJECT/TASK"
        )
        add_user_argument(parser)

    def work(self, options: dict[str, Any]) -> int:
        principal = acting_principal(options["username"])
        open_page(_url(options["thing"] or "", principal), self.screen_for(options))
        return Exit.DONE


def _url(thing: str, principal: Principal) -> str:
    if not thing:
        return absolute_url(reverse("tasks"))
    if thing.startswith("question:"):
        return question_url(find_question(thing.removeprefix("question:"), principal=principal))
    return page_url(find_task_or_sequence(thing, principal=principal))
