"""Adding a project: a git repository that tasks are to work on."""

from __future__ import annotations

import logging

from django.core.exceptions import ValidationError
from django.db import transaction

from tasks_app import places
from tasks_app.errors import BadInput, IllegalMove, NotAllowed, WorkspaceError
from tasks_app.models import Membership, Project, Role, Run, SessionEntry, Task, User
from tasks_app.state.phases import Phase
from tasks_app.workspace import inspect_source

logger = logging.getLogger(__name__)


def add_project(name: str, source: str, *, by: User | None = None, is_sample: bool = False) -> Project:
    """Add the repository at `source` (a path, or an https or ssh address) under `name`.

    Whoever adds it becomes its maintainer. Raises BadInput or WorkspaceError that names the fault;
    then nothing was added.
    """
    facts = inspect_source(source)
    project = Project(name=name, source=facts.source, branch=facts.head_branch, is_sample=is_sample)
    try:
        project.full_clean()
    except ValidationError as error:
        raise BadInput(_faults(error), where="project") from None
    with transaction.atomic():
        project.save()
        if by is not None:
            Membership.objects.create(project=project, user=by, role=Role.MAINTAINER)
    try:
        places.repository(project).fetch()
    except BaseException:
        project.delete()
        raise
    return project


def remove_project(project: Project, *, by: User) -> None:
    """Remove a project with its tasks, their history, workspaces and branches; its source is not touched.

    Raises NotAllowed for anybody but a maintainer, IllegalMove while somebody is at work in it. A folder
    that cannot be removed is left, and the log says so.
    """
    if not by.is_superuser and not project.memberships.filter(user=by, role=Role.MAINTAINER).exists():
        raise NotAllowed(f"Only a maintainer of {project} or a site admin can remove it.")
    with transaction.atomic():
        tasks = list(project.tasks.select_for_update())
        _refuse_while_at_work(project, tasks)
        repository = places.repository(project)
        folders = {repository.path, *map(places.task_dir, tasks), *map(places.shared_dir, tasks)}
        # Rows of sessions hang on no other row, as the agent alone knows their keys.
        sessions = Run.objects.filter(step__task__project=project).values_list("session_id", flat=True)
        SessionEntry.objects.filter(session_id__in=set(map(str, sessions))).delete()
        Project.objects.filter(pk=project.pk).delete()
    for folder in folders:
        try:
            places.remove_folder(folder)
        except WorkspaceError as error:
            logger.warning("a folder of the removed project %s is left: %s", project, error)
    repository.lock_file.unlink(missing_ok=True)


def _refuse_while_at_work(project: Project, tasks: list[Task]) -> None:
    """A cancelled task's agent may still be ending, and its worker about to write to the row."""
    if running := next((task for task in tasks if task.phase == Phase.RUNNING), None):
        raise IllegalMove(f"Task {running.pk} of {project}", running.phase, "removed; cancel it first")
    if held := project.tasks.exclude(pk__in=Task.objects.free().values("pk")).first():
        why = "removed yet: its agent is just ending; try again in a moment"
        raise IllegalMove(f"Task {held.pk} of {project}", held.phase, why)


def _faults(error: ValidationError) -> str:
    return " ".join(f"{field}: {' '.join(messages)}" for field, messages in error.message_dict.items())
