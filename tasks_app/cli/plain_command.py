"""The base class of all commands: no options of Django, and errors of one line."""

from __future__ import annotations

import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from tasks_app.core.error_line import error_line


class PlainCommand(BaseCommand):
    # They take a second of CPU time and find faults of programmers: `make lint` runs them.
    requires_system_checks: list[str] = []
    suppressed_base_arguments = {
        "--version", "--verbosity", "--settings", "--pythonpath", "--traceback", "--force-color",
        "--skip-checks",
    }  # fmt: skip

    def execute(self, *args: Any, **options: Any) -> str | None:
        try:
            return super().execute(*args, **options)
        except CommandError as error:
            if not getattr(self, "_called_from_command_line", False):
                raise
            self.write_error(str(error), options)
            sys.exit(error.returncode)

    def write_error(self, message: str, options: dict[str, Any]) -> None:
        line = error_line(message, self.stderr, no_color=options["no_color"])
        self.stderr.write(line, style_func=str, ending="")
