"""Adding a project: a git repository that tasks are to work on."""

from __future__ import annotations

from django.core.exceptions import ValidationError
from django.db import transaction

from tasks_app import places
from tasks_app.errors import BadInput
from tasks_app.models import Membership, Project, Role, User
from tasks_app.workspace import inspect_source


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


def _faults(error: ValidationError) -> str:
    return " ".join(f"{field}: {' '.join(messages)}" for field, messages in error.message_dict.items())
