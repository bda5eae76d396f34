"""`cat-herder stats`: show the usage of all runs by model, user or project (P11)."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from tasks_app.cli.command import Exit, TerminalCommand
from tasks_app.cli.tables import usage_table
from tasks_app.core.types import Usage
from tasks_app.schemas.base import UsageOut
from tasks_app.schemas.usage import UsageOfAllRuns, most_expensive_first
from tasks_app.services.usage.usage import By, usage_of_all_time

#: Labels of the empty name.
_EMPTY_NAMES = {By.MODEL: "not known", By.USER: "nobody", By.PROJECT: "none"}


class Command(TerminalCommand):
    help = """\
Shows the tokens and dollars that all runs used, by model, by the user who created the task, or by project;
the most expensive comes first. Cached tokens are included in the input."""
    examples = """\
examples:
  cat-herder stats
  cat-herder stats --by project
  cat-herder stats --by user --json"""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--by", choices=[by.name.lower() for by in By], default="model", help="default: model"
        )
        parser.add_argument("--json", action="store_true", help="as JSON")

    def work(self, options: dict[str, Any]) -> int:
        by = By[options["by"].upper()]
        parts = dict(most_expensive_first(usage_of_all_time(by)))
        total = sum(parts.values(), Usage())
        if options["json"]:
            by_name = {name: UsageOut.from_row(usage) for name, usage in parts.items()}
            self.write_json(UsageOfAllRuns(by=options["by"], total=UsageOut.from_row(total), parts=by_name))
            return Exit.DONE
        screen = self.screen_for(options)
        if not parts:
            screen.say("No task has run yet.")
        else:
            rows = [(name or _EMPTY_NAMES[by], usage) for name, usage in parts.items()]
            screen.table(usage_table(by.name, [*rows, ("total", total)]))
        return Exit.DONE
