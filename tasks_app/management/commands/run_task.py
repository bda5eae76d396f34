"""`manage.py run_task`: one task, at the terminal."""

from __future__ import annotations

import re
from typing import Any

from django.core.management.base import CommandParser

from tasks_app.cli.command import TerminalCommand
from tasks_app.cli.lookup import task_meant, unended_task
from tasks_app.cli.run_locally import work_here
from tasks_app.cli.options import (
    add_here_arguments,
    add_new_arguments,
    place_named,
    project_chosen,
    refuse_new_options,
    wanted,
)
from tasks_app.cli.acting_user import acting_principal, add_person_argument
from tasks_app.config.task_file import read_task_file
from tasks_app.core.errors import BadInput
from tasks_app.models import Project, Task
from tasks_app.permissions import Principal, tasks_visible_to
from tasks_app.services.tasks import create_task


class Command(TerminalCommand):
    help = """\
Works on a task here at the terminal and shows what the agent does.

When the agent asks, the question is shown and an answer is read: a number or the name of an option
chooses it, several are separated by commas where several may be chosen, anything else is an answer
of your own. The web form stays open meanwhile; whoever answers first wins and the other is told.

Ctrl+C while the agent works interrupts the task; at the prompt it leaves the task waiting. Either
way the same command goes on from there. A second Ctrl+C leaves at once."""
    examples = """\
exit codes: 0 done, 1 failed or cancelled, 2 wrong use, 3 waiting for an answer, 130 interrupted

examples:
  manage.py run_task tasks/rounding.md --project billing
  manage.py run_task tasks/rounding.md --project billing --threshold 5
  manage.py run_task 12                               go on with task 12
  manage.py run_task tasks/rounding.md --project billing --no-input --json > result.json
  echo 2 | manage.py run_task 12                      one line for each question"""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "task",
            metavar="PATH|ID",
            help="a task file (Markdown, front matter possible; looked for here, then in the project's "
            "repository), or the id of a task. A file whose task has not ended yet goes on with that task",
        )
        add_new_arguments(parser, what="task", source="path")
        add_here_arguments(parser)
        add_person_argument(parser)

    def work(self, options: dict[str, Any]) -> int:
        self._screen = self.screen_for(options)
        principal = acting_principal(options["username"])
        task = self._task(options, principal)
        code = work_here(task, principal, self._screen, may_prompt=not options["no_input"])
        if options["json"]:
            self.write_outcome(task, code)
        return code

    def _task(self, options: dict[str, Any], principal: Principal) -> Task:
        project = project_chosen(options, principal)
        if re.fullmatch(r"#?[0-9]+", options["task"]):
            return _by_id(options, principal, project)
        if project is None:
            raise BadInput("Say which project the task is for: --project NAME.")
        return self._by_path(options, principal, project)

    def _by_path(self, options: dict[str, Any], principal: Principal, project: Project) -> Task:
        path = place_named(options["task"], project)
        text, _ = read_task_file(path)
        like = wanted(options)
        earlier = None if options["new"] else unended_task(project, slug=path.stem, text=text, **like)
        if earlier:
            self._screen.say(f"Going on with task {earlier.pk} of this file (--new makes another).")
            return earlier
        return create_task(project, text, by=principal, where=str(path), slug=path.stem, **like)


def _by_id(options: dict[str, Any], principal: Principal, project: Project | None) -> Task:
    refuse_new_options(options, what="task", source="file")
    tasks = tasks_visible_to(principal)
    return task_meant(
        options["task"].removeprefix("#"), tasks=tasks.filter(project=project) if project else tasks
    )
