"""`manage.py status`: all sequences and tasks at a glance, or one in detail."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser
from django.db.models import Case, QuerySet, Value, When

from tasks_app.cli.questions import show_question, show_ways
from tasks_app.cli.command import Exit, TerminalCommand
from tasks_app.cli.lookup import SEQUENCE, project_named, sequence_meant, task_meant
from tasks_app.cli.result import show_result
from tasks_app.cli.screen import Screen
from tasks_app.cli.tables import sequences_table, spent, steps_table, tasks_table
from tasks_app.core.phases import Phase
from tasks_app.engine.limits import fault_words
from tasks_app.history import statistics
from tasks_app.models import Project, Question, Sequence, Task, WorkerBeat
from tasks_app.reporting.schemas.sequences import SequenceOut, SequenceWithTasks
from tasks_app.reporting.schemas.status import Status, WorkerOut
from tasks_app.reporting.schemas.tasks import StepOut, TaskWithSteps, tasks_out

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
    help = """\
Shows all sequences and tasks, what needs you first; or one with its steps, questions, time and cost."""
    examples = f"""\
examples:
  manage.py status                     the newest {_LISTED} tasks
  manage.py status --project billing --all
  manage.py status 12
  manage.py status sequence:3
  manage.py status billing/rounding --json"""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "thing", metavar="TASK|sequence:ID", nargs="?", help="a task's id, or PROJECT/TASK"
        )
        parser.add_argument("--project", metavar="NAME", help="only what is in this project")
        parser.add_argument("--all", action="store_true", help=f"all of them, not just {_LISTED}")
        parser.add_argument("--json", action="store_true", help="as JSON")

    def work(self, options: dict[str, Any]) -> int:
        self._screen = Screen(self.stdout, no_color=options["no_color"])
        self.stdout.ending = ""
        self._json = options["json"]
        tasks = Task.objects.select_related("project")
        sequences = Sequence.objects.select_related("project")
        if options["project"]:
            project = project_named(options["project"], projects=Project.objects.all())
            tasks, sequences = tasks.filter(project=project), sequences.filter(project=project)
        thing = options["thing"] or ""
        if thing.startswith(SEQUENCE):
            self._sequence(sequence_meant(thing, sequences=sequences))
        elif thing:
            self._task(task_meant(thing, tasks=tasks))
        else:
            self._many(_by_need(tasks), _by_need(sequences), limit=None if options["all"] else _LISTED)
        return Exit.DONE

    def _many(self, tasks: QuerySet[Task], sequences: QuerySet[Sequence], *, limit: int | None) -> None:
        listed, folders = list(tasks[:limit]), list(sequences[:limit])
        if self._json:
            self._many_as_json(listed, folders)
            return
        if not listed:
            self._screen.say("There are no tasks yet. Start one: manage.py run_task FILE --project NAME")
            self._workers()
            return
        if folders:
            self._screen.table(sequences_table(folders))
            self._more(sequences.count() - len(folders))
            self._screen.say()
        self._screen.table(tasks_table(listed))
        self._more(tasks.count() - len(listed))
        self._faults(listed)
        self._workers()

    def _faults(self, tasks: list[Task]) -> None:
        for task in tasks:
            if fault := fault_words(task):
                self._screen.say(f"Task {task.pk}: {fault}", style="yellow")

    def _workers(self) -> None:
        if not WorkerBeat.objects.alive().exists():
            self._screen.say("No worker is running: tasks wait. Start one: manage.py worker", style="yellow")

    def _many_as_json(self, tasks: list[Task], sequences: list[Sequence]) -> None:
        figures = statistics.of_sequences(sequences)
        self.write_json(
            Status(
                tasks=tasks_out(tasks),
                sequences=[SequenceOut.of(one, figures=figures[one.pk]) for one in sequences],
                workers=[WorkerOut.of(worker) for worker in WorkerBeat.objects.alive()],
            )
        )

    def _more(self, number: int) -> None:
        if number > 0:
            self._screen.say(f"… and {number} more; --all shows them.")

    def _task(self, task: Task) -> None:
        steps = list(task.steps.prefetch_related("runs"))
        if self._json:
            self.write_json(TaskWithSteps.of(task, steps=[StepOut.of(step) for step in steps]))
            return
        say = self._screen.say
        say(f"Task {task.pk} · {task.project.name}/{task.slug} · {task.title}", style="bold")
        self._standing(task)
        self._screen.table(steps_table(steps))
        say(spent(statistics.of_task(task)), indent=2)
        say(f"branch {task.branch}, pipeline {task.pipeline}, threshold {task.threshold}", indent=2)
        if task.sequence:
            say(f"part of {SEQUENCE}{task.sequence.pk}, {task.sequence.folder}/{task.file}", indent=2)
        show_result(self._screen, task)
        self._questions(task)

    def _sequence(self, sequence: Sequence) -> None:
        if self._json:
            self.write_json(SequenceWithTasks.of(sequence))
            return
        say = self._screen.say
        tasks = list(sequence.tasks.select_related("project").order_by("pk"))
        name = f"{sequence.project.name}/{sequence.slug}"
        say(f"Sequence {sequence.pk} · {name} · {sequence.folder}", style="bold")
        self._standing(sequence)
        self._screen.table(tasks_table(tasks))
        say(spent(statistics.of_sequence(sequence)), indent=2)
        say(f"branch {sequence.branch}", indent=2)
        for task in tasks[-1:]:
            show_result(self._screen, task)
        for task in tasks:
            self._questions(task)

    def _standing(self, thing: Task | Sequence) -> None:
        facts = thing.phase_facts
        self._screen.say(f"{facts.label}: {facts.sentence}", indent=2)
        if isinstance(thing, Task) and (fault := fault_words(thing)):
            self._screen.say(fault, indent=2, style="yellow")
        if thing.failure:
            self._screen.say(thing.failure, indent=2, style="red")

    def _questions(self, task: Task) -> None:
        for question in Question.objects.open_of(task):
            self._screen.say()
            self._screen.say(f"Question {question.pk}, asked by {question.step.name}:", style="bold yellow")
            show_question(self._screen, question)
            show_ways(self._screen, question)


def _by_need(rows: QuerySet[Any]) -> QuerySet[Any]:
    places = [When(phase=phase, then=Value(place)) for place, phase in enumerate(_ORDER)]
    return rows.order_by(Case(*places, default=Value(len(places))), "-created_at", "-pk")
