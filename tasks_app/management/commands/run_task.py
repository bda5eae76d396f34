"""`cat-herder run_task`: run one task in the terminal."""

from __future__ import annotations

import re
from typing import Any

from django.core.management.base import CommandParser

from tasks_app.cli.command import TerminalCommand
from tasks_app.cli.lookup import acting_principal, add_user_argument, find_task, find_unfinished_task
from tasks_app.cli.options import (
    add_creation_arguments,
    add_terminal_arguments,
    chosen_project,
    creation_options,
    refuse_creation_options,
    resolve_path,
)
from tasks_app.cli.task_session import run_task_locally
from tasks_app.cli.terminal import Screen
from tasks_app.config.task_file import read_task_file
from tasks_app.core.amounts import dollars, duration_in_words
from tasks_app.core.errors import BadInput
from tasks_app.models import Project, Task
from tasks_app.permissions import Principal, tasks_visible_to
from tasks_app.schemas.usage import BudgetOut, ForecastOut, HasForecast, forecast_of
from tasks_app.services.tasks import create_task


class Command(TerminalCommand):
    help = """\
Runs a task in this terminal and shows what the agent does.

When the agent asks, the question is shown and an answer is read: a number or the name of an option
chooses it, several are separated by commas where several may be chosen, anything else is your
own answer. The form in the browser stays open meanwhile; the first answer wins.

Ctrl+C while the agent works interrupts the task; at the prompt it leaves the task waiting. Either
way the same command resumes the task. A second Ctrl+C stops immediately."""
    examples = """\
exit codes: 0 done, 1 failed or cancelled, 2 wrong usage, 3 waiting for an answer, 130 interrupted

examples:
  cat-herder run_task tasks/rounding.md --project billing
  cat-herder run_task tasks/rounding.md --project billing --threshold 5
  cat-herder run_task tasks/rounding.md --project billing --ask ann --ask payments
  cat-herder run_task 12                               resume task 12
  cat-herder run_task tasks/rounding.md --project billing --no-input --json > result.json
  echo 2 | cat-herder run_task 12                      one line for each question"""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "task",
            metavar="PATH|ID",
            help="a task file (Markdown, front matter possible; looked for here, then in the project's "
            "repository), or the id of a task. An unfinished task of the file is resumed",
        )
        add_creation_arguments(parser, what="task", source="path")
        add_terminal_arguments(parser)
        add_user_argument(parser)

    def work(self, options: dict[str, Any]) -> int:
        self._screen = self.screen_for(options)
        self._forecast: HasForecast | None = None
        principal = acting_principal(options["username"])
        task = self._find_or_create(options, principal)
        code = run_task_locally(task, principal, self._screen, may_prompt=not options["no_input"])
        if options["json"]:
            self.write_outcome(task, code, forecast=self._forecast)
        return code

    def _find_or_create(self, options: dict[str, Any], principal: Principal) -> Task:
        project = chosen_project(options, principal)
        if re.fullmatch(r"#?[0-9]+", options["task"]):
            return _find_by_id(options, principal, project)
        if project is None:
            raise BadInput("Name the project of the task: --project NAME.")
        return self._find_or_create_by_path(options, principal, project)

    def _find_or_create_by_path(
        self, options: dict[str, Any], principal: Principal, project: Project
    ) -> Task:
        path = resolve_path(options["task"], project)
        text, _ = read_task_file(path)
        like = creation_options(options)
        earlier = None
        if not options["new"]:
            earlier = find_unfinished_task(project, slug=path.stem, text=text, **like)
        if earlier:
            self._screen.say(f"Resuming task {earlier.pk} of this file (--new creates another).")
            return earlier
        task = create_task(project, text, by=principal, where=str(path), slug=path.stem, **like)
        self._forecast = forecast_of(task)
        say_forecast(self._forecast, self._screen)
        return task


def _find_by_id(options: dict[str, Any], principal: Principal, project: Project | None) -> Task:
    refuse_creation_options(options, what="task", source="file")
    tasks = tasks_visible_to(principal)
    if project:
        tasks = tasks.filter(project=project)
    return find_task(options["task"].removeprefix("#"), tasks=tasks)


def say_forecast(known: HasForecast, screen: Screen) -> None:
    """Print what is known; nothing without figures and budgets."""
    if sentence := _forecast_sentence(known.forecast):
        screen.say(sentence)
    _say_budget("Project budget", known.budgets.project, screen)
    _say_budget("Your budget", known.budgets.person, screen)


def _forecast_sentence(forecast: ForecastOut) -> str:
    cost, working = forecast.cost_usd, forecast.working_seconds
    if cost is None or working is None:
        return ""
    return (
        f"{forecast.tasks} tasks of this pipeline done: median {dollars(cost.median)} and"
        f" {duration_in_words(working.median)} of work, 9 of 10 up to {dollars(cost.p90)} and"
        f" {duration_in_words(working.p90)}."
    )


def _say_budget(name: str, budget: BudgetOut | None, screen: Screen) -> None:
    if budget is None:
        return
    spent = f"{name}: {dollars(budget.spent_usd)} of {dollars(budget.budget_usd)} spent this month (UTC)."
    if budget.used_up:
        screen.say(f"{spent} No run begins until next month, or until it is raised.", style="yellow")
    else:
        screen.say(spent)
