"""Rows as years of work leave them, in PostgreSQL: `python -m tests.bench.filling --database URL`.

A first part is made by the models (tests.bench.history). The database then copies it with other ids, which is
as fast as it can write. The database has to be migrated, and to have no tasks.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from django.db.models import Field, Model

    from tests.bench.history import Making

    #: An id by model.
    Ids = dict[type[Model], int]

#: Tasks that the models make, unless told otherwise.
FIRST = 1_000
#: Tasks that one statement makes at most.
AT_ONCE = 5_000
#: Tasks that wait for an answer, whatever the number of tasks is.
WAITING = 100
#: Decisions of each project: two of three hold.
DECISIONS = 900


@dataclass(frozen=True)
class Amounts:
    """How many rows are wanted. The models make the `first` tasks."""

    tasks: int
    questions: int
    events: int
    first: int = FIRST

    @property
    def copies(self) -> int:
        return self.tasks // self.first

    @property
    def copies_at_once(self) -> int:
        return max(AT_ONCE // self.first, 1)

    @property
    def questions_of_each(self) -> int:
        return self.questions // self.tasks

    @property
    def events_of_each(self) -> int:
        return self.events // self.tasks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--database", required=True, help="the URL of a migrated PostgreSQL database")
    parser.add_argument("--tasks", type=int, default=100_000, help="how many tasks (100,000)")
    parser.add_argument("--questions", type=int, default=1_000_000, help="how many questions (1,000,000)")
    parser.add_argument("--events", type=int, default=10_000_000, help="how many events (10,000,000)")
    chosen = parser.parse_args()
    if not chosen.database.startswith("postgres"):
        sys.exit("Only PostgreSQL copies rows so: the URL begins with postgresql://.")
    if chosen.tasks < 1 or (chosen.tasks > FIRST and chosen.tasks % FIRST):
        sys.exit(f"--tasks is at least 1 and, above {FIRST:,}, a multiple of it.")
    os.environ["DATABASE_URL"] = chosen.database
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "catherder_site.settings")
    import django

    django.setup()
    require_migrated(chosen.database)
    from tasks_app.models import Task

    if Task.objects.exists():
        sys.exit("The database has tasks already. Make an empty one, migrate it, and fill that.")
    began = time.monotonic()
    first = min(chosen.tasks, FIRST)
    for line in fill(Amounts(chosen.tasks, chosen.questions, chosen.events, first)):
        print(f"{time.monotonic() - began:7.0f} s  {line}", flush=True)
    from tests.bench.sizes import lines

    for line in lines():
        print(line)


def require_migrated(database: str) -> None:
    """End with a message if the database cannot be used or lacks migrations."""
    from tasks_app.cli.command import require_tables
    from tasks_app.core.errors import BadInput

    try:
        require_tables()
    except BadInput as error:
        command = f"DATABASE_URL={shlex.quote(database)} python cat-herder django migrate"
        sys.exit(f"{error}\nTo migrate this database: {command}")


def fill(amounts: Amounts) -> Iterator[str]:
    """Make the rows; yield what was done."""
    from django.db import connection

    from tasks_app.services.usage.day_sums import add_up_days
    from tests.bench import history

    before = _newest_ids()
    history.seed(amounts.first, questions=False)
    making = history.making()
    with history.given_times():
        _add_to_tasks(before, making, amounts)
    yield f"{amounts.first:,} tasks were made by the models"
    first = FirstPart(before, _newest_ids())
    for number in range(1, amounts.copies, amounts.copies_at_once):
        last = min(number + amounts.copies_at_once, amounts.copies) - 1
        first.copy(number, last)
        yield f"{(last + 1) * amounts.first:,} tasks"
    _reset_sequences()
    with history.given_times():
        _wait_for_answers(making)
    _decide(making)
    yield f"{DECISIONS:,} decisions of each project"
    yield f"{add_up_days(at_once=10_000):,} days were added up"
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE")
    yield "done"


def _copied_models() -> list[type[Model]]:
    """What is copied, those that others refer to first."""
    from tasks_app.models import Event, IndexedAnswer, Question, Run, Step, Task, Transition

    return [Task, Step, Run, Question, IndexedAnswer, Event, Transition]


def _newest_ids() -> Ids:
    from django.db.models import Max

    return {
        model: model._default_manager.aggregate(newest=Max("pk"))["newest"] or 0 for model in _copied_models()
    }


def _add_to_tasks(before: Ids, making: Making, amounts: Amounts) -> None:
    """Give the new tasks their questions, which are in the index of answers, events and changes of phase."""
    from tasks_app.models import Event, EventKind, IndexedAnswer, Question, Run, Task, Transition
    from tasks_app.services.questions.earlier_answers import index_rows

    for task in Task.objects.filter(pk__gt=before[Task]).order_by("pk"):
        runs = list(Run.objects.filter(step__task=task).select_related("step__task"))
        questions = Question.objects.bulk_create(
            making.question(runs[n % len(runs)], number=n + 1) for n in range(amounts.questions_of_each)
        )
        IndexedAnswer.objects.bulk_create(
            row for one in questions for row in index_rows(task.project_id, one)
        )
        for run in runs:
            Event.objects.bulk_create(
                Event(run=run, seq=seq, kind=EventKind.TEXT, at=run.started_at, payload={"text": text})
                for seq in range(amounts.events_of_each // len(runs))
                for text in [making.words(30 + seq % 31)]
            )
        Transition.objects.bulk_create(
            Transition(
                task=task, source=source, target=target, at=task.created_at, announced_at=task.ended_at
            )
            for source, target in (("pending", "running"), ("running", task.phase))
        )


@dataclass(frozen=True)
class FirstPart:
    """The rows that the models made: those with ids above `before`, up to `newest`."""

    before: Ids
    newest: Ids

    def copy(self, first: int, last: int) -> None:
        """Make the copies with these numbers."""
        for model in _copied_models():
            if self._span(model):
                self._copy(model, first, last)

    def _span(self, model: type[Model]) -> int:
        return self.newest[model] - self.before[model]

    def _copy(self, model: type[Model], first: int, last: int) -> None:
        from django.db import connection

        fields: list[Field[Any, Any]] = list(model._meta.concrete_fields)
        columns = ", ".join(f'"{one.column}"' for one in fields)
        values = ", ".join(self._value(one, model) for one in fields)
        with connection.cursor() as cursor:
            cursor.execute(
                f'INSERT INTO "{model._meta.db_table}" ({columns}) '  # noqa: S608 - our own names
                f'SELECT {values} FROM "{model._meta.db_table}" '
                "CROSS JOIN generate_series(%s, %s) AS copy(copy_number) WHERE id > %s AND id <= %s",
                [first, last, self.before[model], self.newest[model]],
            )

    def _value(self, field: Field[Any, Any], model: type[Model]) -> str:
        """Return the expression for a column of a copy: ids move on, and unique names get a number."""
        named = model if field.primary_key else field.related_model
        if named in self.newest:
            return f'"{field.column}" + copy_number * {self._span(named)}'
        if field.column in ("slug", "branch"):
            return f"\"{field.column}\" || '-' || copy_number"
        return f'"{field.column}"'


def _reset_sequences() -> None:
    from django.core.management.color import no_style
    from django.db import connection

    with connection.cursor() as cursor:
        for statement in connection.ops.sequence_reset_sql(no_style(), _copied_models()):
            cursor.execute(statement)


def _wait_for_answers(making: Making) -> None:
    """Let the newest tasks wait, each with an open question."""
    from django.utils import timezone

    from tasks_app.models import Run, Step, Task

    asked = {"number": 2, "reason": "first", "outcome": "asked", "started_at": timezone.now()}
    for task in Task.objects.order_by("-pk")[:WAITING]:
        task.phase, task.ended_at = "waiting_for_input", None
        task.save(update_fields=["phase", "ended_at"])
        step = Step.objects.filter(task=task).latest("position")
        run = Run.objects.create(step=step, session_id=uuid.uuid4(), **asked)
        question = making.question(run, number=1_000_000)
        question.state, question.answers, question.answered_via = "open", {}, ""
        question.answered_at = question.answered_by = None
        question.save()


def _decide(making: Making) -> None:
    """Give each project decisions, some of them answers to its questions, with what happened to them."""
    from django.utils import timezone

    from tasks_app.models import Decision, DecisionEvent, DecisionEventKind, Question
    from tasks_app.services.questions.earlier_answers import question_key

    now, kinds = timezone.now(), (DecisionEventKind.DECIDED, DecisionEventKind.FOLLOWED)
    for project in making.projects:
        asked = list(Question.objects.filter(task__project=project, state="answered")[: DECISIONS // 3])
        made = Decision.objects.bulk_create(
            Decision(
                project=project, number=number, statement=making.words(12), reason=making.words(20),
                state="superseded" if number % 3 == 0 else "active",
                decided_by=making.users[number % len(making.users)], decided_at=now,
                question=asked[number] if number < len(asked) else None,
                question_key=question_key(asked[number]) if number < len(asked) else "",
            )
            for number in range(1, DECISIONS + 1)
        )  # fmt: skip
        DecisionEvent.objects.bulk_create(
            DecisionEvent(decision=one, kind=kind, user=one.decided_by) for one in made for kind in kinds
        )


if __name__ == "__main__":
    main()
