"""`manage.py run_task`: one task, at the terminal."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management.base import CommandParser

from tasks_app import workshop
from tasks_app.actions.access import require_actor
from tasks_app.actions.tasks import create_task, go_on, start_task
from tasks_app.config.task_file import read_task_file
from tasks_app.config.threshold import threshold_from_text
from tasks_app.errors import BadInput, IllegalMove
from tasks_app.management.terminal.command import Exit, TerminalCommand
from tasks_app.management.terminal.facts import task_facts
from tasks_app.management.terminal.finding import project_named, task_meant, unended_task
from tasks_app.management.terminal.people import acting_user, add_person_argument
from tasks_app.management.terminal.screen import Screen
from tasks_app.management.terminal.sitting import Sitting
from tasks_app.models import Project, Task, User
from tasks_app.state.phases import RESUMABLE, Phase


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
        parser.add_argument("--project", metavar="NAME", help="the project; needed with PATH")
        parser.add_argument(
            "--threshold", metavar="N", help="0 never asks … 5 asks about any ambiguity; for a new task"
        )
        parser.add_argument("--pipeline", metavar="NAME", help="the pipeline to run through; for a new task")
        parser.add_argument(
            "--new", action="store_true", help="make a new task even if an earlier one has not ended"
        )
        parser.add_argument(
            "--no-input",
            action="store_true",
            help="never prompt: when the agent asks, say how to answer and exit with 3",
        )
        parser.add_argument(
            "--json",
            action="store_true",
            help="one JSON object on stdout at the end; what happens meanwhile goes to stderr",
        )
        add_person_argument(parser)

    def work(self, options: dict[str, Any]) -> int:
        self.stdout.ending = ""
        self._screen = self._screen_for(options)
        person = acting_user(options["username"])
        task = self._task(options, person)
        code = self._run(task, person, may_prompt=not options["no_input"])
        if options["json"]:
            task.refresh_from_db()
            self.write_json({**task_facts(task), "exit_code": int(code)})
        return code

    def _screen_for(self, options: dict[str, Any]) -> Screen:
        if options["json"]:
            return Screen.errors(no_color=options["no_color"])
        return Screen(self.stdout, no_color=options["no_color"])

    def _run(self, task: Task, person: User, *, may_prompt: bool) -> Exit:
        if task.phase == Phase.DONE:
            self._screen.say(f"Task {task.pk} is done already: {task.title}")
            return Exit.DONE
        require_actor(person, task.project)
        sitting = Sitting(task, person, self._screen, may_prompt=may_prompt)
        self._introduce(task)
        _set_going(task, person)
        return sitting.run()

    def _introduce(self, task: Task) -> None:
        say = self._screen.say
        say(f"Task {task.pk} · {task.project.name}/{task.slug} · {task.title}", style="bold")
        say(f"branch {task.branch}, pipeline {task.pipeline}, threshold {task.threshold}", indent=2)
        if settings.ENVIRONMENT.rehearsal:
            say("Rehearsal: the agent is the real Claude Code, the model behind it is a script.", indent=2)
        if reason := workshop.jail().reason:
            say(f"No sandbox: {reason}", indent=2)

    def _task(self, options: dict[str, Any], person: User) -> Task:
        projects = Project.objects.visible_to(person)
        project = project_named(options["project"], projects=projects) if options["project"] else None
        if re.fullmatch(r"#?[0-9]+", options["task"]):
            return _by_id(options, person, project)
        if project is None:
            raise BadInput("Say which project the task is for: --project NAME.")
        return self._by_path(options, person, project)

    def _by_path(self, options: dict[str, Any], person: User, project: Project) -> Task:
        path = _task_file(options["task"], project)
        text, _ = read_task_file(path)
        threshold = _threshold(options["threshold"])
        wanted = {"threshold": threshold, "pipeline": options["pipeline"]}
        earlier = None if options["new"] else unended_task(project, slug=path.stem, text=text, **wanted)
        if earlier:
            self._screen.say(f"Going on with task {earlier.pk} of this file (--new makes another).")
            return earlier
        return create_task(
            project,
            text,
            by=person,
            where=str(path),
            threshold=threshold,
            pipeline=options["pipeline"],
            slug=path.stem,
        )


def _by_id(options: dict[str, Any], person: User, project: Project | None) -> Task:
    for name in ("threshold", "pipeline", "new"):
        if options[name]:
            raise BadInput(f"--{name} is for a new task, made from a file.", where=f"task {options['task']}")
    tasks = Task.objects.visible_to(person)
    return task_meant(
        options["task"].removeprefix("#"), tasks=tasks.filter(project=project) if project else tasks
    )


def _task_file(named: str, project: Project) -> Path:
    """The file from here, else from the top of the project's repository if that is a folder."""
    here = Path(named)
    there = Path(project.source) / named
    return there if not here.exists() and Path(project.source).is_dir() and there.exists() else here


def _threshold(text: str | None) -> int | None:
    return None if text is None else threshold_from_text(text, where="--threshold")


def _set_going(task: Task, person: User) -> None:
    try:
        if task.not_started:
            start_task(task, by=person, ring=False)
        elif task.phase in RESUMABLE:
            go_on(task, by=person, ring=False)
    except IllegalMove:
        pass  # somebody was first; the rows tell what it is now
