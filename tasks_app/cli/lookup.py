"""Finding what a person named on the command line. What they may not see does not exist for them."""

from __future__ import annotations

import re

from django.db.models import QuerySet
from django.utils.text import slugify

from tasks_app.core.errors import BadInput
from tasks_app.core.phases import ENDED, Phase
from tasks_app.models import Project, Question, Sequence, Step, Task
from tasks_app.permissions import Principal, questions_visible_to, sequences_visible_to, tasks_visible_to

#: What stands before the id of a sequence where a task could be meant too.
SEQUENCE = "sequence:"


def project_named(name: str, *, projects: QuerySet[Project]) -> Project:
    """Raises BadInput that lists the known names."""
    if project := projects.filter(name=name).first():
        return project
    known = ", ".join(projects.values_list("name", flat=True)[:20])
    hint = f"Known: {known}." if known else "Add one: manage.py project add NAME PATH"
    raise BadInput(f"There is no project “{name}”. {hint}")


def task_meant(text: str, *, tasks: QuerySet[Task]) -> Task:
    """The task with this id, or named PROJECT/SLUG. Raises BadInput."""
    rows = tasks.select_related("project")
    project, slash, slug = text.partition("/")
    if slash:
        found = rows.filter(project__name=project, slug=slug).first()
    else:
        found = rows.filter(pk=_number(text, what="a task's id, or PROJECT/TASK")).first()
    if found is None:
        raise BadInput(f"There is no task {text}. `manage.py status` lists them.")
    return found


def unended_task(
    project: Project, *, slug: str, text: str, threshold: int | None, pipeline: str | None
) -> Task | None:
    """The newest task of this very text and name that has not ended: the same command goes on with it.

    A threshold or pipeline that was asked for must be the task's own.
    """
    wanted = {"threshold": threshold, "pipeline": pipeline}
    given = {name: value for name, value in wanted.items() if value is not None}
    return tasks_of_file(project, slug=slug, text=text).exclude(phase__in=ENDED).filter(**given).first()


def tasks_of_file(project: Project, *, slug: str, text: str) -> QuerySet[Task]:
    """Tasks that were made from a file of this name with this very text, the newest first."""
    named = rf"^{re.escape(slugify(slug)[:60] or 'task')}(-[0-9]+)?$"
    return project.tasks.select_related("project").filter(sequence=None, text=text, slug__regex=named)


def sequence_meant(text: str, *, sequences: QuerySet[Sequence]) -> Sequence:
    """The sequence with this id, with or without `sequence:` before it. Raises BadInput."""
    number = _number(text.removeprefix(SEQUENCE), what="a sequence's id")
    if found := sequences.select_related("project").filter(pk=number).first():
        return found
    raise BadInput(f"There is no sequence {number}. `manage.py status` lists them.")


def thing_meant(text: str, *, principal: Principal) -> Task | Sequence:
    """The task, or with `sequence:` before the id the sequence. Raises BadInput."""
    if text.startswith(SEQUENCE):
        return sequence_meant(text, sequences=sequences_visible_to(principal))
    return task_meant(text, tasks=tasks_visible_to(principal))


def unended_sequence(
    project: Project, *, folder: str, threshold: int | None, pipeline: str | None, also_ended: bool
) -> Sequence | None:
    """The newest sequence of the folder, if it has not ended (or `also_ended`, unless it is done).

    A threshold or pipeline that was asked for must be the sequence's own.
    """
    wanted = {"threshold": threshold, "pipeline": pipeline}
    given = {name: value for name, value in wanted.items() if value is not None}
    newest = project.sequences.select_related("project").filter(folder=folder, **given).first()
    over = {Phase.DONE} if also_ended else ENDED
    return newest if newest and newest.phase not in over else None


def question_numbered(text: str, *, principal: Principal) -> Question:
    """The question with this id. Raises BadInput."""
    number = _number(text, what="a question's id, a number")
    rows = questions_visible_to(principal).select_related("task__project", "step", "run", "answered_by")
    if found := rows.filter(pk=number).first():
        return found
    raise BadInput(f"There is no question {number}. `manage.py status` lists the open ones.")


def step_meant(task: Task, text: str) -> Step:
    """The step of that name, or at that position from 1. Raises BadInput that lists the steps."""
    steps = list(task.steps.select_related("task__project"))
    for step in steps:
        if text in (step.name, str(step.position)):
            return step
    listed = ", ".join(f"{step.position} {step.name}" for step in steps)
    raise BadInput(f"Task {task.pk} has no step “{text}”. Its steps: {listed}.", where="--step")


def _number(text: str, *, what: str) -> int:
    digits = text.removeprefix("#")
    # Longer numbers than the database can hold are nobody's id.
    if not digits.isascii() or not digits.isdigit() or len(digits) > 18:
        raise BadInput(f"“{text}” is not {what}.")
    return int(digits)
