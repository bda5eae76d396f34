"""`manage.py status`: all tasks at a glance, or one in detail."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser
from django.db.models import Case, QuerySet, Value, When

from tasks_app import stats
from tasks_app.management.terminal.card import show_item, show_ways
from tasks_app.management.terminal.command import Exit, TerminalCommand
from tasks_app.management.terminal.facts import (
    how_to_fetch,
    open_questions,
    step_facts,
    task_facts,
)
from tasks_app.management.terminal.finding import project_named, task_meant
from tasks_app.management.terminal.screen import Screen
from tasks_app.management.terminal.tables import spent, steps_table, tasks_table
from tasks_app.models import Project, Task
from tasks_app.state.phases import Phase

#: What needs a person comes first, then what moves, then what rests.
_ORDER = (
    Phase.WAITING_FOR_INPUT,
    Phase.RUNNING,
    Phase.PENDING,
    Phase.WAITING_FOR_RESET,
    Phase.FAILED,
    Phase.INTERRUPTED,
    Phase.DONE,
    Phase.CANCELLED,
)
_LISTED = 50


class Command(TerminalCommand):
    help = "Shows all tasks, what needs you first; or one task with its steps, questions, time and cost."
    examples = f"""\
examples:
  manage.py status                     the newest {_LISTED} tasks
  manage.py status --project billing --all
  manage.py status 12
  manage.py status billing/rounding --json"""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("task", metavar="TASK", nargs="?", help="a task's id, or PROJECT/TASK")
        parser.add_argument("--project", metavar="NAME", help="only tasks of this project")
        parser.add_argument("--all", action="store_true", help=f"all tasks, not just {_LISTED}")
        parser.add_argument("--json", action="store_true", help="as JSON")

    def work(self, options: dict[str, Any]) -> int:
        self._screen = Screen(self.stdout, no_color=options["no_color"])
        self.stdout.ending = ""
        tasks = Task.objects.select_related("project")
        if options["project"]:
            tasks = tasks.filter(project=project_named(options["project"], projects=Project.objects.all()))
        if options["task"]:
            self._one(task_meant(options["task"], tasks=tasks), as_json=options["json"])
        else:
            self._many(_by_need(tasks), limit=None if options["all"] else _LISTED, as_json=options["json"])
        return Exit.DONE

    def _many(self, tasks: QuerySet[Task], *, limit: int | None, as_json: bool) -> None:
        listed = list(tasks[:limit])
        if as_json:
            self.write_json({"tasks": [task_facts(task) for task in listed]})
            return
        if not listed:
            self._screen.say("There are no tasks yet. Start one: manage.py run_task FILE --project NAME")
            return
        self._screen.table(tasks_table(listed))
        if (more := tasks.count() - len(listed)) > 0:
            self._screen.say(f"… and {more} more; --all shows them.")

    def _one(self, task: Task, *, as_json: bool) -> None:
        steps = list(task.steps.prefetch_related("runs"))
        if as_json:
            self.write_json({**task_facts(task), "steps": [step_facts(step) for step in steps]})
            return
        say = self._screen.say
        say(f"Task {task.pk} · {task.project.name}/{task.slug} · {task.title}", style="bold")
        say(f"{task.phase_facts.label}: {task.phase_facts.sentence}", indent=2)
        if task.failure:
            say(task.failure, indent=2, style="red")
        self._screen.table(steps_table(steps))
        say(spent(stats.of_task(task)), indent=2)
        say(f"branch {task.branch}, pipeline {task.pipeline}, threshold {task.threshold}", indent=2)
        if fetch := how_to_fetch(task):
            say(f"Get the work with  {fetch}", indent=2)
        self._questions(task)

    def _questions(self, task: Task) -> None:
        for question in open_questions(task):
            self._screen.say()
            self._screen.say(f"Question {question.pk}, asked by {question.step.name}:", style="bold yellow")
            for item in question.items:
                show_item(self._screen, item)
            show_ways(self._screen, question)


def _by_need(tasks: QuerySet[Task]) -> QuerySet[Task]:
    places = [When(phase=phase, then=Value(place)) for place, phase in enumerate(_ORDER)]
    return tasks.order_by(Case(*places, default=Value(len(places))), "-created_at", "-pk")
