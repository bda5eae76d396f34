"""`cat-herder log`: write the log of a task."""

from __future__ import annotations

import time
from itertools import chain
from typing import Any

from django.core.management.base import CommandParser

from tasks_app.cli.command import Exit, TerminalCommand
from tasks_app.cli.lookup import find_step, find_task
from tasks_app.history.events.logs import LogKind, follow_log, render_log
from tasks_app.models import Task

#: Seconds between two readings of the rows.
_POLL_SECONDS = 0.3


class Command(TerminalCommand):
    help = """\
Writes the log of a task, or of one of its steps, to stdout. Times are UTC.

output: what the agent said, questions, answers, checks and errors. reasoning: the whole dialogue
with every tool call. raw: what the agent's process sent, one JSON object per line."""
    examples = """\
examples:
  cat-herder log 12
  cat-herder log 12 -f                            until the task has ended or Ctrl+C
  cat-herder log billing/rounding --step implement --kind reasoning
  cat-herder log 12 --step 2 --kind raw | jq .kind"""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("task", metavar="TASK", help="the task's id, or PROJECT/TASK")
        parser.add_argument("--step", metavar="S", help="one step only, by its name or position")
        parser.add_argument(
            "--kind", choices=[kind.value for kind in LogKind], default=LogKind.OUTPUT.value, help="which log"
        )

        parser.add_argument(
            "-f", "--follow", action="store_true", help="continue with new entries until the task has ended"
        )

    def work(self, options: dict[str, Any]) -> int:
        task = find_task(options["task"], tasks=Task.objects.all())
        kind, step = LogKind(options["kind"]), None
        if options["step"]:
            step = find_step(task, options["step"])
        if options["follow"]:
            pieces = follow_log(task, kind, step=step, pause=self._pause)
        elif step:
            pieces = render_log(step, kind)
        else:
            pieces = chain.from_iterable(render_log(one, kind) for one in task.steps.all())
        for piece in pieces:
            self.stdout.write(piece, ending="")
        return Exit.DONE

    def _pause(self) -> None:
        self.stdout.flush()
        time.sleep(_POLL_SECONDS)
