"""Who may act: the one rule behind every mutation."""

from __future__ import annotations

from tasks_app.core.errors import NotAllowed
from tasks_app.models import Project, User


def may_act(user: User, project: Project) -> bool:
    """Whether the person may create tasks, answer, start and cancel in the project."""
    return Project.objects.actable_by(user).filter(pk=project.pk).exists()


def require_actor(user: User, project: Project) -> None:
    """Raises NotAllowed for a person who may only look."""
    if not may_act(user, project):
        raise NotAllowed(f"Your role in {project} does not allow this. A maintainer can change your role.")
