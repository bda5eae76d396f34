"""`cat-herder status`: list all sequences and tasks, or show one in detail."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser
from django.db.models import Case, OuterRef, QuerySet, Subquery, Value, When
from django.urls import reverse

from tasks_app.absolute_urls import absolute_url
from tasks_app.cli.command import Exit, TerminalCommand
from tasks_app.cli.lookup import SEQUENCE, find_project, find_sequence, find_task
from tasks_app.cli.questions import show_asked, show_how_to_answer, show_question
from tasks_app.cli.repository import show_result
from tasks_app.cli.tables import describe_spending, show_sequences, show_tasks, state_label, steps_table
from tasks_app.cli.terminal import open_page
from tasks_app.core.phases import Phase
from tasks_app.core.text import strip_controls
from tasks_app.models import Project, Question, QuestionState, Sequence, Task, WorkerBeat, deadline_of
from tasks_app.schemas.sequences import SequenceOut, SequenceWithTasks
from tasks_app.schemas.tasks import StepOut, TaskOut, TaskWithSteps
from tasks_app.schemas.workers import Status, WorkerOut
from tasks_app.services.commands import page_url
from tasks_app.services.sequences import upcoming_files
from tasks_app.services.task_groups import oldest_question
from tasks_app.services.usage import statistics
from tasks_app.services.wait_sentences import fault_words, phase_sentence

#: Phases that need a person come first, then active ones, then ended ones.
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
Shows all sequences and tasks, those that need you first; or one with its steps, questions, time and cost."""
    examples = f"""\
examples:
  cat-herder status                     the newest {_LISTED} tasks
  cat-herder status --project billing --all
  cat-herder status 12
  cat-herder status sequence:3
  cat-herder status billing/rounding --json"""

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "thing", metavar="TASK|sequence:ID", nargs="?", help="a task's id, or PROJECT/TASK"
        )
        parser.add_argument("--project", metavar="NAME", help="only what is in this project")
        parser.add_argument("--web", action="store_true", help="open the page in the browser")
        parser.add_argument("--all", action="store_true", help=f"all of them, not just {_LISTED}")
        parser.add_argument("--json", action="store_true", help="as JSON")

    def work(self, options: dict[str, Any]) -> int:
        self._screen = self.screen_for(options)
        self._json = options["json"]
        tasks = Task.objects.select_related("project")
        sequences = Sequence.objects.select_related("project")
        if options["project"]:
            project = find_project(options["project"], projects=Project.objects.all())
            tasks, sequences = tasks.filter(project=project), sequences.filter(project=project)
        thing = options["thing"] or ""
        if options["web"]:
            self._open(thing, tasks=tasks, sequences=sequences)
        elif thing.startswith(SEQUENCE):
            self._print_sequence(find_sequence(thing, sequences=sequences))
        elif thing:
            self._print_task(find_task(thing, tasks=tasks))
        else:
            self._print_lists(
                _order_by_need(tasks, *_urgency_of_tasks()),
                _order_by_need(sequences),
                limit=None if options["all"] else _LISTED,
            )
        return Exit.DONE

    def _open(self, thing: str, *, tasks: QuerySet[Task], sequences: QuerySet[Sequence]) -> None:
        url = absolute_url(reverse("tasks"))
        if thing.startswith(SEQUENCE):
            url = page_url(find_sequence(thing, sequences=sequences))
        elif thing:
            url = page_url(find_task(thing, tasks=tasks))
        open_page(url, self._screen)

    def _print_lists(
        self, tasks: QuerySet[Task], sequences: QuerySet[Sequence], *, limit: int | None
    ) -> None:
        listed, folders = list(tasks[:limit]), list(sequences[:limit])
        if self._json:
            metrics = statistics.of_sequences(folders)
            self.write_json(
                Status(
                    tasks=TaskOut.of_each(listed),
                    sequences=[SequenceOut.from_row(one, metrics=metrics[one.pk]) for one in folders],
                    workers=[WorkerOut.from_row(worker) for worker in WorkerBeat.objects.alive()],
                )
            )
            return
        if not listed:
            self._screen.say("There are no tasks yet. Start one: cat-herder run_task FILE --project NAME")
            self._print_worker_warning()
            return
        if folders:
            show_sequences(folders, self._screen)
            self._print_remaining(sequences.count() - len(folders))
            self._screen.say()
        show_tasks(listed, self._screen)
        self._print_remaining(tasks.count() - len(listed))
        for task in listed:
            if fault := fault_words(task):
                self._screen.say(f"Task {task.pk}: {fault}", style="yellow")
        self._print_worker_warning()

    def _print_worker_warning(self) -> None:
        workers = list(WorkerBeat.objects.alive())
        if not workers:
            self._screen.say("No worker is running: tasks wait. Start one: cat-herder worker", style="yellow")
        for worker in workers:
            if worker.problem:
                self._screen.say(f"Worker {worker} takes no tasks: {worker.problem}", style="yellow")

    def _print_remaining(self, count: int) -> None:
        if count > 0:
            self._screen.say(f"… and {count} more; --all shows them.")

    def _print_task(self, task: Task) -> None:
        steps = list(task.steps.prefetch_related("runs"))
        if self._json:
            self.write_json(TaskWithSteps.from_row(task, steps=[StepOut.from_row(step) for step in steps]))
            return
        say = self._screen.say
        say(f"Task {task.pk} · {task.project.name}/{task.slug} · {task.title}", style="bold")
        self._print_phase(task)
        self._screen.table(steps_table(steps))
        say(describe_spending(statistics.of_task(task)), indent=2)
        pipeline = f"pipeline {task.pipeline}" if task.pipeline else "no pipeline"
        say(f"branch {task.branch}, {pipeline}, threshold {task.threshold}", indent=2)
        if task.ask:
            say(f"asks {strip_controls(', '.join(task.ask))}", indent=2)
        if task.sequence:
            say(f"part of {SEQUENCE}{task.sequence.pk}, {task.sequence.folder}/{task.file}", indent=2)
        show_result(self._screen, task)
        self._print_questions(task)

    def _print_sequence(self, sequence: Sequence) -> None:
        if self._json:
            self.write_json(SequenceWithTasks.from_row(sequence))
            return
        say = self._screen.say
        tasks = list(sequence.tasks.select_related("project").order_by("pk"))
        name = f"{sequence.project.name}/{sequence.slug}"
        say(f"Sequence {sequence.pk} · {name} · {sequence.folder}", style="bold")
        self._print_phase(sequence)
        show_tasks(tasks, self._screen)
        upcoming, trouble = upcoming_files(sequence)
        for name in upcoming:
            say(f"upcoming: {strip_controls(name)}", indent=2, style="dim")
        if trouble:
            say(f"The upcoming tasks are unknown: {strip_controls(trouble)}", indent=2, style="red")
        say(describe_spending(statistics.of_sequence(sequence)), indent=2)
        say(f"branch {sequence.branch}", indent=2)
        for task in tasks:
            if task.phase == Phase.DONE:
                say()
                say(f"Result of task {task.pk}: {strip_controls(task.title)}", style="bold")
            show_result(self._screen, task)
        for task in tasks:
            self._print_questions(task)

    def _print_phase(self, thing: Task | Sequence) -> None:
        sentence = thing.phase_display.sentence
        if isinstance(thing, Task):
            sentence = phase_sentence(thing)
        elif thing.phase == Phase.DONE:
            count = thing.tasks.count()
            sentence = f"{count} of {count} tasks done."
        label = state_label(thing)
        if label == "not started":
            sentence = "Nobody has started it."
        self._screen.say(f"{label}: {sentence}", indent=2)
        if isinstance(thing, Task) and (fault := fault_words(thing)):
            self._screen.say(fault, indent=2, style="yellow")
        if thing.failure:
            self._screen.say(thing.failure, indent=2, style="red")

    def _print_questions(self, task: Task) -> None:
        for question in Question.objects.open_of(task):
            self._screen.say()
            heading = f"{question.kind_name} {question.pk}, asked by {question.step.name}:"
            self._screen.say(heading, style="bold yellow")
            show_asked(self._screen, question)
            show_question(self._screen, question)
            show_how_to_answer(self._screen, question)


def _order_by_need(rows: QuerySet[Any], *urgency: Any) -> QuerySet[Any]:
    cases = [When(phase=phase, then=Value(position)) for position, phase in enumerate(_ORDER)]
    return rows.order_by(Case(*cases, default=Value(len(cases))), *urgency, "-created_at", "-pk")


def _urgency_of_tasks() -> list[Any]:
    """Return the order of tasks that wait for an answer, as the inbox has it; all others are equal."""
    waits = {"phase": Phase.WAITING_FOR_INPUT, "sequence__isnull": False}
    deadline = deadline_of(question__task=OuterRef("pk"), question__state=QuestionState.OPEN)
    return [
        Case(When(**waits, then=Value(0)), default=Value(1)),
        deadline.asc(nulls_last=True),
        Subquery(oldest_question().values("asked_at")[:1]).asc(nulls_last=True),
    ]
