"""Find what a command names: the user in whose name it acts, projects, tasks and sequences."""

from __future__ import annotations

import getpass
import re

from django.conf import settings
from django.core.management.base import CommandParser
from django.db.models import QuerySet
from django.utils.text import slugify

from tasks_app.core.errors import BadInput
from tasks_app.core.phases import ENDED, Phase
from tasks_app.models import SHOWN_WITH, Project, Question, Sequence, Step, Task, User
from tasks_app.permissions import Principal, questions_visible_to, sequences_visible_to, tasks_visible_to

_LISTED = 10


def add_user_argument(parser: CommandParser) -> None:
    parser.add_argument(
        "--as",
        dest="username",
        metavar="USERNAME",
        help="the user who does this; default: CATHERDER_USER, a user with your login name, or the only "
        "site admin",
    )


def acting_principal(username: str | None) -> Principal:
    """Return the acting user as an unrestricted principal."""
    return Principal.unrestricted(acting_user(username))


def acting_user(username: str | None) -> User:
    """Return the user of `--as`, CATHERDER_USER or the login name, else the only admin. Raises BadInput."""
    if name := username or settings.ENVIRONMENT.user:
        return _find_user(name, where="--as" if username else "CATHERDER_USER")
    users = User.objects.filter(is_active=True)
    own = users.filter(username=_login_name()).first()
    admins = users.filter(is_superuser=True)[:2]
    if own is None and len(admins) != 1:
        raise BadInput(f"Which user is this? Use --as USERNAME or set CATHERDER_USER. {_known_usernames()}")
    return own or admins[0]


def acting_user_or_none(username: str | None) -> User | None:
    """Return the acting user, or None if no users exist yet."""
    if username or User.objects.exists():
        return acting_user(username)
    return None


def _find_user(username: str, *, where: str) -> User:
    user = User.objects.filter(username=username).first()
    if user is None:
        raise BadInput(f"There is no user “{username}”. {_known_usernames()}", where=where)
    if not user.is_active:
        raise BadInput(f"The account of “{username}” is deactivated.", where=where)
    return user


def _login_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container may run a user that has no name
        return ""


def _known_usernames() -> str:
    names = list(User.objects.filter(is_active=True).values_list("username", flat=True)[: _LISTED + 1])
    if not names:
        return "There are no users yet. Start the portal once: cat-herder up"
    known = ", ".join(names[:_LISTED])
    if len(names) > _LISTED:
        known += ", …"
    return f"Known: {known}."


# Find what was named on the command line. What a user may not see does not exist for them.


#: Prefix of a sequence's id where a task's id is possible too.
SEQUENCE = "sequence:"


def find_project(name: str, *, projects: QuerySet[Project]) -> Project:
    """Return the project of this name. Raises BadInput, which lists the known names."""
    if project := projects.filter(name=name).first():
        return project
    known = ", ".join(projects.values_list("name", flat=True)[:20])
    hint = "Add one: cat-herder project add NAME PATH"
    if known:
        hint = f"Known: {known}."
    raise BadInput(f"There is no project “{name}”. {hint}")


def find_task(text: str, *, tasks: QuerySet[Task]) -> Task:
    """Return the task with this id or PROJECT/SLUG. Raises BadInput."""
    rows = tasks.select_related("project")
    project, slash, slug = text.partition("/")
    if slash:
        found = rows.filter(project__name=project, slug=slug).first()
    else:
        found = rows.filter(pk=_parse_id(text, what="a task's id, or PROJECT/TASK")).first()
    if found is None:
        raise BadInput(f"There is no task {text}. `cat-herder status` lists them.")
    return found


def find_unfinished_task(
    project: Project,
    *,
    slug: str,
    text: str,
    threshold: int | None,
    pipeline: str | None,
    ask: tuple[str, ...] = (),
) -> Task | None:
    """Return the newest task with this text and name that has not ended: the same command resumes it.

    If a threshold, a pipeline or names to ask are given, the task must have the same.
    """
    wanted = {"threshold": threshold, "pipeline": pipeline, "ask": list(ask) or None}
    given = {name: value for name, value in wanted.items() if value is not None}
    return tasks_from_file(project, slug=slug, text=text).exclude(phase__in=ENDED).filter(**given).first()


def tasks_from_file(project: Project, *, slug: str, text: str) -> QuerySet[Task]:
    """Return the tasks that were created from a file of this name and text, newest first."""
    named = rf"^{re.escape(slugify(slug)[:60] or 'task')}(-[0-9]+)?$"
    return project.tasks.select_related("project").filter(sequence=None, text=text, slug__regex=named)


def find_sequence(text: str, *, sequences: QuerySet[Sequence]) -> Sequence:
    """Return the sequence with this id, with or without the prefix `sequence:`. Raises BadInput."""
    sequence_id = _parse_id(text.removeprefix(SEQUENCE), what="a sequence's id")
    if found := sequences.select_related("project").filter(pk=sequence_id).first():
        return found
    raise BadInput(f"There is no sequence {sequence_id}. `cat-herder status` lists them.")


def find_task_or_sequence(text: str, *, principal: Principal) -> Task | Sequence:
    """Return the task, or the sequence if the id has the prefix `sequence:`. Raises BadInput."""
    if text.startswith(SEQUENCE):
        return find_sequence(text, sequences=sequences_visible_to(principal))
    return find_task(text, tasks=tasks_visible_to(principal))


def find_unfinished_sequence(
    project: Project,
    *,
    folder: str,
    threshold: int | None,
    pipeline: str | None,
    ask: tuple[str, ...] = (),
    also_ended: bool,
) -> Sequence | None:
    """Return the folder's newest sequence if it has not ended; with `also_ended`, if it is not done.

    If a threshold, a pipeline or names to ask are given, the sequence must have the same.
    """
    wanted = {"threshold": threshold, "pipeline": pipeline, "ask": list(ask) or None}
    given = {name: value for name, value in wanted.items() if value is not None}
    newest = project.sequences.select_related("project").filter(folder=folder, **given).first()
    over = {Phase.DONE} if also_ended else ENDED
    if newest and newest.phase not in over:
        return newest
    return None


def find_question(text: str, *, principal: Principal) -> Question:
    """Return the question with this id. Raises BadInput."""
    question_id = _parse_id(text, what="a question's id, a number")
    rows = questions_visible_to(principal).select_related(*SHOWN_WITH)
    if found := rows.filter(pk=question_id).first():
        return found
    raise BadInput(f"There is no question {question_id}. `cat-herder status` lists the open ones.")


def find_step(task: Task, text: str) -> Step:
    """Return the step of this name or position (from 1). Raises BadInput, which lists the steps."""
    steps = list(task.steps.select_related("task__project"))
    for step in steps:
        if text in (step.name, str(step.position)):
            return step
    listed = ", ".join(f"{step.position} {step.name}" for step in steps)
    raise BadInput(f"Task {task.pk} has no step “{text}”. Its steps: {listed}.", where="--step")


def _parse_id(text: str, *, what: str) -> int:
    digits = text.removeprefix("#")
    # The database cannot hold longer ids.
    if not digits.isascii() or not digits.isdigit() or len(digits) > 18:
        raise BadInput(f"“{text}” is not {what}.")
    return int(digits)
